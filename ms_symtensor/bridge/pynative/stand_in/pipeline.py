"""Pipeline stages and schedules as MindFormers builds them: one stage is traced at a time, and sends nothing."""

from typing import Any


class PipelineStage:
    """One virtual stage of this rank."""

    def __init__(
        self, submodule: Any = None, stage_index: int = 0, stage_num: int = 1, mesh: Any = None, **options: Any
    ):
        self.submodule, self.stage_index, self.stage_num, self.mesh = submodule, stage_index, stage_num, mesh
        self.options = options


class Schedule:
    """A schedule: how many micro-batches, of which stages."""

    def __init__(self, stages: Any, micro_batch_num: int, overlap_p2p: bool = False, overlap_b_f: bool = False):
        self.stages, self.micro_batch_num = stages, micro_batch_num
        self.overlaps = (overlap_p2p, overlap_b_f)
        self.exec_order = ()


class Schedule1F1B(Schedule):
    """One forward, one backward."""


class ScheduleInterleaved1F1B(Schedule):
    """The same by model chunks."""


class ScheduleGPipe(Schedule):
    """All forwards, then all backwards."""
