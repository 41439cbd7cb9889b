"""Layouts as MindSpore's `Layout` objects give them: a dim of a tensor may be cut by several axes of the device matrix.

Our `Layout` has one axis per dim, so axes that cut one dim together become one. That needs them to be neighbours, the major
one first: `("cp", "tp")` on a device matrix `("dp", "cp", "tp")`. Axes of size one do not matter.
"""

import math
from collections.abc import Sequence

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.layout import DeviceGroup, Layout

ExtendedMap = tuple[int | tuple[int, ...], ...]
"""MindSpore's tensor map: for every dim the axis that cuts it (0 = the minor one, -1 = whole), or several, major first."""


def extended_layout(device_matrix: tuple[int, ...], tensor_map: ExtendedMap, shape: tuple[int, ...]) -> Layout:
    """The layout of a tensor of `shape` that `tensor_map` describes on `device_matrix`.

    Errors: InputError for axes that do not exist, that cut two dims, that are no neighbours in order, or slices that are
    not equal.
    """
    if len(tensor_map) != len(shape):
        raise InputError(f"a layout of {len(tensor_map)} dims for a tensor of {len(shape)}: give one entry per dim")
    minor = len(device_matrix) - 1
    per_dim = [_axes(entry, device_matrix) for entry in tensor_map]
    used = [axis for axes in per_dim for axis in axes]
    if len(set(used)) != len(used):
        raise InputError(f"the layout {tensor_map} on {device_matrix} uses a device axis for two dims: use each once")
    first = {axes[0]: axes for axes in per_dim if axes}
    inside = {axis for axes in first.values() for axis in range(axes[0] + 1, axes[-1] + 1)}
    joined = [
        math.prod(device_matrix[a : first[a][-1] + 1]) if a in first else device_matrix[a]
        for a in range(minor + 1)
        if a not in inside
    ]
    place = {a: i for i, a in enumerate(a for a in range(minor + 1) if a not in inside)}
    found = Layout(
        tuple(joined),
        tuple(len(joined) - 1 - place[axes[0]] if axes else -1 for axes in per_dim),
        tuple(shape),
        _fine(device_matrix, per_dim, tuple(shape)) if inside else None,
    )
    for dim, (size, cut) in enumerate(zip(shape, found.cuts, strict=True)):
        if size % cut:
            raise InputError(f"dim {dim} of a tensor of shape {list(shape)} does not divide into {cut} slices")
    return found


def _fine(device_matrix: tuple[int, ...], per_dim: Sequence[tuple[int, ...]], shape: tuple[int, ...]) -> Layout:
    """The layout in which a dim that several axes cut (from the left, major first) is as many dims."""
    dims: list[int] = []
    tensor_map: list[int] = []
    for axes, size in zip(per_dim, shape, strict=True):
        outer = [device_matrix[axis] for axis in axes[:-1]]
        dims += [*outer, size // math.prod(outer)]
        tensor_map += [len(device_matrix) - 1 - axis for axis in axes] or [-1]
    return Layout(device_matrix, tuple(tensor_map), tuple(dims))


def cutting_axes(entry: int | tuple[int, ...], device_matrix: tuple[int, ...]) -> tuple[int, ...]:
    """The axes (0 = the minor one) that cut a dim with the map entry `entry`; those of size one do not."""
    given = [a for a in (entry if isinstance(entry, tuple) else (entry,)) if a != -1]
    minor = len(device_matrix) - 1
    if any(not 0 <= a <= minor for a in given):
        raise InputError(f"axis {max(given)} of the layout is none of the device matrix {device_matrix}")
    return tuple(a for a in given if device_matrix[minor - a] > 1)


def _axes(entry: int | tuple[int, ...], device_matrix: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that cut one dim, from the left, major first."""
    minor = len(device_matrix) - 1
    axes = [minor - a for a in cutting_axes(entry, device_matrix)]
    if axes and axes != [a for a in range(axes[0], axes[-1] + 1) if device_matrix[a] > 1]:
        raise InputError(
            f"a dim is cut by the axes {entry} of the device matrix {device_matrix} together, which are no neighbours in"
            " order: reorder the device matrix so that they follow each other, the major one first"
        )
    return tuple(axes)


def group_on(ranks: Sequence[int], device_num: int) -> DeviceGroup:
    """The axes of a device matrix along which exactly `ranks` lie, so that the groups of all other ranks follow.

    InputError where the ranks do not form a regular lattice.
    """
    ordered = sorted(ranks)
    sizes: list[tuple[int, int]] = []  # (stride, extent) of every axis of the group, minor first
    rest = list(ordered)
    while len(rest) > 1:
        stride = rest[1] - rest[0]
        extent = 1
        while extent < len(rest) and rest[extent] - rest[extent - 1] == stride:
            extent += 1
        sizes.append((stride, extent))
        rest = rest[::extent] if len(rest) % extent == 0 else []
    matrix: list[int] = []
    axes: list[int] = []
    covered = 1
    for stride, extent in sizes:  # from the minor axis up
        if stride % covered:
            break
        if stride > covered:
            matrix.insert(0, stride // covered)
            axes = [a + 1 for a in axes]
        matrix.insert(0, extent)
        axes = [0, *(a + 1 for a in axes)]
        covered = stride * extent
    if device_num % covered == 0:
        matrix.insert(0, device_num // covered)
        found = DeviceGroup(tuple(matrix), tuple(a + 1 for a in axes))
        if found.ranks(ordered[0]) == tuple(ordered):
            return found
    raise InputError(f"the ranks {ordered} do not lie regularly on {device_num} devices: use groups along device axes")
