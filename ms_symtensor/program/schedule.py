"""How the micro-batches of a step take turns on the stages of a pipeline: what is kept meanwhile, and how long a step is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from ms_symtensor.errors import InputError
from ms_symtensor.program.passes import InFlight, Pass, in_flight, passes
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER, SCHEDULERS
from ms_symtensor.program.schedules.scheduler import Turn


@dataclass(frozen=True)
class PipelineSchedule:
    """`micro_batch_num` micro-batches, each `interleave` times round the stages (model chunks), in the order of `scheduler`.

    Errors: InputError for a scheduler that is not known.
    """

    micro_batch_num: int
    interleave: int = 1
    scheduler: str = DEFAULT_SCHEDULER

    def __post_init__(self) -> None:
        if self.scheduler not in SCHEDULERS:
            raise InputError(f"pipeline_scheduler {self.scheduler} is not known: give one of {', '.join(SCHEDULERS)}")

    @classmethod
    def of(cls, pipeline: Pipeline) -> "PipelineSchedule":
        """That of `pipeline`."""
        return cls(pipeline.micro_batch_num, pipeline.interleave, pipeline.scheduler)

    def turns(self, stage: int, stages: int) -> tuple[Turn, ...]:
        """All passes on the stage, one after the other. With one chunk a stage MindSpore keeps to 1F1B, whatever is asked."""
        name = self.scheduler if self.interleave > 1 else DEFAULT_SCHEDULER
        return tuple(SCHEDULERS[name].order(stage, stages, self.micro_batch_num, self.interleave))

    def in_flight(self, stage: int, stages: int) -> InFlight:
        """Micro-batches whose activations the stage keeps at once."""
        return _in_flight(self._enough(stages), stage, stages)

    def passes(self, stage: int, stages: int) -> tuple[Pass, ...]:
        """The different passes of micro-batches on the stage."""
        enough = self._enough(stages)
        return passes(enough.turns(stage, stages), self.interleave)

    def _enough(self, stages: int) -> "PipelineSchedule":
        """The same with as few micro-batches as see all that these see."""
        fewer = SCHEDULERS[self.scheduler].enough(stages, self.micro_batch_num)
        return PipelineSchedule(fewer, self.interleave, self.scheduler)

    def step_s(self, each_s: Sequence[float], once_s: float) -> float:
        """Seconds of a step of stages that take `each_s` for a micro-batch: T = M max s + (sum s - max s) / v + once.

        So it is for all of these schedules: what differs is how many micro-batches are kept.
        """
        return self.of_slowest_s(max(each_s), math.fsum(each_s), once_s)

    def of_slowest_s(self, most_s: float, total_s: float, once_s: float) -> float:
        """Those of stages that take `total_s` together, the slowest one `most_s`."""
        return self.slowest * most_s + total_s / self.interleave + once_s

    def ending_s(self, each_s: Sequence[float], once_s: Sequence[float]) -> float:
        """Seconds that a step takes beside its micro-batches: what a stage does once per step, but for what runs while it waits
        for the stages before it, max_i (once_i - sum_{j<i} s_j / v).
        """
        waits_s = accumulate(each_s[:-1], initial=0.0)
        return max(once - waits / self.interleave for once, waits in zip(once_s, waits_s, strict=True))

    @property
    def slowest(self) -> float:
        """How often the slowest stage counts in a step, beside its share of a micro-batch's way through all stages."""
        return self.micro_batch_num - 1 / self.interleave


@lru_cache(maxsize=1 << 12)
def _in_flight(schedule: PipelineSchedule, stage: int, stages: int) -> InFlight:
    return in_flight(schedule.turns(stage, stages), schedule.interleave)
