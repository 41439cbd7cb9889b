"""1F1B, interleaved where a stage has several model chunks: warm up, then a backward and a forward pass in turn.

Micro-batches go round in groups of as many as there are stages: a group passes through the first chunk of every stage, then
through the second, …, then the next group does; backward through the last chunk first (Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters", section 2.2). MindSpore's control edges say the same.
"""

from collections.abc import Iterator

from ms_symtensor.program.schedules.scheduler import Scheduler, Turn, in_cycles

GROUPS = 4
"""Of more groups of micro-batches, those in the middle see what others see (tests/program/test_passes.py)."""


def warm_up(stage: int, stages: int, micro_batch_num: int, chunks: int = 1) -> int:
    """Forward passes, through one chunk each, before the first backward pass.

    min(M, P - i); with v > 1 chunks a stage warms up twice as long: min(M v, 2 (P - i - 1) + (v - 1) P + 1).
    """
    if chunks == 1:
        return min(micro_batch_num, stages - stage)
    return min(micro_batch_num * chunks, 2 * (stages - stage - 1) + (chunks - 1) * stages + 1)


def _order(stage: int, stages: int, micro_batch_num: int, chunks: int) -> Iterator[Turn]:
    whole, rest = divmod(micro_batch_num, stages)
    forward = in_cycles([stages] * whole + [rest] * bool(rest), chunks)
    warm = warm_up(stage, stages, micro_batch_num, chunks)
    yield from forward[:warm]
    for number, (micro_batch, chunk, _) in enumerate(forward):
        yield Turn(micro_batch, chunks - 1 - chunk, True)
        yield from forward[warm + number : warm + number + 1]


def _enough(stages: int, micro_batch_num: int) -> int:
    groups, rest = divmod(micro_batch_num, stages)
    return min(groups, GROUPS) * stages + rest


ONE_F_ONE_B = Scheduler("1f1b", _order, _enough)
