"""A quick estimate of step time and memory for tests of the machinery around a predictor: work over peak, and overheads."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster, Source
from ms_symtensor.validation.configuration import Configuration, Transformer
from ms_symtensor.validation.constants import with_constants
from ms_symtensor.validation.dataset import Case, Measurement
from ms_symtensor.validation.pricing import Predicted

RANGES = {
    "device.cube_efficiency": (0.85, 0.75, 0.9),
    "device.pipeline_depth": (128.0, 32.0, 512.0),
    "device.op_overhead_s": (3e-6, 1e-6, 1e-5),
    "levels[0].efficiency": (0.78, 0.7, 0.85),
    "levels[1].efficiency": (0.8, 0.5, 0.95),
}


def _cluster() -> Cluster:
    """The A100 cluster with numbers and ranges of its own, so that no test hangs on those of the file."""
    sources = tuple((place, Source("test", low, high)) for place, (_, low, high) in RANGES.items())
    exact = (("device.cube_peak_FLOPs", Source("test")), ("levels[0].latency_s", Source("test")))
    values = {place: value for place, (value, _, _) in RANGES.items()}
    return with_constants(replace(load("a100_80g"), sources=sources + exact), values)


CLUSTER = _cluster()
MODEL = Transformer(4096, 8, 32, 32, 16384, 32000)


def estimate(c: Configuration, cluster: Cluster) -> Predicted:
    device = cluster.device
    weights = 12.0 * c.model.hidden_size**2 * c.model.num_layers
    work_s = 6.0 * weights * c.tokens / c.device_num / device.cube_peak_FLOPs
    launches = 100.0 * c.micro_batch_num * c.model.num_layers
    moved_B = 1e6 * c.micro_batch_num * (c.model_parallel - 1)
    step_s = work_s / device.cube_efficiency + launches * device.op_overhead_s
    step_s += moved_B / cluster.levels[0].effective_bandwidth_Bps
    memory_B = 18.0 * weights / c.model_parallel / c.pipeline_stages
    stages_B = memory_B, memory_B / 2
    first_B = 0.75 * memory_B, 0.75 * memory_B / 2
    return Predicted(step_s, stages_B, first_B, memory_B <= device.hbm_usable_B, work_s / step_s)


def times(found: Sequence[Configuration], cluster: Cluster) -> np.ndarray:
    """Seconds of a step of each configuration, by the estimate."""
    return np.array([estimate(one, cluster).step_time_s for one in found])


def configurations(count: int = 24) -> list[Configuration]:
    """Different ones on 8 devices."""
    found = []
    for tensor in (1, 2, 4, 8):
        for size in (1, 2, 4):
            for layers in (8, 16):
                model = replace(MODEL, num_layers=layers)
                spread = Configuration(
                    model, 1024, 8 // tensor, tensor, micro_batch_size=size, micro_batch_num=32 * tensor // size
                )
                found.append(spread)
    return found[:count]


def cases(cluster: Cluster, groups: int = 4, factor: float = 1.0) -> list[Case]:
    """Measured by the estimate itself, on a cluster whose numbers may differ from the one that is asked about."""
    every = configurations()
    measured_s = factor * times(every, cluster)
    return [
        Case(line + 2, f"group {line % groups}", spread, Measurement(step_time_s=float(time), fits=True))
        for line, (spread, time) in enumerate(zip(every, measured_s))
    ]
