"""Collectives of the parallel groups of many configurations: which links they use, and what they take."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ms_symtensor.cluster.collective_time import collective_time_of_sizes
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.topology import Cluster, lattice_sizes
from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.cost.shapes import Array
from ms_symtensor.cost.work import Transfer

Axes = tuple[tuple[int, int], ...]
GROUPS = ("tp", "cp", "dp", "pp", "etp", "ep", "expert_dp")


def axes_of(c: Configuration, group: str) -> Axes:
    """(ranks, stride) of a group in the order that Megatron, MindFormers and nanotron all use: tensor ranks next to each
    other, then context, then data parallelism, pipeline stages outermost. Of the ranks of a stage, those that cut an expert
    lie next to each other, then those of other experts.
    """
    tp, cp, dp, ep, etp = (
        c.model_parallel, c.context_parallel, c.data_parallel, c.expert_parallel, c.ranks_of_an_expert
    )  # fmt: skip
    if group == "tp":
        return ((tp, 1),)
    if group == "cp":
        return ((cp, tp),)
    if group == "dp":
        return ((cp * dp, tp),)
    if group == "pp":
        return ((min(2, c.pipeline_stages), tp * cp * dp),)
    if group == "etp":
        return ((etp, 1),)
    return ((ep, etp),) if group == "ep" else ((max(1, tp * cp * dp // (ep * etp)), ep * etp),)


@dataclass(frozen=True)
class Sums:
    """Transfers of one kind and group together: `size_B` and `times` [configurations, transfers], 0 times where alone."""

    kind: Collective
    group: str
    size_B: Array
    times: Array


@dataclass(frozen=True)
class Groups:
    """The groups of `of` on a cluster's levels; rows of equal groups are priced together."""

    of: tuple[Configuration, ...]

    @cached_property
    def _axes(self) -> dict[str, dict[Axes, Array]]:
        found: dict[str, dict[Axes, list[int]]] = {}
        for group in GROUPS:
            rows = found.setdefault(group, {})
            for row, c in enumerate(self.of):
                rows.setdefault(axes_of(c, group), []).append(row)
        return {group: {axes: np.array(rows) for axes, rows in each.items()} for group, each in found.items()}

    @cached_property
    def _sizes(self) -> dict[tuple[tuple[int | None, ...], Axes], tuple[int, ...]]:
        return {}

    def seconds(self, cluster: Cluster, kind: Collective, group: str, size_B: Array) -> Array:
        """Seconds of collectives of `size_B` [configurations, …]; 0 in a group of one rank."""
        result = np.zeros(size_B.shape)
        for axes, rows in self._axes[group].items():
            if axes[0][0] > 1:
                time = collective_time_of_sizes(cluster, kind, self._members(cluster, axes))
                result[rows] = time.array_s(size_B[rows]) + cluster.device.op_overhead_s
        return result

    def together(self, transfers: Sequence[Transfer]) -> tuple[Sums, ...]:
        """`transfers` by kind and group; those that never happen are left out."""
        rows = (len(self.of),)
        found: dict[tuple[Collective, str], list[tuple[Array, Array]]] = {}
        for transfer in transfers:
            alone = np.ones(rows, dtype=bool)
            for axes, members in self._axes[transfer.group].items():
                alone[members] = axes[0][0] == 1
            times = np.where(alone, 0.0, np.broadcast_to(np.asarray(transfer.times, dtype=float), rows))
            if times.any():
                size_B = np.broadcast_to(np.asarray(transfer.size_B, dtype=float), rows)
                found.setdefault((transfer.kind, transfer.group), []).append((size_B, times))
        return tuple(
            Sums(kind, group, *(np.stack(column, axis=1) for column in zip(*each, strict=True)))
            for (kind, group), each in found.items()
        )

    def sum_s(self, cluster: Cluster, sums: Sequence[Sums]) -> Array:
        """Seconds of all of `sums`, as often as they happen."""
        total = np.zeros(len(self.of))
        for each in sums:
            total += (each.times * self.seconds(cluster, each.kind, each.group, each.size_B)).sum(axis=1)
        return total

    def crosses_nodes(self, cluster: Cluster, group: str) -> Array:
        """1 where the ranks of `group` use the outermost level of the cluster."""
        found = np.zeros(len(self.of))
        for axes, rows in self._axes[group].items():
            found[rows] = self._members(cluster, axes)[-1] > 1
        return found

    def _members(self, cluster: Cluster, axes: Axes) -> tuple[int, ...]:
        """Members per level, which depend on the levels' sizes alone, not on the cluster's other numbers."""
        key = (tuple(level.ranks for level in cluster.levels), axes)
        if key not in self._sizes:
            self._sizes[key] = lattice_sizes(cluster, axes)
        return self._sizes[key]
