"""MindSpore's seqpipe, seqvpp and seqsmartvpp, with samples that are not cut along their sequence.

Cycles of micro-batches go round the chunks; what does not fill a cycle makes the first cycles longer by one each. A stage warms
up by `step` passes for every stage behind it, and a cycle for every chunk but the last; then each forward pass is followed by
the backward pass of the micro-batch that has waited longest, through the chunk that it passed last. With one step a stage,
seqsmartvpp keeps fewer micro-batches than interleaved 1F1B, and has the same bubble.

As compiled, a backward pass through the last chunk of the last stage waits for nothing from elsewhere but the next pass's
input: the next forward pass goes ahead of it. Source: MindSpore 2.10.0's compiled programs (benchmarks/schedules.py).
"""

from collections import deque
from collections.abc import Iterator
from functools import partial

from ms_symtensor.program.schedules.scheduler import Scheduler, Turn, in_cycles


def _cycles(stages: int, micro_batch_num: int) -> list[int]:
    number = max(1, micro_batch_num // stages)
    share, rest = divmod(micro_batch_num, number)
    return [share + (place < rest) for place in range(number)]


def _order(smart: bool, stage: int, stages: int, micro_batch_num: int, chunks: int) -> Iterator[Turn]:
    cycles = _cycles(stages, micro_batch_num)
    step = 1 if smart or chunks == 1 else 2
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
    yield from found


def _enough(stages: int, micro_batch_num: int) -> int:
    cycles = _cycles(stages, micro_batch_num)
    longer = sum(length > cycles[-1] for length in cycles)
    return sum(cycles[: longer + 4]) if len(cycles) > longer + 4 else micro_batch_num


SEQPIPE = Scheduler("seqpipe", partial(_order, False), _enough)
SEQVPP = Scheduler("seqvpp", partial(_order, False), _enough, least_chunks=2)
SEQSMARTVPP = Scheduler("seqsmartvpp", partial(_order, True), _enough)
