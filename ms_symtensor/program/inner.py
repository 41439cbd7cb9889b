"""The inside of an operator that the user wrote (`Morph`): its function on slices, written into the program as it is."""

from collections.abc import Sequence

from ms_symtensor.errors import InputError
from ms_symtensor.ops.fixed import COLLECTIVES, is_inlined
from ms_symtensor.ops.signature import Signature
from ms_symtensor.program.builder import Builder
from ms_symtensor.program.program import Role
from ms_symtensor.tensor.dtype import has_gradients
from ms_symtensor.tensor.extended_layout import group_on
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Source, TupleInput
from ms_symtensor.tensor.layout import DeviceGroup

Local = tuple[int, bool]
"""A local tensor, and whether a gradient flows back through it."""


def inner_name(op: Op, inner: Op) -> str:
    """The name of an operator inside `op`, unique in the program."""
    return f"{op.name}/{inner.name}"


def write_inside(
    builder: Builder, op: Op, signatures: dict[str, Signature], needs_gradient: set[int], given: Sequence[Local],
    device_num: int, recomputation: bool, recomputed_communication: bool,
) -> list[Local]:  # fmt: skip
    """Write the operators inside `op`, whose inputs are `given`, and return its outputs.

    `signatures` gets those of the operators inside, by their names in the program, `needs_gradient` the tensors through which
    a gradient flows back. `recomputation`: the work has a copy in the backward pass, `recomputed_communication`: collectives
    have; a mark of an operator inside (`primitive.recompute(False)`) comes first. Errors: InputError for a group of ranks that
    lie irregularly.
    """
    body = op.body
    sig = signatures[op.name]
    assert body is not None and sig.body is not None
    values: dict[Source, Local] = {InputRef(name): value for (name, _), value in zip(body.inputs, given, strict=True)}

    def value_of(source: Source) -> Local:
        if isinstance(source, Constant):
            assert source.tensor is not None
            return builder.tensor(source.tensor, kept=True), False
        return values[source]

    for inner in body.ops:
        name = inner_name(op, inner)
        inputs = [value_of(s) for s in body.tensor_inputs(inner)]
        mark = inner.attribute("recompute")
        repeats = recomputed_communication if inner.type in COLLECTIVES else recomputation
        repeats = mark if isinstance(mark, bool) else repeats
        if is_inlined(inner):
            needs, inputs = inputs[0][1], inputs[:1]
            kind = COLLECTIVES.get(inner.type, inner.type)
            numbers = builder.node(
                kind, tuple(t for t, _ in inputs), inner.outputs, op=name, role=Role.INNER, block=op.block,
                group=_group(op, inner, device_num) if inner.type in COLLECTIVES else None, attribute=_attribute(inner),
                recomputation=repeats,
            )  # fmt: skip
        else:
            signatures[name] = sig.body[inner.name]
            chosen = signatures[name].differentiable
            needs = any(grad for p, (_, grad) in enumerate(inputs) if chosen is None or p in chosen)
            numbers = builder.node(
                inner.type, tuple(t for t, _ in inputs), inner.outputs, op=name, block=op.block, recomputation=repeats
            )
        for index, (number, kind_of) in enumerate(zip(numbers, inner.outputs, strict=True)):
            grad = needs and has_gradients(kind_of.dtype) and not inner.attribute("stop_gradient", False)
            values[OpOutput(inner.name, index)] = number, grad
            if grad:
                needs_gradient.add(number)
    return [value_of(s) for s in _results(body)]


def _results(body: Graph) -> tuple[Source, ...]:
    return body.output.items if isinstance(body.output, TupleInput) else (body.output,)


def _group(op: Op, inner: Op, device_num: int) -> DeviceGroup:
    ranks = inner.attribute("ranks")
    if not isinstance(ranks, tuple):
        raise InputError(
            f"{op.name}: the ranks of the collective {inner.name} are not known: capture the network again"
        )
    try:
        return group_on([int(r) for r in ranks if isinstance(r, int)], device_num)
    except InputError as error:
        raise InputError(f"{op.name}: the collective {inner.name}: {error}") from error


def _attribute(inner: Op) -> tuple[int, ...]:
    """For AlltoAll: the dim that is split, the one that is joined, and in how many pieces."""
    found = [inner.attribute(name) for name in ("split_dim", "concat_dim", "split_count")]
    return tuple(n for n in found if isinstance(n, int)) if inner.type == "AlltoAll" else ()
