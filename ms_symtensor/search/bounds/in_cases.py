"""Bounds of shapes on stages in cases of which one is true whatever the stages: of what one of them holds (`stage_cases`), of
branches of the layouts then (`branching`), and of whole divisions (`division_cases`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from ms_symtensor.search.bounds.branching import branched
from ms_symtensor.search.bounds.duals import STEADY, Asked
from ms_symtensor.search.bounds.met import Met
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.division_cases import Division, Part, first_least
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.stage_cases import Case, cases, on_few
from ms_symtensor.search.stages.stage_layers import step_s

ROUNDS = 8
"""So often cases are made of what is known, each time with the layouts that were the best in the last ones (empirical)."""

STALLS = 2
"""So many rounds of cases in a row that show no more than others did are the last ones (empirical)."""

AGAIN = 8
"""So often the case that shows least is asked for again with what it has met (empirical)."""

POLISHED = 12
"""So often, where that is the last that can raise a bound (empirical)."""

DIVIDED = 7e-3
"""A bound that is nearer to what is asked for is not looked for in a whole division of the blocks (empirical)."""

STANDS = 2
"""So often in a row what a case is asked for again with may change nothing (empirical)."""

ASTRAY = 0.02
"""A bound that stands still so far from what it can be has multipliers that lead nowhere: others are tried where it is the last
that can be raised (empirical)."""

FINER = 6
"""So often cases of a division are asked for, each time the least of them in finer ones (empirical)."""

SAME = 1e-4
"""What has moved by less than this share stands still (empirical)."""

SOLVED = 1e-5
"""So near a bound comes to what it can be where that is the last that can raise it (empirical)."""


class CaseBounds:
    """The bounds in cases of the shapes of one setting; `met` grows by what they meet."""

    def __init__(self, met: Met) -> None:
        self._met, self._duals = met, met.duals
        self._occurrences = met.setting.occurrences
        self._shown_by: dict[Shape, list[Asked]] = {}

    def rising(self, shape: Shape, bound_s: float) -> Iterator[float]:
        """The bounds of the shape from step to step."""
        bound_s = max(bound_s, self._by_another_mesh(shape))
        yield bound_s
        best, best_s = tuple[Case, ...](), bound_s
        for every, least_s, most_s in self._in_rounds(shape, bound_s):
            if most_s > best_s:
                best, best_s = every, most_s
            bound_s = max(bound_s, least_s)
            yield bound_s
        for least_s in self._polished(shape, best):
            bound_s = max(bound_s, least_s)
            yield bound_s
        if bound_s < (1 - DIVIDED) * self._met.enough_s[shape]:
            yield max(bound_s, self._by_division(shape))

    def _in_rounds(self, shape: Shape, bound_s: float) -> Iterator[tuple[tuple[Case, ...], float, float]]:
        """Cases of what one stage holds, the bound that they show, and what they could show at most, made anew of what the last
        ones have met.
        """
        known, enough_s, shown = self._met.rows[shape], self._met.enough_s[shape], dict[Case, float]()
        stalled, reached_s = 0, 0.0
        last: tuple[tuple[Case, ...], int] | None = None
        for round_ in range(ROUNDS):
            chains, left_B = [self._duals.chain(row) for row in known], self._duals.left_B(known)
            every = cases(chains, self._occurrences, shape, left_B, bound_s, enough_s, shown)
            if last == (every, len(known)):
                return  # nothing was met that these cases were not asked with
            last = every, len(known)
            values, asked = self._of_cases(known, every, AGAIN, STEADY)
            shown |= {case: max(value_s, shown.get(case, value_s)) for case, value_s in values.items()}
            least_s = min(values.values())
            if least_s > bound_s:
                bound_s, self._shown_by[shape.on_any_mesh] = least_s, asked
            yield every, least_s, min(one.most_s for one in asked)
            # The first cases are made of what was known without any; what they show may still be less than was known before.
            stalled = stalled + 1 if round_ and least_s < (1 + STEADY) * reached_s else 0
            reached_s = max(reached_s, least_s)
            if stalled == STALLS:
                return

    def _polished(self, shape: Shape, every: Sequence[Case]) -> Iterator[float]:
        """The bound that these cases show at most, and in branches of the layouts of that which shows least."""
        if not every:
            return
        known = self._met.rows[shape]
        values, _ = self._of_cases(known, every, POLISHED, SOLVED)
        split = set[Case]()
        while (least := min(every, key=values.__getitem__)) not in split:
            split.add(least)
            yield values[least]
            branches_s = branched(self._duals, known, self._met.views_of(shape, least), values[least])
            values[least] = max(values[least], branches_s)
        yield values[least]

    def _by_division(self, shape: Shape) -> float:
        """The bound in cases of the best division that is known; 0 where there is none."""
        known, bound_s = self._met.rows[shape], 0.0
        every = [stages for row in known if (stages := self._met.divided(row)) is not None]
        stages = min(every, key=lambda one: step_s(one, shape.turns), default=())
        least = first_least(self._occurrences, shape)
        if not stages or stages[0].blocks < least:
            return bound_s
        most_s, seconds = self._on_few(shape, least - 1), [one.each_s for one in stages]
        if most_s <= 0:
            return bound_s
        division = Division(self._occurrences, shape, tuple(one.blocks for one in stages))
        parts, shown = division.parts(seconds.index(max(seconds))), dict[Part, float]()
        for _ in range(FINER):
            values, _ = self._of_cases(known, [part.case for part in parts], POLISHED, SOLVED)
            shown |= {part: values[part.case] for part in parts}
            least_part = min(shown, key=shown.__getitem__)
            bound_s = max(bound_s, min(shown.pop(least_part), most_s))
            division, parts = division.finer(least_part)
            if bound_s >= min(most_s, self._met.enough_s[shape]) or not parts:
                break
        return bound_s

    def _on_few(self, shape: Shape, most: int) -> float:
        """The bound if the first stage holds at `most` so many blocks; 0 if that may be as fast as is asked."""
        known, enough_s = self._met.rows[shape], self._met.enough_s[shape]
        chains, left_B = [self._duals.chain(row) for row in known], self._duals.left_B(known)
        every = on_few(chains, self._occurrences, shape, left_B, most, enough_s, {})
        if every is None:
            return 0.0
        values, _ = self._of_cases(known, every, AGAIN, STEADY) if every else ({}, [])
        return min(values.values(), default=inf)

    def _by_another_mesh(self, shape: Shape) -> float:
        """The bound that the cases show which showed most on another mesh, asked for as there."""
        asked = [self._met.asked_at(shape, one) for one in self._shown_by.get(shape.on_any_mesh, ())]
        found = self._duals.least(asked) if asked else []
        for _, rows in found:
            self._met.learn(rows())
        return min((value_s for value_s, _ in found), default=0.0)

    def _of_cases(
        self, known: list[Row], every: Sequence[Case], again: int, near: float
    ) -> tuple[dict[Case, float], list[Asked]]:
        """The bounds of cases, the least of them asked for again where that may raise it, so often, or until it is so near to
        what it can be, and how they were asked for last; `known` grows by what they meet.
        """
        shape = known[0].shape
        asked = [self._duals.ask(known, self._met.views_of(shape, case)) for case in every]
        found = self._duals.least(asked)
        values = [value_s for value_s, _ in found]
        met: dict[int, list[Row]] = {}
        stalled = 0
        for _ in range(again):
            least = min(range(len(every)), key=values.__getitem__)
            rows = found[least][1]()
            if not rows or values[least] >= min(asked[least].most_s, self._met.enough_s[shape]) * (1 - near):
                break
            self._met.learn(rows)
            met.setdefault(least, []).extend(rows)
            before_s, most_s = values[least], asked[least].most_s
            anew = self._duals.ask(known, self._met.views_of(shape, every[least]), met[least])
            tried = [anew, *self._duals.towards(asked[least], rows[0])]
            shown = self._duals.least(tried)
            best = max(range(len(tried)), key=lambda n: shown[n][0])
            found[least] = shown[best]
            if shown[best][0] > before_s:
                values[least], asked[least] = shown[best][0], tried[best]
            asked[least] = replace(asked[least], most_s=anew.most_s)
            # Neither end has moved.
            stands = values[least] <= (1 + SAME) * before_s and anew.most_s >= (1 - SAME) * most_s
            stalled = stalled + 1 if stands else 0
            if stalled == STANDS:
                if near > SOLVED or values[least] >= (1 - ASTRAY) * anew.most_s:
                    break
                tried = self._duals.in_orders(asked[least], met[least])
                shown = self._duals.least(tried)
                best = max(range(len(tried)), key=lambda n: shown[n][0])
                if shown[best][0] <= (1 + STEADY) * values[least]:
                    break
                found[least], values[least], asked[least], stalled = shown[best], shown[best][0], tried[best], 0
        return dict(zip(every, values, strict=True)), asked
