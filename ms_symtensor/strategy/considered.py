"""What else was looked at: the ways to lay out a training step, as data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ms_symtensor.program.schedules import DEFAULT_SCHEDULER


@dataclass(frozen=True)
class Considered:
    """A way to lay out the step: stages, micro-batches, model chunks per stage, and the mesh of one stage, major axis first.

    No plan of this kind takes less than `bound_s`, inf where operators cannot be laid out so, or pins forbid it. `step_time_s`,
    `peak_memory_B` and `time_s` (what an average stage spends: work, recompute, bubble, once per step) are those of the best
    one found, as a survey prices it, and of the plan's own way those of its programs; None and empty where the bound alone ruled
    it out, or nothing `fits`.
    """

    pipeline_stages: int
    micro_batch_num: int
    mesh: tuple[int, ...]
    bound_s: float
    fits: bool = True
    step_time_s: float | None = None
    peak_memory_B: int | None = None
    time_s: Mapping[str, float] = field(default_factory=dict)
    pp_interleave_num: int = 1
    pipeline_scheduler: str = DEFAULT_SCHEDULER

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """What the best way has least of: those with a step come first, then those with a bound, and last what cannot be."""
        least_s = self.bound_s if self.step_time_s is None else self.step_time_s
        return math.isinf(self.bound_s), not self.fits, self.step_time_s is None, least_s
