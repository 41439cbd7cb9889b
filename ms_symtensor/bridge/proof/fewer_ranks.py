"""A plan for many devices on few: the part of it that the first of them hold, as if there were no others."""

import math
from dataclasses import replace

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy, cuts_of, place, strategy_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import Graph, Op


def on_first_ranks(graph: Graph, stage: StagePlan, ranks: int) -> StagePlan:
    """`stage`, which is for `graph`, for its first `ranks` devices.

    Consecutive devices differ in the minor axes of an operator's device matrix. So the major axes shrink, in every operator by
    the same factor, and what cuts along the minor ones, most often the tensor parallelism, stays as it is.

    InputError if the number of ranks does not divide that of the devices, or an axis would break.
    """
    device_num = stage.settings.device_num
    if ranks < 1 or device_num % ranks:
        raise InputError(
            f"the plan's {device_num} devices cannot be shrunk to {ranks} ranks: give a divisor of {device_num}"
        )
    strategies = {
        name: _on_first(graph, graph.op_by_name[name], strategy, device_num, ranks)
        for name, strategy in stage.strategies.items()
        if name in graph.op_by_name
    }
    size = stage.settings.optimizer_weight_shard_size
    return StagePlan(
        strategies,
        replace(stage.settings, device_num=ranks, optimizer_weight_shard_size=-1 if size == -1 else min(size, ranks)),
    )


def _on_first(graph: Graph, op: Op, strategy: OpStrategy, device_num: int, ranks: int) -> OpStrategy:
    seen = view(graph, op)
    meaning = signature(seen)
    cuts = cuts_of(seen, meaning, strategy, device_num)

    def written(cuts: dict[str, int]) -> OpStrategy:
        full = strategy_of(meaning, cuts, strategy.outputs is not None and meaning.scatter is not None)
        return full if strategy.outputs is not None else OpStrategy(full.inputs)

    if strategy.laid_out is not None or written(cuts) != strategy:
        raise InputError(f"the layout of {op.name} cannot be shrunk: prove it with as many ranks as devices")
    placed = place(seen, meaning, strategy, device_num)
    layouts = (*placed.inputs, *placed.computed)
    axes = {
        dim: len(layout.device_matrix) - 1 - axis
        for dims, layout in zip((*meaning.inputs, *meaning.outputs), layouts, strict=True)
        for dim, axis in zip(dims, layout.tensor_map, strict=True)
        if dim and axis >= 0
    }
    matrix = _shrunk(layouts[0].device_matrix, device_num // ranks, op)
    return written({dim: matrix[axes[dim]] for dim, cut in cuts.items() if cut > 1 and dim in axes})


def _shrunk(matrix: tuple[int, ...], factor: int, op: Op) -> tuple[int, ...]:
    """`matrix` with its major axes divided by `factor` altogether."""
    left = []
    for size in matrix:
        common = math.gcd(size, factor)
        if factor > 1 and common != size and common != factor:
            raise InputError(
                f"the device matrix {list(matrix)} of {op.name} breaks: prove it with as many ranks as devices"
            )
        left.append(size // common)
        factor //= common
    return tuple(left)
