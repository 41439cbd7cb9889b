"""Many meshes of one form at once: what is found on one of them is priced on all.

The layouts of a network depend on the sizes of the mesh's axes only through which axis cuts which dim. So candidates, moves
and groups are found once, on the representative mesh, whose axes have sizes with different products (4 x 2: a dim in 8
slices is cut by both axes, in 4 by the major one). A number of slices, or the size and stride of a group, then stands for a
product of axes, and is read as that product on every member of the family. A family of one mesh is the mesh itself.

Where several samples lie on a position of the major axis, but fewer than the minor axis has devices, these share them: a Reshape
of samples and sequence cuts the minor axis in two, samples and parts of a sequence (`SplitFamily`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.tensor.layout import DeviceGroup, Layout

Array = NDArray[np.float64]

REPRESENTATIVES = {1: (2,), 2: (4, 2), 3: (16, 4, 2)}
"""The mesh on which those with so many axes are looked at."""

SPLIT = (2, 4)
"""The mesh on which those are looked at whose minor axis is split, in 2 x 2."""

Run = tuple[int, int]
"""Size and stride of neighbouring axes of a mesh."""


@dataclass(frozen=True, eq=False)
class Family:
    """Meshes with as many axes as `mesh`, the representative, major to minor.

    `sizes` [axes, members] are the sizes of every member's axes; `growth` [members] how many times larger than the
    representative's its batch is. `sample_slices`: whatever holds samples is cut in so many slices of the representative, or a
    multiple; 1: as any axes may.
    """

    mesh: tuple[int, ...]
    sizes: Array
    growth: Array
    sample_slices: int = 1

    is_strict = False
    """Whether only regular layouts have a meaning."""

    is_free_outside = False
    """Whether `sample_slices` hold for the repeated blocks alone."""

    @property
    def members(self) -> int:
        return self.sizes.shape[1]

    @property
    def device_num(self) -> int:
        """Devices of the representative."""
        return math.prod(self.mesh)

    @cached_property
    def device_nums(self) -> Array:
        """Devices of every member."""
        found: Array = np.prod(self.sizes, axis=0)
        return found

    def degree(self, n: int) -> Array | None:
        """What `n` slices (or ranks) of the representative are on every member; None if they are no product of axes."""
        return self._degrees.get(n)

    def code(self, runs: Iterable[Run]) -> int | None:
        """A number for `runs` of axes, which `coded` knows: the product of theirs; None where one has none."""
        return math.prod(size for size, _ in runs)

    def coded(self, code: int) -> Array | None:
        """What the axes with `code` are on every member; None if they are no product of axes."""
        return self.degree(code)

    def grown(self, power: int) -> Array:
        """growth ** power: how a size that goes with the batch (power 1), or does not (0), differs from the representative's."""
        return self.growth**power

    def is_regular(self, layout: Layout) -> bool:
        """Whether every axis of `layout` is a run of the mesh's axes in their order.

        Such layouts are alike on all members. Where axes are swapped, MindSpore's moves depend on their sizes, and the
        family takes those of its representative.
        """
        matrix = layout.device_matrix
        used = {len(matrix) - 1 - a for a in layout.tensor_map if a >= 0}
        return all(matrix[a] == 1 or (matrix[a], math.prod(matrix[a + 1 :])) in self._runs for a in used)

    def shape_of(self, group: DeviceGroup) -> tuple[tuple[Array, Array], ...] | None:
        """(ranks, stride) of every axis of `group` on every member; None if it is not regular."""
        found = []
        for count, stride in runs_of(group):
            ranks, apart = self.degree(count), self.degree(stride)
            if ranks is None or apart is None:
                return None
            found.append((ranks, apart))
        return tuple(found)

    @cached_property
    def _axes_of(self) -> dict[int, tuple[int, ...]]:
        axes = range(len(self.mesh))
        chosen = [c for k in range(len(self.mesh) + 1) for c in combinations(axes, k)]
        return {math.prod(self.mesh[a] for a in c): c for c in chosen}

    @cached_property
    def _degrees(self) -> dict[int, Array]:
        return {n: np.prod(self.sizes[list(axes)], axis=0) for n, axes in self._axes_of.items()}

    @cached_property
    def _runs(self) -> frozenset[tuple[int, int]]:
        """(size, stride) of every run of neighbouring axes."""
        n = len(self.mesh)
        return frozenset(
            (math.prod(self.mesh[i:j]), math.prod(self.mesh[j:])) for i in range(n) for j in range(i + 1, n + 1)
        )


class Single(Family):
    """The family of one mesh: every number stands for itself, every layout is regular."""

    is_free_outside = True

    def __init__(self, mesh: tuple[int, ...], sample_slices: int = 1) -> None:
        super().__init__(mesh, np.array(mesh, dtype=float)[:, None], np.ones(1), sample_slices)

    def degree(self, n: int) -> Array:
        return np.array([float(n)])

    def is_regular(self, layout: Layout) -> bool:
        return True

    def shape_of(self, group: DeviceGroup) -> tuple[tuple[Array, Array], ...]:
        return tuple((np.array([float(n)]), np.array([float(s)])) for n, s in runs_of(group))


@dataclass(frozen=True, eq=False)
class SplitFamily(Family):
    """Meshes of two axes where `samples` [members] lie on a position of the major one, each on as many devices of the minor one.

    All parts of the representative's axes have two devices: their place tells them apart, so that axes cannot change places.
    What is moved to where the whole minor axis cuts sequences is exact on members whose minor axis has two equal parts too.
    """

    samples: Array = field(kw_only=True)

    is_strict = True

    def code(self, runs: Iterable[Run]) -> int | None:
        found = 1
        for run in runs:
            if (code := _SPLIT_CODES.get(run)) is None:
                return None
            found *= code
        return found

    def coded(self, code: int) -> Array | None:
        return self._coded.get(code)

    def shape_of(self, group: DeviceGroup) -> tuple[tuple[Array, Array], ...] | None:
        found = []
        for count, stride in runs_of(group):
            # Behind a run lie the axes from its stride on.
            code, behind = self.code([(count, stride)]), self.code([(stride, 1)] if stride > 1 else [])
            if code is None or behind is None:
                return None
            found.append((self._coded[code], self._coded[behind]))
        return tuple(found)

    @cached_property
    def _sizes_of(self) -> Mapping[int, Array]:
        """The devices of the parts, by their codes."""
        major, minor = self.sizes
        return dict(zip(_PARTS, (major, self.samples, minor / self.samples), strict=True))

    @cached_property
    def _coded(self) -> Mapping[int, Array]:
        one, sizes = np.ones(self.members), self._sizes_of
        return {code: np.prod([one, *(sizes[n] for n in parts)], axis=0) for code, parts in _PARTS_OF.items()}


_PARTS = (16, 4, 2)
"""Codes of the parts of SPLIT's axes: of the major one, of samples and of parts of a sequence."""

_PARTS_OF = {math.prod(c): c for k in range(len(_PARTS) + 1) for c in combinations(_PARTS, k)}
"""The parts of every code."""


_SPLIT_CODES: Mapping[Run, int] = {(2, 4): 16, (2, 2): 4, (2, 1): 2, (4, 2): 64, (4, 1): 8, (8, 1): 128}
"""Codes of the runs of SPLIT's axes, by those of their parts."""


def runs_of(group: DeviceGroup) -> list[Run]:
    """The axes of `group` that have several devices."""
    matrix = group.device_matrix
    return [(matrix[a], math.prod(matrix[a + 1 :])) for a in group.axes if matrix[a] > 1]


def runs_of_cuts(layout: Layout) -> list[Run]:
    """The axes that cut `layout`."""
    matrix = layout.device_matrix
    used = (len(matrix) - 1 - a for a in layout.tensor_map if a >= 0)
    return [(matrix[a], math.prod(matrix[a + 1 :])) for a in used if matrix[a] > 1]


def family(meshes: Sequence[tuple[int, ...]], growth: Sequence[float]) -> Family:
    """The family of `meshes`, all with as many axes, each with its growth of the batch; the first of three is for samples."""
    mesh = REPRESENTATIVES[len(meshes[0])]
    sizes = np.array(meshes, dtype=float).T
    return Family(mesh, sizes, np.array(growth, dtype=float), mesh[0] if len(mesh) == 3 else 1)


def split_family(meshes: Sequence[tuple[int, ...]], growth: Sequence[float], samples: Sequence[int]) -> SplitFamily:
    """The family of `meshes` of two axes, with so many samples on a position of the major one, which divide the minor one."""
    sizes = np.array(meshes, dtype=float).T
    return SplitFamily(SPLIT, sizes, np.array(growth, dtype=float), samples=np.array(samples, dtype=float))
