"""What the operators of a graph mean: their signatures, and how MindSpore cuts those that were given no strategy."""

import math
from collections.abc import Mapping

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.instead import INSTEAD
from ms_symtensor.ops.placement import OpStrategy, strategy_of
from ms_symtensor.ops.registry import Rule, signatures
from ms_symtensor.ops.signature import OpView, Signature, view
from ms_symtensor.program.gradients import read_outside
from ms_symtensor.tensor.graph import Graph, Op

Meanings = Mapping[str, tuple[OpView, Signature]]
"""View and signature of every operator of a graph, by name."""

_CLASSES = {
    "Where": "ops.Select",
    "IndexAddExt": "ops.auto_generate.IndexAddExt",
    "FlashAttentionScore": "ops.operations.nn_ops.FlashAttentionScore",
}
"""Classes of operators that mindspore.ops (2.10.0) has elsewhere, or under another name."""

_ALL_OR_NONE = frozenset({"OneHot", "OneHotExt"})
"""Operators that MindSpore cuts by all devices, which have to divide the indices too, or leaves whole."""

_LOOKED_UP = frozenset({"GatherD"})
"""Operators that MindSpore leaves whole where it would cut the dim that they look up."""


def meanings(graph: Graph, rules: Mapping[str, Rule] | None = None) -> Meanings:
    """What the operators of `graph` mean.

    Equal ones, and no others, share their signature, but for those with a body and those in cells with their own backward pass
    (`bprop`), which have one each. UnknownOperatorError for one without.
    """
    return {
        op.name: (seen, sig if op.body is not None else read_outside(graph, op, sig))
        for op, (seen, sig) in zip(graph.ops, signatures(graph, rules).values(), strict=True)
    }


def cut_by_default(graph: Graph) -> frozenset[str]:
    """The operators to which no plan gives a strategy: functional ones, and those that share a primitive with operators on
    tensors of other numbers of dims, so that no strategy is right for all.
    """
    found, users = set(), dict[tuple[str, ...], list[Op]]()
    for op in graph.ops:
        if op.is_on_the_fly:
            found.add(op.name)
        elif op.body is None:
            users.setdefault((*op.cell, op.primitive), []).append(op)
    for ops in users.values():
        if len(ops) > 1 and len({tuple(len(kind.shape) for kind in view(graph, op).inputs) for op in ops}) > 1:
            found.update(op.name for op in ops)
    return frozenset(found)


def default_strategy(seen: OpView, sig: Signature, device_num: int) -> OpStrategy:
    """What MindSpore does with an operator that was given no strategy: its leading dim is cut by all devices, or by as many as
    divide it, and nothing where it cannot be.

    Errors: InvalidStrategyError where MindSpore rejects the operator without a strategy.
    """
    if sig.needs_strategy is not None and sig.needs_strategy(device_num):
        if seen.type == "Embedding" and seen.inputs[0].dtype == "int64":
            raise InvalidStrategyError(
                f"{seen.name} (Embedding) has no primitive of its own, so that MindSpore cuts its table by rows, which it rejects"
                f" for 64-bit indices: make them int32, or {remedy(seen.type)}"
            )
        if seen.type == "Embedding":
            raise InvalidStrategyError(
                f"{seen.name} (Embedding) has no primitive of its own, so that MindSpore cuts its table as it likes, which it"
                f" rejects for some batches and computes to another result or gradient for others: {remedy(seen.type)}"
            )
        raise InvalidStrategyError(
            f"MindSpore rejects {seen.name} ({seen.type}) without a strategy of its own: {remedy(seen.type)}"
        )
    dim = sig.leading or next(iter(sig.inputs[0] if sig.inputs else ()), None)
    cuts = (
        {} if dim is None or dim not in sig.sizes or dim in sig.fixed else {dim: math.gcd(device_num, sig.sizes[dim])}
    )
    if sig.forbids is not None and sig.forbids(cuts, device_num) is not None:
        cuts = {}
    if seen.type in _LOOKED_UP and dim not in sig.outputs[0]:
        cuts = {}
    sizes = (*seen.inputs[0].shape[:1], *(sig.sizes[d] for d in cuts)) if seen.type in _ALL_OR_NONE else ()
    if any(size % device_num for size in sizes):
        cuts = {}
    return OpStrategy(strategy_of(sig, cuts).inputs)


def remedy(op_type: str) -> str:
    """What to do so that an operator can be given a strategy."""
    if op_type == "Embedding":
        return "use nn.Embedding instead, whose Gather can be given one"
    _, written = INSTEAD.get(op_type, ("", f"ops.{op_type}"))
    made = _CLASSES.get(op_type, written)
    return (
        f"make it a primitive of its cell (in __init__: self.{op_type.lower()} = {made}(…)), so that it can be given one, or"
        " use a cell of nn that has it so"
    )
