"""GPipe: all forward passes, then all backward passes (Huang et al. 2019, "GPipe", section 2.3).

MindSpore takes all micro-batches through one model chunk before the next one, backward through the last chunk first.
"""

from collections.abc import Iterator

from ms_symtensor.program.schedules.scheduler import Scheduler, Turn


def _order(stage: int, stages: int, micro_batch_num: int, chunks: int) -> Iterator[Turn]:
    for chunk in range(chunks):
        yield from (Turn(number, chunk, False) for number in range(micro_batch_num))
    for chunk in reversed(range(chunks)):
        yield from (Turn(number, chunk, True) for number in range(micro_batch_num))


GPIPE = Scheduler("gpipe", _order, lambda stages, micro_batch_num: micro_batch_num)
