"""A measured run as data: what its logs say, and what the profiles of its ranks hold. Seconds and bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean


@dataclass(frozen=True)
class Memory:
    """Peak bytes of a device: what tensors took (`allocated_B`), and the pool with its fragments (`reserved_B`)."""

    allocated_B: int | None = None
    reserved_B: int | None = None


@dataclass(frozen=True)
class Log:
    """One training log: how many steps were used, their median and the slowest; None where the log has no steps.

    `samples_per_device`: of a step, as the log's own throughput says; None where it says none.
    """

    path: str
    steps: int
    step_time_s: float | None
    slowest_s: float | None
    samples_per_device: float | None
    memory: Memory


@dataclass(frozen=True)
class StepParts:
    """What a device does in a step: the parts add up to it. `hidden_s`: communication beside computation, in `compute_s`."""

    compute_s: float
    communication_s: float
    bubble_s: float
    idle_s: float
    hidden_s: float

    @property
    def step_time_s(self) -> float:
        return self.compute_s + self.communication_s + self.bubble_s + self.idle_s


@dataclass(frozen=True)
class Exchange:
    """Collectives of one kind in a step. `wait_s`: the share of `time_s` in which a rank waited for others."""

    count: float
    time_s: float
    wait_s: float


@dataclass(frozen=True)
class Profile:
    """What the profiler wrote of one rank, each part of it that is there, for one step.

    `operators`: seconds by kind of operator (`measured.kinds`), `exchanges` by kind of collective.
    """

    path: str
    rank: int
    parts: StepParts | None = None
    operators: Mapping[str, float] = field(default_factory=dict)
    exchanges: Mapping[str, Exchange] = field(default_factory=dict)
    memory: Memory = Memory()


@dataclass(frozen=True)
class Run:
    """Logs and profiles of one run."""

    logs: tuple[Log, ...]
    profiles: tuple[Profile, ...]

    @property
    def sources(self) -> tuple[Log | Profile, ...]:
        return (*self.logs, *self.profiles)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(one.path for one in self.sources)

    @property
    def step_time_s(self) -> float | None:
        """Of the slowest rank: as its log says, which no profiler slows down; else as its profile does."""
        logged = [log.step_time_s for log in self.logs if log.step_time_s is not None]
        return max(logged, default=self.profiled_step_s)

    @property
    def profiled_step_s(self) -> float | None:
        return max([one.parts.step_time_s for one in self.profiles if one.parts is not None], default=None)

    @property
    def parts(self) -> StepParts | None:
        """The mean over the ranks that were profiled."""
        found = [one.parts for one in self.profiles if one.parts is not None]
        if not found:
            return None
        names = ("compute_s", "communication_s", "bubble_s", "idle_s", "hidden_s")
        return StepParts(*(fmean(getattr(one, name) for one in found) for name in names))

    @property
    def memory(self) -> Memory:
        """Of the fullest rank."""
        every = [one.memory for one in self.sources]
        return Memory(
            max((one.allocated_B for one in every if one.allocated_B is not None), default=None),
            max((one.reserved_B for one in every if one.reserved_B is not None), default=None),
        )
