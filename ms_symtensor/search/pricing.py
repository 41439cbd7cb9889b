"""Seconds and bytes on every member of a family of meshes: arrays whose last axis runs over the members."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.collective_time import collective_time_of_sizes
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.topology import Cluster, lattice_sizes
from ms_symtensor.cost.move import VIEWS, priced_as
from ms_symtensor.search.family import Family
from ms_symtensor.tensor.layout import DeviceGroup, Layout

Array = NDArray[np.float64]

COMMUNICATING = frozenset({"AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "AlltoAllV"})


class Pricer:
    """Prices on `cluster` for the members of `family`; `cost.move` for arrays."""

    def __init__(self, cluster: Cluster, family: Family) -> None:
        self.cluster, self.family = cluster, family
        device = cluster.device
        self._per_B = 1.0 / (device.hbm_bandwidth_Bps * device.hbm_efficiency)
        self._lines: dict[tuple[str, DeviceGroup], _Lines | None] = {}

    def slice_B(self, layout: Layout, element_B: float, power: int) -> Array:
        """Bytes of one device's slice [members] of a regular layout."""
        found: Array = (
            math.prod(layout.shape) * element_B * self.family.grown(power) / self.degree(math.prod(layout.cuts))
        )
        return found

    def degree(self, n: int) -> Array:
        """`n` slices of the representative on every member; 1 where they are no product of axes (then nothing is priced)."""
        found = self.family.degree(n)
        return np.ones(self.family.members) if found is None else found

    def local_s(self, kind: str, traffic_B: Array) -> Array:
        """Seconds of a node that only moves bytes through device memory."""
        if kind in VIEWS:
            return np.zeros(np.shape(traffic_B))
        found: Array = traffic_B * self._per_B + self.cluster.device.op_overhead_s
        return found

    def node_s(self, kind: str, group: DeviceGroup | None, input_B: Array, output_B: Array) -> Array:
        """Seconds of one node of a move, a partial sum or a gradient's synchronisation, 0 for a group of one rank; inf for a
        group that is not regular.
        """
        if group is None or kind not in COMMUNICATING:
            return self.local_s(kind, input_B + output_B)
        key = (kind, group)
        if key not in self._lines:
            self._lines[key] = self._lines_of(kind, group)
        lines = self._lines[key]
        size = np.maximum(input_B, output_B)
        return np.full(np.shape(size), np.inf) if lines is None else lines.seconds(size)

    def _lines_of(self, kind: str, group: DeviceGroup) -> "_Lines | None":
        shape = self.family.shape_of(group)
        if shape is None:
            return None
        collective = Collective(priced_as(kind))
        columns = np.array([axis for pair in shape for axis in pair], dtype=int).reshape(-1, self.family.members)
        found = []
        for member in columns.T.tolist():
            axes = tuple(zip(member[::2], member[1::2], strict=True))
            found.append(collective_time_of_sizes(self.cluster, collective, lattice_sizes(self.cluster, axes)).pieces)
        overhead = np.where(columns[::2].prod(axis=0) > 1, self.cluster.device.op_overhead_s, 0.0)
        return _Lines(found, overhead)


class _Lines:
    """Piecewise linear times, one per member."""

    def __init__(self, pieces: Sequence[Sequence[tuple[float, float, float]]], overhead_s: Array) -> None:
        width = max(len(p) for p in pieces)
        padded = np.array([[*p, *[(np.inf, 0.0, 0.0)] * (width - len(p))] for p in pieces])
        self._starts, self._beta = padded[..., 0], padded[..., 2]
        self._alpha = padded[..., 1] + overhead_s[:, None]

    def seconds(self, size_B: Array) -> Array:
        """`size_B` [..., members]."""
        one = self._starts.shape[1] == 1
        which = np.zeros((), np.intp) if one else (size_B[..., None] >= self._starts).sum(axis=-1) - 1
        rows = np.arange(len(self._starts))
        found: Array = self._alpha[rows, which] + self._beta[rows, which] * size_B
        return found
