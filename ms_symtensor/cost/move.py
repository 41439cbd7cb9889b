"""What one node costs that carries a tensor from one layout to another."""

from functools import lru_cache
from typing import Any

import numpy as np

from ms_symtensor.cluster.collective_time import LARGE_B, CollectiveTime, Piece, collective_time_s
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.kernel import compiled, copy_s, pass_s
from ms_symtensor.errors import InputError
from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.tensor.layout import DeviceGroup

SWAP = "MoveTo"
"""MindSpore's primitive that copies between host and device memory."""

VIEWS = frozenset({"Reshape", "ExpandDims", "Squeeze", "StopGradient"})


def node_cost(cluster: Cluster, kind: str, group: DeviceGroup | None, input_B: float, output_B: float) -> float:
    """Seconds of one node of a redistribution, a partial sum or a gradient's synchronisation."""
    if group is not None and kind in COLLECTIVES:
        return message_s(cluster, kind, group.ranks(), max(input_B, output_B))
    return float(local_time_s(cluster, kind, input_B + output_B))


def message_s(cluster: Cluster, kind: str, ranks: tuple[int, ...], size_B: float) -> float:
    """Seconds of a collective, or a Send, of `size_B` bytes of the whole tensor over `ranks`, with its fixed cost."""
    return collective_time_s(cluster, priced_as(kind), ranks, size_B) + cluster.device.collective_s


def priced_as(kind: str) -> str:
    """The kind of collective whose formulas price `kind`: AlltoAllV as if all sent alike."""
    return "AlltoAll" if kind == "AlltoAllV" else kind


def local_time_s(cluster: Cluster, kind: str, traffic_B: Any) -> Any:
    """Seconds of a node that only moves `traffic_B` bytes: through device memory, or between it and the host; views move
    none. A number or an array.
    """
    if kind in VIEWS:
        return 0.0
    time = local_time(cluster, kind == SWAP)
    return time.array_s(traffic_B) if isinstance(traffic_B, np.ndarray) else time.seconds(traffic_B)


def require_host(cluster: Cluster) -> None:
    """InputError unless `cluster` says what optimizer states cost that stay on the host."""
    if cluster.host is None:
        raise InputError(
            f"cluster {cluster.name} says nothing of its host, where optimizer states would stay: give it an entry"
            " host, with bandwidth_Bps and memory_B, as atlas_800t_a2.yaml has it"
        )


@lru_cache
def local_time(cluster: Cluster, between_host: bool = False) -> CollectiveTime:
    """The formula of such a node (`cost.kernel`) as a function of its bytes: lines up to what fits into the L2 cache, and on."""
    if between_host:
        require_host(cluster)
    seconds = compiled(copy_s if between_host else pass_s, cluster, "traffic_B")
    edge_B = 0.0 if between_host or cluster.device.l2_speedup == 1 else cluster.device.l2_B
    start_s, edge_s, end_s = (float(seconds(traffic_B=size_B)) for size_B in (0.0, edge_B, LARGE_B))
    above = Piece(float(np.nextafter(edge_B, np.inf)), start_s, (end_s - start_s) / LARGE_B)
    if not edge_B:
        return CollectiveTime((above._replace(from_B=0.0),))
    return CollectiveTime((Piece(0.0, start_s, (edge_s - start_s) / edge_B), above))
