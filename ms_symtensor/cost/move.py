"""What one node costs that carries a tensor from one layout to another."""

from dataclasses import dataclass
from typing import Any

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.tensor.layout import DeviceGroup

SWAP = "MoveTo"
"""MindSpore's primitive that copies between host and device memory."""

VIEWS = frozenset({"Reshape", "ExpandDims", "Squeeze", "StopGradient"})


@dataclass(frozen=True)
class MoveCost:
    """Seconds of communication and of local work (slices, splits, joins) of one direction."""

    communication_s: float
    local_s: float

    @property
    def time_s(self) -> float:
        return self.communication_s + self.local_s


def node_cost(cluster: Cluster, kind: str, group: DeviceGroup | None, input_B: float, output_B: float) -> MoveCost:
    """One node of a redistribution, a partial sum or a gradient's synchronisation."""
    if group is not None and kind in COLLECTIVES:
        seconds = collective_time_s(cluster, priced_as(kind), group.ranks(), max(input_B, output_B))
        return MoveCost(seconds + cluster.device.op_overhead_s, 0.0)
    return MoveCost(0.0, local_time_s(cluster, kind, input_B + output_B))


def priced_as(kind: str) -> str:
    """The kind of collective whose formulas price `kind`: AlltoAllV as if all sent alike."""
    return "AlltoAll" if kind == "AlltoAllV" else kind


def local_time_s(cluster: Cluster, kind: str, traffic_B: Any) -> Any:
    """Seconds of a node that only moves `traffic_B` bytes: through device memory, or between it and the host; views move
    none. A number or an array.
    """
    if kind in VIEWS:
        return 0.0
    device = cluster.device
    if kind == SWAP:
        assert cluster.host is not None, f"{cluster.name} says nothing of its host"
        return traffic_B / cluster.host.bandwidth_Bps + device.op_overhead_s
    return traffic_B / (device.hbm_bandwidth_Bps * device.hbm_efficiency) + device.op_overhead_s
