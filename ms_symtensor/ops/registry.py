"""All signatures, by MindSpore's primitive name: the one place that says which operators are known."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ms_symtensor.errors import InputError, UnknownOperatorError
from ms_symtensor.ops import (
    attention,
    contraction,
    convolution,
    creation,
    elementwise,
    fixed,
    in_place,
    indexing,
    loss,
    normalization,
    paged_cache,
    recurrent,
    reduction,
    routing,
    shape,
)
from ms_symtensor.ops.grammar import read
from ms_symtensor.ops.quirks import NO_QUIRKS, UNDISTRIBUTED
from ms_symtensor.ops.rule import LineRule
from ms_symtensor.ops.signature import OpView, Signature, view
from ms_symtensor.ops.unknown import unknown
from ms_symtensor.tensor.graph import Graph, Op, OpOutput, TensorType

Rule = Callable[[OpView], Signature]


def merge(*families: Mapping[str, Rule]) -> dict[str, Rule]:
    """Join families of rules; InputError where two define the same operator."""
    merged: dict[str, Rule] = {}
    for family in families:
        for name, rule in family.items():
            if name in merged:
                raise InputError(f"operator {name!r} has two signatures; keep one")
            merged[name] = rule
    return merged


def families() -> dict[str, Mapping[str, Rule]]:
    """The tables of rules that ship with ms_symtensor, by the module that they stand in."""
    modules = (
        attention, contraction, convolution, creation, elementwise, fixed, in_place, indexing, loss, normalization, paged_cache,
        recurrent, reduction, routing, shape,
    )  # fmt: skip
    return {module.__name__.rpartition(".")[2]: module.RULES for module in modules}


_RULES = merge(*families().values())


def rules() -> Mapping[str, Rule]:
    """The rules that ship with ms_symtensor."""
    return _RULES


def _wording(rule: Rule) -> object:
    """What tells a rule from another one; a function by its place, which is the same when its file is run again."""
    if isinstance(rule, LineRule):
        return rule
    return getattr(rule, "__module__", ""), getattr(rule, "__qualname__", rule)


_registered: dict[str, Rule] = {}


def register(name: str, rule: Rule | str, batch_only: bool = False, **properties: Any) -> None:
    """Make an operator known in this process, e.g. one that you wrote yourself.

    The same rule may be registered again, as a file does that is run twice.

    Args:
        name: The name of its primitive.
        rule: A line of the rule grammar such as `"... a! ... -> @... a! ... | a = axis 0 -1"`, or a function from an `OpView` to
            a `Signature`.
        batch_only: With a line: MindSpore has no distributed form of the operator (it has none of primitives written in Python),
            ignores strategies and cuts the first dim of the first input by all devices.
        properties: With a line: fields of `Signature` that it does not say, such as unit.

    Raises:
        InputError: The operator has another rule, or this is no name, no rule, or no property.

    Example:
        >>> ms_symtensor.register("MyNorm", "@... d!, @d! -> ... d!")
    """
    given = _rule_of(name, rule, batch_only, properties)
    if name in rules() or _wording(_registered.get(name, given)) != _wording(given):
        raise InputError(
            f"operator {name!r} has a signature already: leave this line out, or pass another one as rules={{{name!r}: rule}}"
        )
    _registered[name] = given


def _rule_of(name: object, rule: Rule | str, batch_only: bool, properties: Mapping[str, Any]) -> Rule:
    """The rule of an operator called `name`; InputError if it can have none of these."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"operator {name!r}: give the name of its primitive, a text")
    if not isinstance(rule, str):
        if not callable(rule):
            raise InputError(
                f'operator {name!r}: {rule!r} is no rule: give a line such as "m k, n k -> m n", or a function'
            )
        if properties or batch_only:
            given = next(iter(properties), "batch_only")
            raise InputError(
                f"operator {name!r}: {given} belongs to a line; a function says it in the Signature it returns"
            )
        return rule
    read(rule)
    unknown = [one for one in properties if one not in _PROPERTIES]
    if unknown:
        raise InputError(f"operator {name!r}: unknown property {unknown[0]!r}; known: {', '.join(_PROPERTIES)}")
    return LineRule(rule, properties, quirks=UNDISTRIBUTED if batch_only else NO_QUIRKS)


_READ_OFF = ("inputs", "outputs", "sizes", "fixed", "is_distributed", "is_view")
_PROPERTIES = tuple(field.name for field in fields(Signature) if field.name not in _READ_OFF)
"""What a line cannot say of an operator."""


def is_known(name: str) -> bool:
    """Whether the operator with primitive name `name` has a rule in this process."""
    return name in rules() or name in _registered


def signature(op: OpView, extra: Mapping[str, Rule] | None = None) -> Signature:
    """The signature of `op`; rules in `extra` come first.

    Errors: UnknownOperatorError naming the operator, its shapes and what to do.
    """
    if op.body is not None:
        return fixed.fixed(op, lambda inner: signature(inner, extra))
    rule = (extra or {}).get(op.type) or _registered.get(op.type) or rules().get(op.type)
    if rule is None:
        raise UnknownOperatorError(unknown((op,)))
    if empty := _empty(op):
        raise InputError(
            f"operator {op.type} ({op.name}) has a tensor without elements, {empty}: nothing of it can be cut"
        )
    try:
        return rule(op)
    except _NO_SUCH_OPERATOR as error:
        shapes = ", ".join(map(str, op.inputs)), ", ".join(map(str, op.outputs))
        raise InputError(
            f"operator {op.type} ({op.name}) cannot be {shapes[0] or 'nothing'} -> {shapes[1] or 'nothing'} with its attributes"
            f" ({type(error).__name__}: {error}): capture the network again, or mend the line if it was registered"
        ) from error


def _empty(op: OpView) -> TensorType | None:
    """A tensor of `op` without elements, but for pieces of a split beside others that have some."""
    pieces = () if any(0 not in t.shape for t in op.outputs) else op.outputs
    return next((t for t in (*op.inputs, *pieces) if 0 in t.shape), None)


def signatures(graph: Graph, extra: Mapping[str, Rule] | None = None) -> Mapping[str, tuple[OpView, Signature]]:
    """View and signature of every operator of `graph`, by name; equal operators without a body, and no others, share theirs.

    Errors: UnknownOperatorError for an operator without a rule.
    """
    own = {**_registered, **(extra or {})}
    if graph.derived.get("rules") != own:
        graph.derived["signatures"] = _signatures(graph, extra)
        graph.derived["rules"] = own
    known: Mapping[str, tuple[OpView, Signature]] = graph.derived["signatures"]
    return known


def _signatures(graph: Graph, extra: Mapping[str, Rule] | None) -> dict[str, tuple[OpView, Signature]]:
    found: dict[str, tuple[OpView, Signature]] = {}
    known: dict[tuple, Signature] = {}
    for op in graph.ops:
        seen = view(graph, op)
        form: tuple = (op.name,)
        if op.body is None:
            form = (
                seen.type, seen.inputs, seen.outputs, seen.arguments, seen.positions, seen.of_constants, op.attributes,
            )  # fmt: skip
        if form not in known:
            known[form] = signature(seen, extra)
        found[op.name] = seen, known[form]
    return found


_NO_SUCH_OPERATOR = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule runs into where an operator lacks inputs, dims or attributes that every operator of its type has."""


def require_known(graph: Graph, extra: Mapping[str, Rule] | None = None) -> None:
    """UnknownOperatorError, naming all of them, where operators of `graph` have a rule neither here nor in `extra`; InputError
    where an operator reads what the rule of another one does not give.
    """
    strange: dict[str, OpView] = {}
    for op in graph.ops:
        if op.body is not None:
            require_known(op.body, extra)
        elif not (is_known(op.type) or op.type in (extra or {})):
            strange.setdefault(op.type, view(graph, op))
    if strange:
        raise UnknownOperatorError(unknown(tuple(strange.values())))
    for op in graph.ops:
        for source in graph.tensor_inputs(op):
            if isinstance(source, OpOutput) and source.index > 0:
                _require_output(graph, op, source, extra)


def _require_output(graph: Graph, op: Op, source: OpOutput, extra: Mapping[str, Rule] | None) -> None:
    read = graph.op_by_name[source.op]
    number = len(signature(view(graph, read), extra).outputs)
    if source.index >= number:
        raise InputError(
            f"{op.name} reads output {source.index} of {source.op}, and the rule of {read.type} has {number}: capture the network"
            " again, or mend the line if it was registered"
        )
