"""Seconds that the places of a network take for one micro-batch, forward, backward and again.

The device works kernel after kernel; an eager host launches them and the collectives, and runs ahead of the device where it
can, so that the slower of the two decides:

    T = max(T_device, T_host),   T_device = Σ kernels + Σ collectives,   T_host = launches · t_host + Σ delays

where a collective of p tensor ranks is delayed by p · rank_skew_s if the pipeline crosses nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.configuration import Part
from ms_symtensor.cost.groups import Groups
from ms_symtensor.cost.operator import roofline
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.work import Place, Transfer, Work


@dataclass(frozen=True)
class Seconds:
    """One pass: all of it, and the collectives in it; arrays with one entry per configuration."""

    time_s: Array
    communication_s: Array


@dataclass(frozen=True)
class PlaceSeconds:
    """Of one place: forward, backward, and forward again for each part that may be recomputed alone."""

    forward: Seconds
    backward: Seconds
    parts: dict[Part, Array]


def place_seconds(place: Place, shapes: Shapes, groups: Groups, cluster: Cluster) -> PlaceSeconds:
    """What `place` takes on `cluster`."""
    rows = len(shapes.of)
    return PlaceSeconds(
        _pass(place.forward, place.sent, shapes, groups, cluster),
        _pass(place.backward, place.sent_back, shapes, groups, cluster),
        {part: _device_s(place.of_part(part), rows, cluster) for part in Part},
    )


def _pass(
    works: Sequence[Work], transfers: Iterable[Transfer], shapes: Shapes, groups: Groups, cluster: Cluster
) -> Seconds:
    rows = len(shapes.of)
    transfers = tuple(transfers)
    sent = sum((groups.transfer_s(cluster, t) for t in transfers), np.zeros(rows))
    device = _device_s(works, rows, cluster) + sent
    launches = sum((w.kernels * w.times * np.ones(rows) for w in works), np.zeros(rows))
    launches = launches + sum((groups.happens(t) for t in transfers), np.zeros(rows))
    host = launches * cluster.device.host_overhead_s
    if cluster.device.rank_skew_s:
        waits = sum((groups.happens(t) for t in transfers if t.group == "tp"), np.zeros(rows))
        host = host + groups.crosses_nodes(cluster, "pp") * waits * shapes.tp * cluster.device.rank_skew_s
    host = shapes.eager * host
    return Seconds(np.maximum(device, host), sent)


def _device_s(works: Sequence[Work], rows: int, cluster: Cluster) -> Array:
    """Seconds of kernels, one after the other."""
    if not works:
        return np.zeros(rows)
    device = cluster.device

    def stacked(values: Iterable[object]) -> Array:
        return np.stack([np.broadcast_to(np.asarray(v, dtype=float), (rows,)) for v in values])

    points, depth = stacked(w.points for w in works), stacked(w.depth for w in works)
    moved, times = stacked(w.traffic_B for w in works), stacked(w.times for w in works)
    kernels = stacked(w.kernels for w in works)
    fused = np.array([np.any(np.asarray(w.flops) > 0) for w in works])
    products = np.array([np.any(np.asarray(w.points) > 0) for w in works])[:, None]
    paid = np.where(products, 2 * (points + device.wave_elements) * (depth + device.pipeline_depth), 0.0)
    seconds = roofline(paid, moved, "", cluster)
    if fused.any():
        flops = stacked(w.flops for w in works)
        seconds[fused] = roofline(flops[fused], moved[fused], "", cluster, True)
    seconds = seconds + (kernels - 1) * device.op_overhead_s
    total: Array = np.sum(np.where(times > 0, times * seconds, 0.0), axis=0)
    return total
