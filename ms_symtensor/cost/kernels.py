"""Kernels of many configurations, stacked once, and their seconds on any cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.cost.operator import roofline
from ms_symtensor.cost.shapes import Array
from ms_symtensor.cost.work import Work


@dataclass(frozen=True)
class Kernels:
    """The entries of `Work` as arrays [works, configurations]; `fused`, `products`: which of the works are such; `in_float32`:
    which of the configurations compute in it.
    """

    points: Array
    depth: Array
    flops: Array
    head_dim: Array
    moved_B: Array
    slowdown: Array
    kernels: Array
    times: Array
    fused: Array
    products: Array
    in_float32: Array

    @property
    def launches(self) -> Array:
        """Launches of all works, one entry per configuration."""
        total: Array = (self.kernels * self.times).sum(axis=0)
        return total

    def seconds(self, cluster: Cluster) -> Array:
        """Seconds of all works, one after the other: one entry per configuration."""
        if not len(self.points):
            return np.zeros(self.points.shape[1])
        device = cluster.device
        slower = np.where(self.in_float32, device.cube_peak_FLOPs / device.cube_fp32_peak_FLOPs, 1.0)
        paid = 2 * (self.points + device.wave_elements) * (self.depth + device.pipeline_depth) * self.slowdown * slower
        seconds = roofline(np.where(self.products[:, None], paid, 0.0), self.moved_B, "", cluster)
        if self.fused.any():
            held_up = np.maximum(1.0, device.attention_head_dim / self.head_dim)
            of_fused: Array = held_up * self.flops * slower
            seconds[self.fused] = roofline(of_fused[self.fused], self.moved_B[self.fused], "", cluster, True)
        seconds = seconds + (self.kernels - 1) * device.op_overhead_s
        total: Array = np.where(self.times > 0, self.times * seconds, 0.0).sum(axis=0)
        return total


def stacked(works: Sequence[Work], of: Sequence[Configuration]) -> Kernels:
    """`works` whose entries are arrays with an entry for each of the configurations `of`, or numbers that hold for all."""
    rows = len(of)

    def stack(values: Iterable[object]) -> Array:
        return np.array([np.broadcast_to(np.asarray(v, dtype=float), (rows,)) for v in values]).reshape(-1, rows)

    points, flops = stack(w.points for w in works), stack(w.flops for w in works)
    return Kernels(
        points,
        stack(w.depth for w in works),
        flops,
        stack(w.head_dim for w in works),
        stack(w.traffic_B for w in works),
        stack(w.slowdown for w in works),
        stack(w.kernels for w in works),
        stack(w.times for w in works),
        fused=(flops > 0).any(axis=1),
        products=(points > 0).any(axis=1),
        in_float32=np.array([c.precision == "float32" for c in of]),
    )
