"""Which groups of ranks may communicate on Ascend, and which part of a tensor a member takes."""

import math
from functools import lru_cache
from itertools import groupby, pairwise

from ms_symtensor.tensor.layout import DeviceGroup

SERVER_SIZE = 8
"""Ranks that MindSpore counts as one server when it checks a group (its device manager's constant)."""


@lru_cache(maxsize=65536)
def is_feasible(group: DeviceGroup) -> bool:
    """Whether MindSpore agrees to create the group of every rank of `group.device_matrix` for target Ascend.

    Its rule: the group has the same local ranks (rank modulo 8) on every server that it touches, and these are one, all
    eight, two of the same half or four apart, a half, or two pairs four apart. Groups along an axis of a device matrix
    made of powers of two always pass; a group of 3 or 6 ranks within a server never does.
    """
    matrix = group.device_matrix
    offsets = group.ranks()
    # Groups differ by where they begin; only its place within a server matters.
    starts = {0}
    for axis, size in enumerate(matrix):
        if axis not in group.axes:
            stride = math.prod(matrix[axis + 1 :])
            starts = {(s + i * stride) % SERVER_SIZE for s in starts for i in range(min(size, SERVER_SIZE))}
    return all(_is_feasible(tuple(start + offset for offset in offsets)) for start in sorted(starts))


def _is_feasible(ranks: tuple[int, ...]) -> bool:
    servers = [[rank % SERVER_SIZE for rank in members] for _, members in groupby(ranks, lambda r: r // SERVER_SIZE)]
    local = servers[0]
    if any(other != local for other in servers):
        return False
    if len(local) == 2:
        return local[1] - local[0] == 4 or local[0] // 4 == local[1] // 4
    if len(local) == 4:
        return local in ([0, 1, 2, 3], [4, 5, 6, 7]) or (local[3] - local[1]) % 4 == (local[2] - local[0]) % 4 == 0
    return len(local) in (1, SERVER_SIZE)


def simplest(group: DeviceGroup) -> DeviceGroup:
    """The same group on the device matrix with the fewest axes: equal groups of different matrices become equal.

    Neighbouring axes are joined if the group has neither, or has both one after the other.
    """
    if len(group.axes) == 1 and group.size > 1:  # what comes before the axis, the axis, and what comes after it
        (axis,) = group.axes
        sizes = math.prod(group.device_matrix[:axis]), group.size, math.prod(group.device_matrix[axis + 1 :])
        return DeviceGroup(tuple([size for size in sizes if size > 1]), (int(sizes[0] > 1),))
    axes = [axis for axis in group.axes if group.device_matrix[axis] != 1]
    after: dict[int, int] = dict(pairwise(axes))
    runs: list[list[int]] = []
    for axis, size in enumerate(group.device_matrix):
        if size == 1:
            continue
        last = runs[-1][-1] if runs else None
        if last is not None and (after.get(last) == axis if last in axes else axis not in axes):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    number = {run[0]: index for index, run in enumerate(runs)}
    return DeviceGroup(
        tuple(math.prod(group.device_matrix[axis] for axis in run) for run in runs),
        tuple(number[axis] for axis in axes if axis in number),
    )


def position(group: DeviceGroup, rank: int) -> int:
    """Which of the `group.size` parts `rank` takes: its coordinates along `group.axes`, read major to minor."""
    coordinates, rest = [], rank
    for size in reversed(group.device_matrix):
        coordinates.append(rest % size)
        rest //= size
    index = 0
    for axis in group.axes:
        index = index * group.device_matrix[axis] + coordinates[-1 - axis]
    return index
