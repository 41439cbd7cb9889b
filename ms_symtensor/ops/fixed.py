"""Operators that the user wrote and laid out: `Morph`, whose function works on slices, with collectives of its own.

A planner has no choice: layouts are given, and what happens inside is read from the captured body.
"""

from collections.abc import Callable
from dataclasses import replace

from ms_symtensor.errors import InputError, InvalidStrategyError, UnknownOperatorError
from ms_symtensor.ops.signature import FixedLayouts, OpView, Signature, named, view
from ms_symtensor.tensor.extended_layout import extended_layout
from ms_symtensor.tensor.graph import InputRef, Op, OpOutput, TensorType
from ms_symtensor.tensor.layout import Layout

COLLECTIVES = {
    "AllReduce": "AllReduce",
    "AllGather": "AllGather",
    "ReduceScatter": "ReduceScatter",
    "AlltoAll": "AlltoAll",
    "AllToAll": "AlltoAll",
    "AlltoAllV": "AlltoAllV",
    "AllToAllv": "AlltoAllV",
    "AlltoAllVC": "AlltoAllV",
}
"""Collectives that a network may contain, by primitive name, and their kind."""


def fixed(op: OpView, signature: Callable[[OpView], Signature]) -> Signature:
    """The signature of an operator with a body; `signature` gives those of the operators in it.

    Errors: InputError where its layouts do not fit its tensors.
    """
    assert op.body is not None
    body = {inner.name: _inside(view(op.body, inner), signature) for inner in op.body.ops if not is_inlined(inner)}
    whole = named(op, [(None,) * len(t.shape) for t in op.inputs], [(None,) * len(t.shape) for t in op.outputs])
    layouts = FixedLayouts(_layouts(op, "in_layout", op.inputs), _layouts(op, "out_layout", op.outputs))
    return Signature(
        whole.inputs, whole.outputs, {}, (), keeps_inputs=_kept_inputs(op, body), layouts=layouts, body=body
    )


def _inside(op: OpView, signature: Callable[[OpView], Signature]) -> Signature:
    """The signature of an operator of a body. Nothing is cut there, so one without a rule is taken at its shapes: its gradient
    reads all of its tensors.
    """
    try:
        return signature(op)
    except UnknownOperatorError:
        whole = named(op, [(None,) * len(t.shape) for t in op.inputs], [(None,) * len(t.shape) for t in op.outputs])
        inputs, outputs = tuple(range(len(op.inputs))), tuple(range(len(op.outputs)))
        return replace(whole, keeps_inputs=inputs, keeps_outputs=outputs)


def is_inlined(op: Op) -> bool:
    """Whether an operator of a body moves data only and needs no signature: a collective, a Reshape."""
    return op.type in COLLECTIVES or op.type == "Reshape"


def collective_outside(op: OpView) -> Signature:
    """A collective written by hand, not in a Morph: InvalidStrategyError, as MindSpore compiles none."""
    raise InvalidStrategyError(
        f"{op.name}: MindSpore's semi-automatic parallelism accepts no collective ({op.type}) in a network: put it into the"
        " function of an ops.Morph, sharded with Layout objects"
    )


def morph_without_body(op: OpView) -> Signature:
    raise InputError(
        f"{op.name}: a Morph must be an attribute of a cell, sharded with Layout objects for all its tensors"
        ' (add_prim_attr("self_define_shard", True), then shard(in_strategy, out_strategy))'
    )


def _layouts(op: OpView, name: str, tensors: tuple[TensorType, ...]) -> tuple[Layout, ...]:
    given = op.attributes.get(name)
    if not isinstance(given, tuple) or len(given) != len(tensors):
        number = len(given) if isinstance(given, tuple) else 0
        raise InputError(f"{op.name} ({op.type}): {number} layouts in {name} for {len(tensors)} tensors: give one each")
    found = []
    for position, (layout, tensor) in enumerate(zip(given, tensors, strict=True)):
        try:
            matrix, tensor_map = layout  # type: ignore[misc, str-unpack]
            found.append(extended_layout(matrix, tensor_map, tensor.shape))  # type: ignore[arg-type]
        except InputError as error:
            raise InputError(f"{op.name} ({op.type}), {name} {position}: {error}") from error
    return tuple(found)


def _kept_inputs(op: OpView, body: dict[str, Signature]) -> tuple[int, ...]:
    """The inputs that a gradient inside reads, as they are or reshaped."""
    assert op.body is not None
    number = {name: i for i, (name, _) in enumerate(op.body.inputs)}
    origin: dict[str, int] = {}
    kept: set[int] = set()
    for inner in op.body.ops:
        sources = op.body.tensor_inputs(inner)
        roots = [
            number[s.name] if isinstance(s, InputRef) else origin.get(s.op) if isinstance(s, OpOutput) else None
            for s in sources
        ]
        if inner.type == "Reshape" and roots[0] is not None:
            origin[inner.name] = roots[0]
        if inner.name in body:
            kept.update(r for p in body[inner.name].keeps_inputs if (r := roots[p]) is not None)
    return tuple(sorted(kept))


RULES = {**dict.fromkeys(COLLECTIVES, collective_outside), "Morph": morph_without_body}
