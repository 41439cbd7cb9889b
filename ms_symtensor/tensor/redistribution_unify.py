"""Two layouts brought onto one device matrix and one tensor shape, as MindSpore does before it compares them.

A device axis of 4 that meets axes 2 x 2 becomes 2 x 2, and the tensor dim it cuts becomes two dims, so that afterwards
every device axis cuts a dim of its own and the two tensor maps can be compared entry by entry. The same splitting of
dims absorbs a Reshape. It cannot always be done (device matrices 2 x 3 and 3 x 2): then the result is None, and MindSpore
gathers the whole tensor and cuts it anew.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from ms_symtensor.tensor.layout import Layout

Shape = tuple[int, ...]


def unify(source: Layout, target: Layout) -> tuple[Layout, Layout] | None:
    """Both (squeezed) layouts on a common device matrix and tensor shape, or None where there is none."""
    matrix = _common_refinement(source.device_matrix, target.device_matrix)
    if matrix is None:
        return None
    first, second = _on_matrix(source, matrix), _on_matrix(target, matrix)
    if first is None or second is None or _expand_shape(first.shape, second.shape) is None:
        return None
    while first.shape != second.shape:
        # Splitting a cut dim may split its device axis, and with it dims of the other layout: alternate until both agree.
        if (extended := _extend(first, second)) is None:
            return None
        first, second = extended
        if (extended := _extend(second, first)) is None:
            return None
        second, first = extended
    return first, second


def _extend(layout: Layout, other: Layout) -> tuple[Layout, Layout] | None:
    """`layout` with its dims split where dims of `other` end, until no dim of it needs to be; `other` follows on devices."""
    while True:
        shape = _expand_shape(layout.shape, other.shape)
        if shape == layout.shape:
            return layout, other
        if shape is None:
            return None
        split = _on_shape(layout, shape)
        if split is None:
            return None
        followed = _on_matrix(other, split.device_matrix)
        if followed is None:
            return None
        layout, other = split, followed


def _common_refinement(first: Shape, second: Shape) -> Shape | None:
    """The coarsest matrix that both refine into, e.g. (8, 4) and (2, 16) -> (2, 4, 4); None for (2, 3) and (3, 2)."""
    if first == second:
        return first
    return _quotients(sorted({*accumulate(first, mul), *accumulate(second, mul)}))


def _expand_shape(shape: Shape, other: Shape) -> Shape | None:
    """`shape` split where dims of `other` end, counted from the right: (2, 8, 32) by (16, 4, 8) -> (2, 8, 4, 8)."""
    if shape == other:
        return shape
    quotients = _quotients(sorted({*accumulate(reversed(shape), mul), *accumulate(reversed(other), mul)}))
    return None if quotients is None else quotients[::-1]


def _quotients(products: Sequence[int]) -> Shape | None:
    """The factors that accumulate to `products`, None if one does not divide the next."""
    previous, factors = 1, []
    for product in products:
        factor, rest = divmod(product, previous)
        if rest:
            return None
        factors.append(factor)
        previous = product
    return tuple(factors)


def _groups(sizes: Shape, refined: Shape) -> list[Shape] | None:
    """`refined` cut into consecutive runs whose products are `sizes`; None if it does not refine them."""
    runs, place = [], 0
    for size in sizes:
        start, product = place, 1
        while place < len(refined) and product < size:
            product *= refined[place]
            place += 1
        if product != size:
            return None
        runs.append(refined[start:place])
    return runs if place == len(refined) else None


def _on_matrix(layout: Layout, matrix: Shape) -> Layout | None:
    """`layout` on the finer device `matrix`: a dim cut by an axis that is split becomes as many dims."""
    if matrix == layout.device_matrix:
        return layout
    runs = _groups(layout.device_matrix, matrix)
    if runs is None:
        return None
    minor = [sum(len(run) for run in runs[i + 1 :]) for i in range(len(runs))]
    tensor_map, shape = [], []
    for axis, size in zip(layout.tensor_map, layout.shape, strict=True):
        if axis < 0:
            tensor_map.append(-1)
            shape.append(size)
            continue
        run, lowest = runs[-1 - axis], minor[len(runs) - 1 - axis]
        tensor_map += range(lowest + len(run) - 1, lowest - 1, -1)
        shape += [*run[:-1], size // math.prod(run[:-1])]
    return Layout(matrix, tuple(tensor_map), tuple(shape))


def _on_shape(layout: Layout, shape: Shape) -> Layout | None:
    """`layout` with its dims split into `shape`; device axes are split with the dims they cut."""
    runs = _groups(layout.shape, shape)
    if runs is None:
        return None
    matrix: list[int] = []
    for axis in range(len(layout.device_matrix) - 1, -1, -1):
        size = layout.device_matrix[-1 - axis]
        run = runs[layout.tensor_map.index(axis)] if axis in layout.tensor_map else ()
        matrix += _front(run, size) or (size,)
    refined = _on_matrix(layout, tuple(matrix))
    if refined is None:
        return None
    runs = _groups(refined.shape, shape)
    if runs is None:
        return None
    # Of the dims that one becomes, only the first stays cut.
    tensor_map = [
        entry for axis, run in zip(refined.tensor_map, runs, strict=True) for entry in (axis, *[-1] * (len(run) - 1))
    ]
    split = Layout(refined.device_matrix, tuple(tensor_map), shape)
    if any(size % cut for size, cut in zip(shape, split.cuts, strict=True)):
        return None
    return split


def _front(run: Shape, size: int) -> Shape:
    """The leading part of `run` with product `size`, its last entry made smaller to fit; empty if `run` is too small."""
    if size > math.prod(run):
        return ()
    front: list[int] = []
    product = 1
    for entry in run:
        if product >= size:
            break
        product *= entry
        front.append(entry if product <= size else size * entry // product)
    return tuple(front)
