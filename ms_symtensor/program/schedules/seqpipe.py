"""MindSpore's seqpipe, seqvpp and seqsmartvpp, with samples that are not cut along their sequence.

Cycles of micro-batches go round the chunks; what does not fill a cycle makes the first cycles longer by one each. A stage warms
up by `step` passes for every stage behind it, and a cycle for every chunk but the last; then each forward pass is followed by
the backward pass of the micro-batch that has waited longest, through the chunk that it passed last. With one step a stage,
seqsmartvpp keeps fewer micro-batches than interleaved 1F1B, and has the same bubble, or up to 6 % of a step more where its first
stage waits for what it receives ahead (tests/timeline/test_replayed_passes.py).

A forward pass is held by nothing but what it receives, and the first stage of seqsmartvpp receives ahead: its forward passes
through later chunks go ahead by half as many passes as there are stages. Source: the programs that MindSpore 2.10.0 compiles
(benchmarks/schedules.py).
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from ms_symtensor.program.schedules.scheduler import Scheduler, Turn, in_cycles


def _cycles(stages: int, micro_batch_num: int) -> list[int]:
    number = max(1, micro_batch_num // stages)
    share, rest = divmod(micro_batch_num, number)
    return [share + (place < rest) for place in range(number)]


def _order(smart: bool, stage: int, stages: int, micro_batch_num: int, chunks: int) -> Sequence[Turn]:
    cycles = _cycles(stages, micro_batch_num)
    step = 1 if smart else 2
    warm = min((stages - 1 - stage) * step + (chunks - 1) * cycles[0], micro_batch_num * chunks - 1)
    waiting: deque[int] = deque()
    passed: dict[int, list[int]] = {}
    found: list[Turn] = []

    def back() -> Turn:
        micro_batch = waiting.popleft()
        return Turn(micro_batch, passed[micro_batch].pop(), True)

    for number, turn in enumerate(in_cycles(cycles, chunks)):
        found.append(turn)
        waiting.append(turn.micro_batch)
        passed.setdefault(turn.micro_batch, []).append(turn.chunk)
        if number >= warm:
            found.append(back())
    while waiting:
        found.append(back())
    return _ahead_on_first(found, warm, stages // 2) if smart and stage == 0 else found


def _ahead_on_first(turns: Sequence[Turn], warm: int, ahead: int) -> list[Turn]:
    """`turns` where, of those behind the first `warm` forward passes, those through later chunks go `ahead` by so many."""
    forward = [turn for turn in turns if not turn.is_backward]
    early = {place: turn for place, turn in enumerate(forward) if turn.chunk and place - ahead > warm}
    found: list[Turn] = []
    place = 0
    for turn in turns:
        if turn.is_backward:
            found.append(turn)
            continue
        found += [early[place + ahead]] if place + ahead in early else []
        found += [] if place in early else [turn]
        place += 1
    return found


def _enough(stages: int, micro_batch_num: int) -> int:
    cycles = _cycles(stages, micro_batch_num)
    longer = sum(length > cycles[-1] for length in cycles)
    return sum(cycles[: longer + 4]) if len(cycles) > longer + 4 else micro_batch_num


SEQPIPE = Scheduler("seqpipe", partial(_order, False), _enough)
SEQVPP = Scheduler("seqvpp", partial(_order, False), _enough)
SEQSMARTVPP = Scheduler("seqsmartvpp", partial(_order, True), _enough)
