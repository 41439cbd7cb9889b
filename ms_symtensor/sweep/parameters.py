"""The numbers of a cluster by their place in its file: read, and changed by a factor."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum

from ms_symtensor.cluster.device import Device
from ms_symtensor.cluster.topology import Cluster, Level
from ms_symtensor.errors import InputError


class Unit(str, Enum):
    """What a number is, for the sum of elasticities: seconds (or seconds a byte), something a second, or neither."""

    TIME = "time"
    RATE = "rate"
    NEITHER = "neither"


@dataclass(frozen=True)
class Parameter:
    """A number of a cluster's file: `device.hbm_bandwidth_Bps`, `levels.roce.latency_s`, `host.bandwidth_Bps`."""

    path: str
    value: float

    @property
    def unit(self) -> Unit:
        if self.path.endswith("_s") or self.path.endswith("_s_per_B"):
            return Unit.TIME
        return Unit.RATE if self.path.endswith(("_FLOPs", "_Bps")) else Unit.NEITHER


_NO_COST = ("name", "l2_B", "hbm_capacity_B", "hbm_usable_B", "communicator_B", "power_W", "cost_per_hour")
"""Of a device: what no time hangs on, or only as a threshold, on which a step hangs by jumps."""
_OF_LEVELS = ("bandwidth_Bps", "efficiency", "latency_s")


def parameters(cluster: Cluster) -> Iterator[Parameter]:
    """All numbers of `cluster` that times hang on and that are not 0."""
    for field in fields(Device):
        value = getattr(cluster.device, field.name)
        if field.name not in _NO_COST and value:
            yield Parameter(f"device.{field.name}", value)
    if cluster.host is not None:
        yield Parameter("host.bandwidth_Bps", cluster.host.bandwidth_Bps)
    for level in cluster.levels:
        for name in _OF_LEVELS:
            if value := getattr(level, name):
                yield Parameter(f"levels.{level.name}.{name}", value)


def changed(cluster: Cluster, path: str, factor: float) -> Cluster:
    """`cluster` with the number at `path` times `factor`.

    Raises:
        InputError: for a path that names no number of it.
    """
    kind, *rest = path.split(".")
    if kind == "device" and len(rest) == 1 and _is_number(cluster.device, rest[0]):
        value = getattr(cluster.device, rest[0]) * factor
        return replace(cluster, device=replace(cluster.device, **{rest[0]: value}))
    if kind == "host" and rest == ["bandwidth_Bps"] and cluster.host is not None:
        return replace(cluster, host=replace(cluster.host, bandwidth_Bps=cluster.host.bandwidth_Bps * factor))
    if kind == "levels" and len(rest) == 2 and rest[1] in _OF_LEVELS and _has_level(cluster, rest[0]):
        return replace(cluster, levels=tuple(_level(level, rest[0], rest[1], factor) for level in cluster.levels))
    names = ", ".join(level.name for level in cluster.levels)
    raise InputError(
        f"{path} is no number of {cluster.name}: give device.NAME, host.bandwidth_Bps, or levels.LEVEL.NAME with a level of"
        f" {names} and {', '.join(_OF_LEVELS)}"
    )


def value_at(cluster: Cluster, path: str) -> float:
    """The number at a path that `changed` takes."""
    kind, *rest = path.split(".")
    of = (
        next(level for level in cluster.levels if level.name == rest[0]) if kind == "levels" else getattr(cluster, kind)
    )
    return float(getattr(of, rest[-1]))


def _is_number(device: Device, name: str) -> bool:
    return name != "name" and name in {field.name for field in fields(Device)} and getattr(device, name) is not None


def _has_level(cluster: Cluster, name: str) -> bool:
    return any(level.name == name for level in cluster.levels)


def _level(level: Level, name: str, field: str, factor: float) -> Level:
    return level if level.name != name else replace(level, **{field: getattr(level, field) * factor})
