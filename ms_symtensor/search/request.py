"""What a user asks for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.ops.registry import Rule

PINNED = ("pipeline_stages", "micro_batch_num")
"""What can be pinned."""


@dataclass(frozen=True)
class Limits:
    """What a user pins: least and most of what PINNED names.

    Errors: InputError for another name, or numbers that leave nothing.
    """

    least: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, number in (*self.least.items(), *self.most.items()):
            if name not in PINNED:
                raise InputError(f"{name} cannot be pinned: known are {', '.join(PINNED)}")
            if number < 1:
                raise InputError(f"{name}={number}: give a positive number")
            if self.least.get(name, 1) > self.most.get(name, math.inf):
                raise InputError(f"{name}: at least {self.least[name]} and at most {self.most[name]} leave nothing")

    def allow(self, pipeline_stages: int, micro_batch_num: int) -> bool:
        """Whether a plan with so many stages and micro-batches is wanted."""
        return all(
            self.least.get(name, 1) <= number <= self.most.get(name, math.inf)
            for name, number in zip(PINNED, (pipeline_stages, micro_batch_num), strict=True)
        )

    def __str__(self) -> str:
        parts = [f"{name} >= {n}" for name, n in self.least.items()] + [
            f"{name} <= {n}" for name, n in self.most.items()
        ]
        return ", ".join(parts)


@dataclass(frozen=True)
class Request:
    """A plan for `device_num` devices of `cluster`, a step of `global_batch_size` samples, and `limit_B` of a device's memory."""

    cluster: Cluster
    device_num: int
    global_batch_size: int
    seq_length: int
    limit_B: int
    model: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    rules: Mapping[str, Rule] | None = None
