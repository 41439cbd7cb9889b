"""Seconds and bytes on every member of a family of meshes: arrays whose last axis runs over the members."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.collective_time import collective_time_of_sizes
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.topology import Cluster, lattice_sizes
from ms_symtensor.cost.move import SWAP, VIEWS, local_time, local_time_s, priced_as
from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.search.space.family import Family
from ms_symtensor.tensor.layout import DeviceGroup, Layout

Array = NDArray[np.float64]


Node = tuple[str, DeviceGroup | None]
"""Kind and group of a node."""


class Pricer:
    """Prices on `cluster` for the members of `family`; `cost.move` for arrays."""

    def __init__(self, cluster: Cluster, family: Family) -> None:
        self.cluster, self.family = cluster, family
        self._lines: dict[Node, Array] = {}
        self._lattices: dict[DeviceGroup, _Lattices] = {}

    def slices_B(self, layouts: Sequence[Layout], element_B: float, power: int) -> Array:
        """Bytes of one device's slice of regular layouts: [members, layouts]."""
        whole_B = np.array([math.prod(layout.shape) * element_B for layout in layouts], dtype=float)
        cut = self.degrees(math.prod(layout.cuts) for layout in layouts)
        found: Array = whole_B * self.family.grown(power)[:, None] / cut.T
        return found

    def degree(self, n: int) -> Array:
        """`n` slices of the representative on every member; 1 where they are no product of axes (then nothing is priced)."""
        found = self.family.degree(n)
        return np.ones(self.family.members) if found is None else found

    def degrees(self, ns: Iterable[int]) -> Array:
        """`degree` of each: [numbers, members]."""
        found: Array = np.array([self.degree(n) for n in ns])
        return found

    def coded(self, codes: Iterable[int]) -> Array:
        """What the axes with these codes are on every member, 1 where they are no product of axes: [codes, members]."""
        one = np.ones(self.family.members)
        found: Array = np.array([one if (of := self.family.coded(code)) is None else of for code in codes])
        return found

    def local_s(self, kind: str, traffic_B: Array) -> Array:
        """Seconds of a node that only moves bytes, as `cost.move.local_time_s`."""
        if kind in VIEWS:
            return np.zeros(np.shape(traffic_B))
        found: Array = local_time_s(self.cluster, kind, np.asarray(traffic_B, dtype=float))
        return found

    def node_s(self, kind: str, group: DeviceGroup | None, input_B: Array, output_B: Array) -> Array:
        """Seconds [members] of one node of a move, a partial sum or a gradient's synchronisation, 0 for a group of one rank; inf
        for a group that is not regular. Bytes are [members].
        """
        if group is None or kind not in COLLECTIVES:
            return self.local_s(kind, input_B + output_B)
        found: Array = self.nodes_s([(kind, group)], input_B[None], output_B[None])[0]
        return found

    def nodes_s(self, nodes: Sequence[Node], input_B: Array, output_B: Array) -> Array:
        """`node_s` of many nodes: [nodes, members], like the bytes."""
        local = np.array([kind not in COLLECTIVES for kind, _ in nodes])
        size_B = np.where(local[:, None], input_B + output_B, np.maximum(input_B, output_B))
        for node in dict.fromkeys(nodes):
            if node not in self._lines:
                self._lines[node] = self._lines_of(*node)
        lines = [self._lines[node] for node in nodes]
        width = max(one.shape[-1] for one in lines)
        starts_B, alpha_s, per_B = np.stack([_padded(one, width) for one in lines], axis=1)
        piece = (size_B[..., None] >= starts_B).sum(axis=-1, keepdims=True) - 1
        found: Array = (
            np.take_along_axis(alpha_s, piece, axis=-1)[..., 0]
            + np.take_along_axis(per_B, piece, axis=-1)[..., 0] * size_B
        )
        return found

    def _lines_of(self, kind: str, group: DeviceGroup | None) -> Array:
        """The piecewise linear time of a node [columns, members, pieces]: from so many bytes on, so many seconds, and seconds per
        byte; of the sum of the bytes that go in and out on one device, else of the larger number.
        """
        members = self.family.members
        if group is None or kind not in COLLECTIVES:
            local = ((0.0, 0.0, 0.0),) if kind in VIEWS else local_time(self.cluster, kind == SWAP).pieces
            return np.tile(np.array(local).T[:, None, :], (1, members, 1))
        if group not in self._lattices:
            self._lattices[group] = self._lattices_of(group)
        lattices, which = self._lattices[group]
        if not lattices:
            return np.tile(np.array([0.0, np.inf, 0.0])[:, None, None], (1, members, 1))
        collective, overhead_s = Collective(priced_as(kind)), self.cluster.device.collective_s
        pieces = [
            [(start_B, alpha_s + (overhead_s if ranks > 1 else 0.0), per_B) for start_B, alpha_s, per_B in time.pieces]
            for ranks, sizes in lattices
            for time in (collective_time_of_sizes(self.cluster, collective, sizes),)
        ]
        width = max(map(len, pieces))
        padded = np.array([[*one, *[NOWHERE] * (width - len(one))] for one in pieces])
        return np.moveaxis(padded[which], -1, 0)

    def _lattices_of(self, group: DeviceGroup) -> "_Lattices":
        """What `group` is on the members; none where it is not regular."""
        shape = self.family.shape_of(group)
        if shape is None:
            return (), np.zeros(self.family.members, dtype=np.intp)
        columns = np.array([axis for pair in shape for axis in pair], dtype=int).reshape(-1, self.family.members)
        numbers: dict[tuple[int, ...], int] = {}
        which = [numbers.setdefault(tuple(column), len(numbers)) for column in columns.T.tolist()]
        lattices = [tuple(zip(column[::2], column[1::2], strict=True)) for column in numbers]
        return tuple((math.prod(n for n, _ in axes), lattice_sizes(self.cluster, axes)) for axes in lattices), np.array(
            which
        )


_Lattices = tuple[tuple[tuple[int, tuple[int, ...]], ...], NDArray[np.intp]]
"""The different ranks and sizes per level (`group_sizes`) of a group on a family's members, and which each member has."""

NOWHERE = (np.inf, 0.0, 0.0)
"""A piece that no message is large enough for."""


def _padded(lines: Array, width: int) -> Array:
    """`lines` with pieces up to so many."""
    missing = width - lines.shape[-1]
    if not missing:
        return lines
    nowhere = np.tile(np.array(NOWHERE)[:, None, None], (1, lines.shape[1], missing))
    return np.concatenate([lines, nowhere], axis=-1)
