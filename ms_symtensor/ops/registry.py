"""All signatures, by MindSpore's primitive name: the one place that says which operators are known."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
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
    recurrent,
    reduction,
    routing,
    shape,
)
from ms_symtensor.ops.batch_only import cut_along_batch
from ms_symtensor.ops.signature import OpView, Signature, bind, parse, view
from ms_symtensor.ops.unknown import unknown
from ms_symtensor.tensor.graph import Graph

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


@lru_cache(maxsize=1)
def rules() -> Mapping[str, Rule]:
    """The rules that ship with ms_symtensor."""
    families = (
        attention, contraction, convolution, creation, elementwise, fixed, in_place, indexing, loss, normalization, recurrent,
        reduction, routing, shape,
    )  # fmt: skip
    return merge(*(family.RULES for family in families))


@dataclass(frozen=True)
class Registered:
    """A rule of the user's: a line and its properties, or a function."""

    rule: Rule | str
    batch_only: bool
    properties: Mapping[str, Any]

    @property
    def wording(self) -> tuple:
        """What tells it from another one; functions by their place, which is the same when their file is run again."""
        if isinstance(self.rule, str):
            return self.rule, self.batch_only, self.properties
        return getattr(self.rule, "__module__", ""), getattr(self.rule, "__qualname__", self.rule)

    def __call__(self, op: OpView) -> Signature:
        if not isinstance(self.rule, str):
            return self.rule(op)
        found = bind(self.rule, op.inputs, op.outputs, f"{op.name} ({op.type})", **self.properties)
        return cut_along_batch(op, found) if self.batch_only else found


_registered: dict[str, Registered] = {}


def register(name: str, rule: Rule | str, batch_only: bool = False, **properties: Any) -> None:
    """Make an operator known in this process, e.g. one that you wrote yourself.

    The same rule may be registered again, as a file does that is run twice.

    Args:
        name: The name of its primitive.
        rule: A signature line such as `"b s h, h -> b s h"`, or a function from an `OpView` to a `Signature`.
        batch_only: With a line: MindSpore has no distributed form of the operator (it has none of primitives written in Python),
            ignores strategies and cuts the first dim of the first input by all devices.
        properties: With a line: fields of `Signature`, such as keeps_inputs (the inputs that its gradient reads) and unit.

    Raises:
        InputError: The operator has another rule, or this is no name, no rule, or no property.

    Example:
        >>> ms_symtensor.register("MyNorm", "... d!, d! -> ... d!", keeps_inputs=(0, 1))
    """
    _require_rule(name, rule, batch_only, properties)
    given = Registered(rule, batch_only, properties)
    if name in rules() or _registered.get(name, given).wording != given.wording:
        raise InputError(
            f"operator {name!r} has a signature already: leave this line out, or pass another one as rules={{{name!r}: rule}}"
        )
    _registered[name] = given


def _require_rule(name: object, rule: object, batch_only: bool, properties: Mapping[str, Any]) -> None:
    """InputError unless an operator called `name` can have this rule."""
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
        return
    parse(rule)
    unknown = [one for one in properties if one not in _PROPERTIES]
    if unknown:
        raise InputError(f"operator {name!r}: unknown property {unknown[0]!r}; known: {', '.join(_PROPERTIES)}")


_READ_OFF = ("inputs", "outputs", "sizes", "fixed", "is_distributed")
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
    if empty := next((t for t in (*op.inputs, *op.outputs) if 0 in t.shape), None):
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


_NO_SUCH_OPERATOR = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule runs into where an operator lacks inputs, dims or attributes that every operator of its type has."""


def require_known(graph: Graph, extra: Mapping[str, Rule] | None = None) -> None:
    """UnknownOperatorError, naming all of them, where operators of `graph` have a rule neither here nor in `extra`."""
    strange: dict[str, OpView] = {}
    for op in graph.ops:
        if op.body is not None:
            require_known(op.body, extra)
        elif not (is_known(op.type) or op.type in (extra or {})):
            strange.setdefault(op.type, view(graph, op))
    if strange:
        raise UnknownOperatorError(unknown(tuple(strange.values())))
