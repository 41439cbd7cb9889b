"""Cases of which one is true however the blocks are divided into stages: each bounds the step by what one stage holds.

Let b_0 = 0 <= b_1 <= … <= b_P = L be any numbers of blocks, and e_s how many blocks stand before stage s. At the last s with
e_s <= b_s, stage s < P - 1 holds the blocks b_s to b_(s+1) at least, both included, since e_(s+1) > b_(s+1); the last stage,
all blocks from b_(P-1). So one of P runs of blocks lies on one stage, and `case_bounds` knows how long a step then takes. The b
are runs that no layout known so far can hold on one stage in a step as fast as is asked for.

The end of a step takes as long as on its slowest stage, which often is the first one, where the embedding is. Where that
decides, there are two lots of cases: for at most c blocks on the first stage (e_1 <= c, so that b_1 = c has no case), and for
more, where the end of a step takes at least what it takes with c + 1 blocks there.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ms_symtensor.program.passes import Flights
from ms_symtensor.search.folded.chain import Chain
from ms_symtensor.search.space.shapes import Shape

HALVINGS = 4
"""So often the interval is halved in which the slowest step is sought that cases can show (empirical)."""

DECIDES = 1e-3
"""That the end of a step takes longer on one stage than on average counts if it is so much of the step (empirical)."""

Held = tuple[int, ...]
"""How often every place of the network lies in a run."""


@dataclass(frozen=True)
class Case:
    """One stage, which keeps `flight` micro-batches, holds a run: so often every place. One more holds `also` (nothing: None),
    the first blocks with what stands before them. All others are known in some cases: those `before` this one, and `behind`.
    """

    held: Held
    flight: Flights
    also: Held | None = None
    before: tuple[tuple[Held, Flights], ...] = ()
    behind: tuple[tuple[Held, Flights], ...] = ()


@dataclass(frozen=True)
class _Space:
    """All that cases are made of: layouts `known`, and `shown`, the bound that was found for every case that was tried."""

    known: Sequence[Chain]
    shown: Mapping[Case, float]
    place_of: Sequence[int]
    places: int
    shape: Shape
    limit_B: float
    _taken: dict[tuple[int, int, int, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        return int(self.known[0].blocks[-1])

    def part(self, blocks: int) -> int:
        """The number of the part that is block number `blocks`."""
        return bisect_right(self.known[0].blocks, blocks) - 1

    def run(self, stage: int, start: int, end: int) -> tuple[int, int]:
        """The parts of a stage with the blocks from `start` to before `end`."""
        return self.part(start) if stage else 0, len(self.place_of) if stage == self.shape.stages - 1 else self.part(
            end
        )

    def taken_s(self, number: int, stage: int, start: int, end: int) -> tuple[float, float]:
        """Seconds per micro-batch, inf where that does not fit, and at the end of a step, of a stage with the blocks from `start`
        to before `end` in the known layouts `number`.
        """
        key = number, stage, start, end
        if key not in self._taken:
            chain, (begin, part) = self.known[number], self.run(stage, start, end)
            fitting = chain.fitting(begin, part, self.shape.flights(stage), self.limit_B)
            self._taken[key] = inf if fitting is None else fitting[0], chain.once_s[part] - chain.once_s[begin]
        return self._taken[key]

    def held(self, run: tuple[int, int]) -> Held:
        held = [0] * self.places
        for part in range(*run):
            held[self.place_of[part]] += 1
        return tuple(held)


@dataclass(frozen=True)
class _Lot:
    """Cases for at least `least` and at most `most` blocks on the first stage: how many blocks stand before every stage."""

    starts: Sequence[int]
    least: int
    most: int


def cases(
    known: Sequence[Chain],
    occurrences: Sequence[int],
    shape: Shape,
    limit_B: float,
    bound_s: float,
    asked_s: float,
    shown: Mapping[Case, float],
) -> tuple[Case, ...]:
    """The cases that may show that no step on `shape` is faster than `asked_s`, or else, than as long a time above `bound_s` as
    can be shown, since the layouts `known` are slower and `shown` knows of no case that has shown less.
    """
    space = _space(known, occurrences, shape, limit_B, shown)
    return _cases(space, _slowest(space, bound_s, asked_s))


def on_few(
    known: Sequence[Chain],
    occurrences: Sequence[int],
    shape: Shape,
    limit_B: float,
    most: int,
    asked_s: float,
    shown: Mapping[Case, float],
) -> tuple[Case, ...] | None:
    """Such cases if the first stage holds at `most` so many blocks; None if the layouts `known` may be as fast as is asked."""
    space, least = _space(known, occurrences, shape, limit_B, shown), shape.interleave
    if most < least:
        return ()
    starts = _starts(space, asked_s, least, most)
    return None if starts is None else _cases(space, [_Lot(starts, least, most)])


def _space(
    known: Sequence[Chain], occurrences: Sequence[int], shape: Shape, limit_B: float, shown: Mapping[Case, float]
) -> _Space:
    place_of = [place for place, n in enumerate(occurrences) for _ in range(n)]
    return _Space(known, shown, place_of, len(occurrences), shape, limit_B)


def _cases(space: _Space, lots: Sequence[_Lot]) -> tuple[Case, ...]:
    """Those of `lots`; equal runs are one case, with the fewest micro-batches that any of their stages keeps."""
    least: dict[tuple[Held, Held | None], Flights] = {}
    for lot in lots:
        also = _also(space, lot.least)
        for stage, held in _held(space, lot):
            flight = space.shape.flights(stage)
            least[held, also] = min(flight, least.get((held, also), flight))
    return tuple(Case(held, flight, also) for (held, also), flight in least.items())


def _held(space: _Space, lot: _Lot) -> Iterator[tuple[int, Held]]:
    """The runs of the cases of `lot`, each with its stage."""
    ends = [*lot.starts[1:], space.blocks]
    for stage, (start, end) in enumerate(zip(lot.starts, ends, strict=True)):
        later = space.shape.stages - stage - 1
        last = end + (1 if later else 0)
        # Every later stage holds a block for each of its runs; and the first one no more than it may.
        if last <= space.blocks - later * space.shape.interleave and (stage or last <= lot.most):
            yield stage, space.held(space.run(stage, start, last))


def _also(space: _Space, least: int) -> Held:
    return space.held((0, space.part(least)))


def _slowest(space: _Space, bound_s: float, asked_s: float) -> list[_Lot]:
    """Lots of cases such that no layout can hold what follows in a step as fast as can be."""
    found = _lots(space, asked_s)
    low_s, high_s = bound_s, asked_s
    for _ in range(0 if found else HALVINGS):
        middle_s = (low_s + high_s) / 2
        if (slower := _lots(space, middle_s)) is None:
            high_s = middle_s
        else:
            low_s, found = middle_s, slower
    stages, blocks = space.shape.stages, space.blocks
    return found or [_Lot([stage * blocks // stages for stage in range(stages)], space.shape.interleave, blocks)]


def _lots(space: _Space, step_s: float) -> list[_Lot] | None:
    """Lots of cases that hold too much for a step of `step_s`; None if all blocks can be held in it."""
    least = space.shape.interleave
    most = space.blocks - (space.shape.stages - 1) * least
    if (starts := _starts(space, step_s, least, most)) is not None:
        return [_Lot(starts, least, most)]
    even, known = space.part(space.blocks // space.shape.stages), space.known[0]
    if known.once_s[even] - known.once_s[-1] / space.shape.stages < DECIDES * step_s:
        return None
    low, high, first = least - 1, most, None
    while low < high:
        middle = (low + high + 1) // 2
        if (starts := _starts(space, step_s, least, middle)) is None:
            high = middle - 1
        else:
            low, first = middle, _Lot(starts, least, middle)
    if first is None or (starts := _starts(space, step_s, low + 1, most)) is None:
        return None
    return [first, _Lot(starts, low + 1, most)]


def _starts(space: _Space, step_s: float, first_least: int, first_most: int) -> list[int] | None:
    """How many blocks stand before every stage if each takes as many as may be held in a step of `step_s`, or one block for each
    of its runs, and the first one as many as it may; None if the last stage holds the rest.
    """
    start, found, also = 0, [], _also(space, first_least)
    first, likely = space.part(first_least), space.blocks // space.shape.stages
    for stage in range(space.shape.stages):
        found.append(start)
        later = space.shape.stages - stage - 1
        left = space.blocks - later * space.shape.interleave
        most = min(left, first_most) if stage == 0 else left
        end = start if later else space.blocks - 1
        for number in range(len(space.known)):
            end = max(end, _end(space, number, stage, start, (end, most), likely, step_s, first))
            likely = end + 1
        if later:
            end = max(end, (stage + 1) * space.shape.interleave)
        while end < most and _is_shown_less(
            space, Case(space.held(space.run(stage, start, end + 1)), space.shape.flights(stage), also), step_s
        ):
            end += 1
        likely = end + end - start  # as long a stage once more
        start = end
    return None if start == space.blocks else found


def _is_shown_less(space: _Space, case: Case, step_s: float) -> bool:
    """Whether a step of `step_s` could not be excluded in this case, or one that keeps more; or hardly could be, as it looks from
    two that keep less. A wrong guess costs time only: whatever cases are taken, their bounds hold.
    """
    alike = ((one, shown_s) for one, shown_s in space.shown.items() if one.held == case.held)
    less = list(dict(sorted((one.flight.mean, shown_s) for one, shown_s in alike if shown_s < step_s)).items())
    if less and less[-1][0] >= case.flight.mean:
        return True
    if len(less) < 2:
        return False
    (before, before_s), (last, last_s) = less[-2:]
    return last_s + (last_s - before_s) / (last - before) * (case.flight.mean - last) < step_s


def _end(
    space: _Space, number: int, stage: int, start: int, among: tuple[int, int], likely: int, step_s: float, first: int
) -> int:
    """The last block count `among` the least and the most up to which the known layouts `number` hold blocks from `start`, looked
    for from the `likely` one; else the least.
    """
    shape, one = space.shape, space.known[number]
    slowest = shape.turns.slowest
    least_once_s = max(one.once_s[-1] / shape.stages, one.once_s[first])
    left_s = step_s - one.each_s[-1] / shape.interleave

    def holds(end: int) -> bool:
        each_s, once_s = space.taken_s(number, stage, start, end)
        return each_s <= (left_s - max(least_once_s, once_s)) / slowest

    (low, high), step = among, 1
    middle = min(max(likely, low + 1), high)
    while low < high:
        if holds(middle):
            low, middle = middle, min(middle + step, (middle + high + 1) // 2)
        else:
            high, middle = middle - 1, max(middle - step, (low + middle) // 2)
        step *= 2
    return low
