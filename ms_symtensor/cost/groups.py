"""Collectives of the parallel groups of many configurations: which links they use, and what they take."""

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


def axes_of(c: Configuration, group: str) -> Axes:
    """(ranks, stride) of a group in the order that Megatron, MindFormers and nanotron all use: tensor ranks next to each
    other, then context, then data parallelism (experts inside these two), pipeline stages outermost.
    """
    tp, cp, dp, ep = c.model_parallel, c.context_parallel, c.data_parallel, c.expert_parallel
    if group == "tp":
        return ((tp, 1),)
    if group == "cp":
        return ((cp, tp),)
    if group == "dp":
        return ((cp * dp, tp),)
    if group == "pp":
        return ((min(2, c.pipeline_stages), tp * cp * dp),)
    if ep <= cp * dp and c.framework != "mindspore":
        return ((ep, tp),) if group == "ep" else ((cp * dp // ep, tp * ep),)
    # More experts' ranks than copies of the data: the experts lie on the tensor ranks too.
    return ((ep, 1),) if group == "ep" else ((max(1, tp * cp * dp // ep), ep),)


@dataclass(frozen=True)
class Groups:
    """The groups of `of` on a cluster's levels; rows of equal groups are priced together."""

    of: tuple[Configuration, ...]

    @cached_property
    def _axes(self) -> dict[str, dict[Axes, list[int]]]:
        found: dict[str, dict[Axes, list[int]]] = {}
        for group in ("tp", "cp", "dp", "pp", "ep", "expert_dp"):
            rows = found.setdefault(group, {})
            for row, c in enumerate(self.of):
                rows.setdefault(axes_of(c, group), []).append(row)
        return found

    def seconds(self, cluster: Cluster, kind: Collective, group: str, size_B: Array) -> Array:
        """Seconds of one collective of `size_B` for every configuration; 0 in a group of one rank."""
        result = np.zeros(len(self.of))
        size_B = np.broadcast_to(size_B, result.shape)
        for axes, rows in self._axes[group].items():
            if axes[0][0] > 1:
                time = collective_time_of_sizes(cluster, kind, lattice_sizes(cluster, axes))
                result[rows] = time.array_s(size_B[rows]) + cluster.device.op_overhead_s
        return result

    def happens(self, transfer: Transfer) -> Array:
        """How often `transfer` happens: never in a group of one rank."""
        alone = np.ones(len(self.of))
        for axes, rows in self._axes[transfer.group].items():
            alone[rows] = axes[0][0] == 1
        return np.where(alone > 0, 0.0, np.broadcast_to(np.asarray(transfer.times, dtype=float), alone.shape))

    def crosses_nodes(self, cluster: Cluster, group: str) -> Array:
        """1 where the ranks of `group` use the outermost level of the cluster."""
        found = np.zeros(len(self.of))
        for axes, rows in self._axes[group].items():
            found[rows] = lattice_sizes(cluster, axes)[-1] > 1
        return found

    def transfer_s(self, cluster: Cluster, transfer: Transfer) -> Array:
        """Seconds of `transfer`, as often as it happens."""
        times: Array = np.broadcast_to(np.asarray(transfer.times, dtype=float), (len(self.of),))
        if not times.any():
            return np.zeros(len(self.of))
        return np.where(times > 0, times * self.seconds(cluster, transfer.kind, transfer.group, transfer.size_B), 0.0)
