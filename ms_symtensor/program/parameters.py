"""Where parameters live and how their gradients are reduced, as MindSpore decides it.

Without optimizer sharding, a parameter's gradient is summed by one AllReduce over all ranks that hold the same slice. With
it, the copies share the weight along dim 0: an AllGather before use, a ReduceScatter of the gradient; where only
`optimizer_weight_shard_size` of the copies share, an AllReduce over the others follows.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.graph import Parameter
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution_groups import simplest

KIB = 1024


_NOT_SUMMED = {"Transpose": (0,), "Embedding": (1,), "FlashAttentionScore": (1, 2)}
"""Inputs (by operator type) that MindSpore takes never to be parameters, so that it sums no gradient for them. Found by
compiling every operator with parameters as inputs."""


def is_summed(op_type: str, position: int) -> bool:
    """Whether MindSpore sums the gradient of a parameter that is tensor input `position` of an operator over its copies.

    Where it does not, the gradient stays different on every copy without a word, unless the optimizer shards the parameter
    over all of them (its gather has a gradient that sums).
    """
    return position not in _NOT_SUMMED.get(op_type, ())


def place_parameter(
    parameter: Parameter, layout: Layout, settings: Settings, summed: bool = True, unsummed: bool = False
) -> ParameterPlacement:
    """The placement of `parameter` whose users want it in `layout`.

    `summed` and `unsummed` tell whether it has uses whose gradient MindSpore sums, and others (`is_summed`).
    """
    copies = layout.copies
    summed = summed and parameter.requires_grad
    mirror = copies if copies.size > 1 and summed else None
    plain = ParameterPlacement(layout, parameter.type.dtype, parameter.requires_grad, mirror=mirror, unsummed=unsummed)
    if copies.size == 1 or not may_be_shared(parameter, settings):
        return plain
    wanted = settings.optimizer_weight_shard_size
    shard = copies.size if wanted == -1 else min(wanted, copies.size)
    if copies.size % shard or layout.shape[0] % (layout.cut(0) * shard):
        return plain
    gather, mirror = _shard_groups(copies, shard, settings.device_num)
    return replace(plain, shard=shard, gather=gather, mirror=mirror if summed else None)


def share_over_all(plain: ParameterPlacement) -> ParameterPlacement:
    """`plain`, whose copies all share the parameter along dim 0."""
    copies = plain.layout.copies
    return replace(plain, shard=copies.size, gather=copies, mirror=None)


def may_be_shared(parameter: Parameter, settings: Settings) -> bool:
    """Whether the optimizer shards `parameter` under `settings`, provided that its copies divide it."""
    level = settings.optimizer_level is not OptimizerLevel.NONE and parameter.optimizer_shards
    large = parameter.type.size_B >= settings.parallel_optimizer_threshold_KB * KIB  # the whole one, not its slice
    return level and large and bool(parameter.type.shape)


def _shard_groups(copies: DeviceGroup, shard: int, device_num: int) -> tuple[DeviceGroup, DeviceGroup | None]:
    """The ranks that share one copy (the first `shard` copies, the next, …), and those over which the shares are summed.

    MindSpore forms the second by stride alone: ranks `device_num / repeats` apart, whatever the layout is.
    """
    repeats = copies.size // shard
    if repeats == 1:
        return copies, None
    return _consecutive(copies, shard), DeviceGroup((repeats, device_num // repeats), (0,))


def _consecutive(copies: DeviceGroup, shard: int) -> DeviceGroup:
    """The sub-group of `shard` consecutive copies: the minor axes of the group, the last of them split where need be."""
    matrix, axes, rest = list(copies.device_matrix), [], shard
    for axis in reversed(copies.axes):
        size = matrix[axis]
        if size == 1:
            continue
        part = math.gcd(size, rest)
        if part == 1:
            break
        if part == size:
            axes.append(axis)
        else:
            matrix[axis : axis + 1] = [size // part, part]
            axes = [a + 1 for a in axes] + [axis + 1]
        rest //= part
        if part != size:
            break
    if rest != 1:
        raise InvalidStrategyError(f"optimizer_weight_shard_size {shard} is no run of consecutive copies in {copies}")
    return DeviceGroup(tuple(matrix), tuple(sorted(axes)))


def is_synchronised(placement: ParameterPlacement, rank: int = 0) -> bool:
    """Whether the gradient is summed over exactly the ranks that hold the same slice.

    With a partial optimizer sharding, MindSpore's stride rule for the mirror group can name ranks of other slices. For a
    parameter of another pipeline stage, that stage sums.
    """
    if placement.owner is not None:
        return True
    copies = set(placement.layout.copies.ranks(rank))
    reached = set(placement.mirror.ranks(rank)) if placement.mirror is not None else {rank}
    if placement.unsummed and (placement.gather is None or placement.mirror is not None):
        return copies == {rank}
    if placement.gather is not None:
        reached = {r for g in reached for r in placement.gather.ranks(g)}
    return reached == copies


def _is_plainly_synchronised(placement: ParameterPlacement) -> bool:
    """Whether one collective reaches all copies, whatever the rank: no rank needs looking at, of which there are many."""
    if placement.owner is not None:
        return True
    if placement.unsummed or (placement.gather is not None and placement.mirror is not None):
        return False
    reached = placement.gather or placement.mirror
    copies = placement.layout.copies
    return copies.size == 1 if reached is None else simplest(reached) == simplest(copies)


def require_synchronised(parameters: Mapping[str, ParameterPlacement], device_num: int) -> None:
    """InvalidStrategyError naming the first trainable parameter that would train wrongly without a word from MindSpore."""
    for name, placement in parameters.items():
        if not placement.requires_grad or _is_plainly_synchronised(placement):
            continue
        if not all(is_synchronised(placement, rank) for rank in range(device_num)):
            raise InvalidStrategyError(
                f"parameter {name}: MindSpore would not sum its gradient over exactly the ranks that hold the same slice. "
                + (
                    "It never does for a weight that Transpose, Embedding or an attention's keys and values read: use the weight "
                    "directly (MatMul with transpose_b=True), or let the optimizer shard it over all its copies"
                    if placement.unsummed
                    else "It places the shards of an optimizer_weight_shard_size by rank, whatever the layout: use -1, all copies"
                )
            )
