"""The constants of a cluster that a calibration may move: those that nobody knows exactly, within what is known of them."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ms_symtensor.cluster.topology import Cluster

# Times of a step depend on these; peaks and capacities are facts of a data sheet and stay.
_OF_DEVICE = (
    "cube_efficiency",
    "step_efficiency",
    "attention_efficiency",
    "wave_elements",
    "pipeline_depth",
    "hbm_efficiency",
    "op_overhead_s",
    "host_overhead_s",
)
_OF_LEVEL = ("efficiency", "latency_s")
_DEVIATIONS_OF_RANGE = 4.0  # a stated range is taken for two standard deviations to either side


@dataclass(frozen=True)
class Constant:
    """`place` is where the cluster file has it; it lies between `low` and `high`, and `deviation` is that of its logarithm."""

    place: str
    value: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        return math.log(self.high / self.low) / _DEVIATIONS_OF_RANGE


def constants_of(cluster: Cluster, of_kernels: bool = False) -> tuple[Constant, ...]:
    """The uncertain constants of `cluster`: those whose source states a range, `low` and `high` above 0. `of_kernels`: those that
    decide kernels by themselves, not what a step keeps of them.
    """
    places = [(f"device.{name}", getattr(cluster.device, name)) for name in _OF_DEVICE]
    places += [
        (f"levels[{index}].{name}", getattr(level, name))
        for index, level in enumerate(cluster.levels)
        for name in _OF_LEVEL
    ]
    sources = dict(cluster.sources)
    found = []
    for place, value in places:
        source = sources.get(place)
        if value > 0 and source is not None and source.low and source.high and source.high > source.low:
            found.append(Constant(place, value, min(source.low, value), max(source.high, value)))
    both = ("device.step_efficiency", "device.cube_efficiency")  # a product of them is all that times tell
    if {constant.place for constant in found}.issuperset(both):
        found = [constant for constant in found if constant.place != both[0 if of_kernels else 1]]
    return tuple(found)


def with_constants(cluster: Cluster, values: Mapping[str, float]) -> Cluster:
    """`cluster` with other numbers at the given places."""
    numbers: dict[str, Any] = {p.split(".")[1]: v for p, v in values.items() if p.startswith("device.")}
    levels = list(cluster.levels)
    for place, value in values.items():
        at = re.fullmatch(r"levels\[(\d+)\]\.(\w+)", place)
        if at:
            change: dict[str, Any] = {at[2]: value}
            levels[int(at[1])] = replace(levels[int(at[1])], **change)
    return replace(cluster, device=replace(cluster.device, **numbers), levels=tuple(levels))
