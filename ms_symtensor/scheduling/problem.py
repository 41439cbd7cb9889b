"""What is to be scheduled: parts of a network on stages, and what their passes take.

A micro-batch passes forward (F) through the parts of its route, then backward: the gradients of activations (B), which the part
before waits for, and those of weights (W), for which nothing waits but the update. Both together, block by block, are one whole
backward pass (BW).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple


class Kind(str, Enum):
    """A pass of a micro-batch."""

    FORWARD = "F"
    BACKWARD = "B"
    WEIGHTS = "W"
    WHOLE = "BW"


class Action(NamedTuple):
    """Stage number `stage` takes a micro-batch through part number `part` of the network."""

    stage: int
    part: int
    micro_batch: int
    kind: Kind


Orders = Sequence[Sequence[Action]]
"""The actions of every stage, one after the other."""


@dataclass(frozen=True)
class Part:
    """Layers that follow each other, on one stage.

    Attributes:
        forward_s, backward_s, weights_s: seconds of F, B and W of a micro-batch, what is sent included.
        kept_B: bytes that a micro-batch keeps from F on, until B or BW has ended.
        deferred_B: bytes that it keeps after B instead, until W has ended.
        splits: whether its backward pass may be split.
    """

    stage: int
    forward_s: float
    backward_s: float
    weights_s: float
    kept_B: float = 1.0
    deferred_B: float = 1.0
    splits: bool = True

    @property
    def each_s(self) -> float:
        """Of one micro-batch."""
        return self.forward_s + self.backward_s + self.weights_s

    @property
    def grows_B(self) -> float:
        """By how much B needs more than was kept."""
        return max(0.0, self.deferred_B - self.kept_B)

    def time_s(self, kind: Kind) -> float:
        """Seconds of a pass."""
        return {
            Kind.FORWARD: self.forward_s,
            Kind.BACKWARD: self.backward_s,
            Kind.WEIGHTS: self.weights_s,
            Kind.WHOLE: self.backward_s + self.weights_s,
        }[kind]


@dataclass(frozen=True)
class Problem:
    """A step of `micro_batch_num` micro-batches.

    Attributes:
        placement: how parts lie on stages ("one part a stage", "loop", "V", "both directions").
        routes: the parts that a micro-batch passes through, in order. Of several routes, equal shares of the micro-batches take
            each, the first ones the first.
        limit_B: bytes of activations that every stage may keep at once.
        start_s, end_s: what every stage does once, before its first and behind its last pass.
    """

    placement: str
    parts: tuple[Part, ...]
    routes: tuple[tuple[int, ...], ...]
    micro_batch_num: int
    limit_B: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]

    @property
    def stage_num(self) -> int:
        return len(self.limit_B)

    def route(self, micro_batch: int) -> tuple[int, ...]:
        """That of a micro-batch."""
        return self.routes[micro_batch * len(self.routes) // self.micro_batch_num]

    @cached_property
    def count_of(self) -> tuple[int, ...]:
        """How many micro-batches pass through every part."""
        found = [0] * len(self.parts)
        for micro_batch in range(self.micro_batch_num):
            for part in self.route(micro_batch):
                found[part] += 1
        return tuple(found)

    @cached_property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds of all passes of every stage."""
        found = [0.0] * self.stage_num
        for part, count in zip(self.parts, self.count_of, strict=True):
            found[part.stage] += count * part.each_s
        return tuple(found)

    def parts_of(self, stage: int) -> tuple[int, ...]:
        """The numbers of the parts on a stage."""
        return tuple(number for number, part in enumerate(self.parts) if part.stage == stage)
