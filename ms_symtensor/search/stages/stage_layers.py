"""How many blocks each pipeline stage holds, and how many of them are recomputed in the backward pass.

The blocks of a network stand in a chain, the embedding before and the head after them. A stage is a run of the chain. Its
time is the sum of its parts', and the slowest stage sets the pace of the pipeline, so the largest sum is made as small as
memory allows; but for what a slower pace gains at the end of the step, where the stage that sums the most gradients is the last.
On stage i of P, 1F1B keeps the activations of min(M, P - i) micro-batches; with several model chunks, see `InFlight`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.search.folded.chain import Chain, Stage

Held = tuple[int, int, float, float, int]
"""The parts of a stage, from and to, and what `Chain.make_feasible` tells of them."""

PACE_TOLERANCE = 1e-7
"""The pace is found to this fraction of itself."""

ORDERS = 4
"""Of virtual stages so many divisions are looked at, each of the blocks in the order of the one before it (empirical)."""

NEAR = 1.1
"""The pace is looked for up to so many times the least one that is left before it is halved from there (empirical)."""


def even(blocks: int, stages: int) -> tuple[int, ...]:
    """So many blocks on so many stages; the first ones take one more where they do not divide."""
    return tuple(blocks // stages + (number < blocks % stages) for number in range(stages))


def laid_out(
    chain: Chain, layers: Sequence[int], recomputed: Sequence[int], turns: PipelineSchedule
) -> tuple[Stage, ...]:
    """The stages with so many blocks, of which each recomputes so many, first ones first; whether they fit or not."""
    if turns.interleave > 1:
        chain = chain.stage_by_stage(layers, turns.interleave)
    return tuple(
        chain.with_recomputed(start, end, turns.in_flight(number, len(layers)), recomputed[number])
        for number, (start, end) in enumerate(_runs(chain, layers))
    )


def _runs(chain: Chain, layers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The parts of `chain`, from and to, of every stage that holds so many of its blocks."""
    start = 0
    for number, count in enumerate(layers):
        last = number == len(layers) - 1
        end = len(chain.parts) if last else bisect_right(chain.blocks, chain.blocks[start] + count) - 1
        yield start, end
        start = end


def divide(
    chain: Chain,
    stages: int,
    turns: PipelineSchedule,
    limit_B: float | Sequence[float],
    recomputed: tuple[int, int] | None = None,
    cutoff_s: float = inf,
) -> tuple[Stage, ...] | None:
    """The stages of the fastest step that fit `limit_B`, one number for all or one for each; None if nothing fits, or nothing
    that does is faster than `cutoff_s`.

    Of several model chunks each has one block at least. `recomputed`: the least and the most of the blocks that are recomputed
    (default: as needed). Of few that may be, no stage has more than a share; further ones are put where the pace is slowest:
    such a division need not be the best.
    """
    limits_B = (limit_B,) * stages if isinstance(limit_B, float | int) else tuple(limit_B)
    blocks = int(chain.blocks[-1])
    least, most = recomputed or (0, blocks)
    if 0 < blocks <= least:
        found = divided_chain(Chain([part.recomputed for part in chain.parts]), limits_B, turns, cutoff_s=cutoff_s)
        return None if found is None else tuple(replace(stage, recomputed=stage.blocks) for stage in found)
    share = most
    found = divided_chain(chain, limits_B, turns, share, cutoff_s)
    while found is not None and sum(stage.recomputed for stage in found) > most:
        share = max(share // 2, most // stages) if share * stages > 2 * most else share - 1
        found = divided_chain(chain, limits_B, turns, share, cutoff_s)
    return None if found is None else _with_more(chain, found, turns, least)


def _with_more(chain: Chain, found: tuple[Stage, ...], turns: PipelineSchedule, least: int) -> tuple[Stage, ...]:
    """`found` with at least so many recomputed blocks, each on the stage that is the fastest then."""
    counts = [stage.recomputed for stage in found]
    layers = [stage.blocks for stage in found]
    while sum(counts) < least:
        _, fastest = min((stage.each_s, i) for i, stage in enumerate(found) if counts[i] < layers[i])
        counts[fastest] += 1
        found = laid_out(chain, layers, counts, turns)
    return found


def divided_chain(
    chain: Chain, limits_B: Sequence[float], turns: PipelineSchedule, most: float = inf, cutoff_s: float = inf
) -> tuple[Stage, ...] | None:
    """The stages with which a step is the fastest, that fit, each with at most so many recomputed blocks; None where none fits,
    or where a run of the chain on each takes `cutoff_s` or more.

    A stage of several model chunks holds no run of the chain. Where blocks differ, those that stages hold by one division are
    put one after the other, and divided again: the best of a few such divisions is a good one, but need not be the best.
    """
    found = _divided_run(chain, limits_B, turns, most, cutoff_s)
    if turns.interleave == 1:
        return found
    best, tried = None, set[tuple[int, ...]]()
    while found is not None and len(tried) < ORDERS:
        layers = tuple(stage.blocks for stage in found)
        ordered = chain.stage_by_stage(layers, turns.interleave)
        if ordered.parts == chain.parts:
            return found
        if layers in tried:
            break
        tried.add(layers)
        held = _held_so(ordered, layers, limits_B, turns, most)
        if held is not None and (best is None or step_s(held, turns) < step_s(best, turns)):
            best = held
        found = _divided_run(ordered, limits_B, turns, most)
    return best


def _held_so(
    chain: Chain, layers: Sequence[int], limits_B: Sequence[float], turns: PipelineSchedule, most: float
) -> tuple[Stage, ...] | None:
    """The stages that hold so many blocks of `chain`, with as few of them recomputed as fit; None if one does not."""
    found = list[Stage]()
    for number, (start, end) in enumerate(_runs(chain, layers)):
        held = chain.make_feasible(start, end, turns.in_flight(number, len(layers)), limits_B[number], most)
        if held is None:
            return None
        found.append(chain.stage(start, end, *held))
    return tuple(found)


def _divided_run(
    chain: Chain, limits_B: Sequence[float], turns: PipelineSchedule, most: float, cutoff_s: float = inf
) -> tuple[Stage, ...] | None:
    """The fastest stages that hold runs of `chain`, which fit; None where none do, or none in less than `cutoff_s`.

    First those with the smallest pace; then, stage by stage that ends the step latest, those with a larger one that end sooner.
    """
    on = _Stages(chain, limits_B, turns, most)
    if len(limits_B) == 1:
        only = on.fastest()
        return only if only is not None and step_s(only, turns) < cutoff_s else None
    least_s = chain.once_s[min(2, len(chain.parts))]  # the first stage waits for no other

    def slowest_s(most_s: float) -> float:
        """The largest pace at which a step may take less than `most_s`."""
        return (most_s - chain.each_s[-1] / turns.interleave - least_s) / turns.slowest

    best = found = on.fastest(slowest_s(cutoff_s))
    while (
        best is not None and found is not None and (end_s := _ending_s(found, turns)) > (1 + PACE_TOLERANCE) * least_s
    ):
        found = on.fastest(slowest_s(step_s(best, turns)), (1 - PACE_TOLERANCE) * end_s)
        if found is not None and step_s(found, turns) < step_s(best, turns):
            best = found
    return best


def step_s(stages: Sequence[Stage], turns: PipelineSchedule) -> float:
    """Seconds of a step on `stages`."""
    return turns.step_s([stage.each_s for stage in stages], _ending_s(stages, turns))


def _ending_s(stages: Sequence[Stage], turns: PipelineSchedule) -> float:
    return turns.ending_s([stage.each_s for stage in stages], [stage.once_s for stage in stages])


class _Stages:
    """The stages that `chain` is divided into, one for each limit, with at most so many recomputed blocks on each."""

    def __init__(self, chain: Chain, limits_B: Sequence[float], turns: PipelineSchedule, most: float) -> None:
        self.chain, self.limits_B, self.most, self.stages = chain, limits_B, most, len(limits_B)
        self.in_flight = [turns.in_flight(number, self.stages) for number in range(self.stages)]
        self.runs, self.interleave = turns.interleave if self.stages > 1 else 0, turns.interleave
        self._known: dict[tuple[int, int, int], tuple[float, float, int] | None] = {}

    def fastest(self, pace_s: float = inf, once_s: float = inf) -> tuple[Stage, ...] | None:
        """Those with the smallest pace, `pace_s` at most, that fit, and that end a step in at most `once_s`.

        The pace is found by bisection: for a given one every stage takes as many parts as it can, first to last.
        """
        chain = self.chain
        best, high = self._filled(pace_s, once_s)
        low = max(chain.longest_s, chain.each_s[-1] / self.stages)
        while best is not None and self.stages > 1 and high - low > PACE_TOLERANCE * high:
            middle = min((low + high) / 2, NEAR * low)
            found, slowest_s = self._filled(middle, once_s)
            if found is None:
                low = max(middle, slowest_s)
            else:
                best, high = found, slowest_s
        return None if best is None else tuple(chain.stage(*held) for held in best)

    def _filled(self, pace_s: float, once_s: float) -> tuple[list[Held] | None, float]:
        """Stages that take as much as `pace_s`, `once_s` and their limit allow, and leave a block for every run of every later
        one, and the slowest one's seconds; if that is not all, None, and the smallest pace, above this one, at which a stage
        would take more.
        """
        blocks, before_s, before_once_s = self.chain.blocks, self.chain.each_s, self.chain.once_s
        whole = len(self.chain.parts)
        found, longer_s, start, waits_s = list[Held](), inf, 0, 0.0
        for number in range(self.stages):
            later = self.stages - number - 1
            # The longest run that leaves a block for every run of every later stage; the shortest that holds those of its own.
            high = bisect_right(blocks, blocks[-1] - later * self.runs) - 1 if later else whole
            low = max(bisect_left(blocks, blocks[start] + self.runs), start + 1) if later else whole
            # A stage that is late may end the step too late.
            latest = bisect_right(before_once_s, before_once_s[start] + once_s + waits_s) - 1
            ends = range(low, min(high, latest) + 1)
            quick = bisect_right(before_s, before_s[start] + pace_s)  # what lasts as long without recomputation
            taken = bisect_left(ends[: max(0, quick - low)], True, key=partial(self._is_longer, number, start, pace_s))
            if taken < len(ends) and (more := self._make_feasible(number, start, ends[taken])) is not None:
                longer_s = min(longer_s, more[0])
            one = self._make_feasible(number, start, ends[taken - 1]) if taken else None
            if one is None:
                return None, longer_s
            found.append((start, ends[taken - 1], *one))
            waits_s += one[0] / self.interleave
            start = ends[taken - 1]
        return found, max(each_s for _, _, each_s, _, _ in found)

    def _is_longer(self, number: int, start: int, pace_s: float, end: int) -> bool:
        """Whether a stage that ends there takes more than a pace, or does not fit."""
        one = self._make_feasible(number, start, end)
        return one is None or one[0] > pace_s

    def _make_feasible(self, number: int, start: int, end: int) -> tuple[float, float, int] | None:
        """`Chain.make_feasible` of a stage, asked for from pace to pace."""
        key = number, start, end
        if key not in self._known:
            limit_B = self.limits_B[number]
            self._known[key] = self.chain.make_feasible(start, end, self.in_flight[number], limit_B, self.most)
        return self._known[key]
