"""What every stage holds at its peak, by the formulas that `verify` compares with the compiler.

The program of a stage is written down with few blocks: of those that recompute alike the first, one for all between, and the
last; and one of every kind before and after it on stages of their own. What further blocks keep is counted for each. Where the
whole batch is taken at once, on one stage, the program is that of the whole step (`program.long_runs`); else it is that of a
micro-batch (`program.stage_memory`).

Where kinds of blocks take turns, so it is with their periods, the first and the last of which a stage may hold in part. What a
micro-batch needs is then put together block by block: one program has whole periods that recompute as the first blocks do,
another one periods that recompute as the others do.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.step import peak_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.long_runs import EACH, ShortProgram
from ms_symtensor.program.pipeline import in_runs, stage_by_stage
from ms_symtensor.program.program import Program
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.program.stage_memory import in_a_row, peaks
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.folded.few_periods import FewPeriods, Run, Way, Written
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.tensor.graph import Graph

FEW = 2 * EACH + 2
"""Blocks of every kind that a stage's program is made of at most: two runs, one block before, one after."""

TOGETHER = 2
"""Whole periods in a program that needs are put together from: blocks between come from the one or the other."""


class _Block(NamedTuple):
    """A block of the network: the group of kinds that take turns, the number of its period there, its kind, its place."""

    group: int
    period: int
    kind: int
    place: int


Held = Sequence[tuple[_Block, Way]]
"""The blocks of a stage."""


@dataclass
class StagePeaks:
    """The memory of stages for one choice of strategies.

    `graph` has up to FEW blocks of every kind, of which there are truly so many as `depths` says. `sent_B`: where stages hold
    several model chunks, what one of them has made until it is sent.
    """

    graph: Graph
    depths: tuple[int, ...]
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    schedule: PipelineSchedule
    rules: Mapping[str, Rule] | None = None
    sent_B: int = 0

    def __post_init__(self) -> None:
        self._few = FewPeriods(self.graph, self.strategies, self.settings, self.schedule, self.rules)
        groups = [(group, sum(self._few.turns[:group]), kinds) for group, kinds in enumerate(self._few.turns)]
        every = [
            (group, period, kind)
            for group, first, kinds in groups
            for period in range(self.depths[1 + first])
            for kind in range(first, first + kinds)
        ]
        self._chain = [_Block(*one, place) for place, one in enumerate(every)]

    def under(self, settings: Settings) -> "StagePeaks":
        """The same under other settings."""
        return replace(self, settings=settings)

    def of(self, stages: Sequence[Stage], mixes: Sequence[Mix] = ()) -> tuple[dict[str, int], ...]:
        """Bytes by `cost.step.MEMORIES` of a rank of every stage. InvalidStrategyError where MindSpore cannot cut here.

        `mixes`: what the blocks of every stage recompute that are recomputed, and the others.
        """
        layers = [stage.blocks for stage in stages]
        return tuple(
            self.of_one(number, layers, stage.recomputed, mixes[number] if mixes else WHOLE)
            for number, stage in enumerate(stages)
        )

    def of_one(self, number: int, layers: Sequence[int], recomputed: int, mix: Mix = WHOLE) -> dict[str, int]:
        """Those of the stage with `number` where stages have so many blocks as `layers` says, and it recomputes so many first."""
        held = self._held(number, layers, recomputed, mix)
        if self._few.is_whole:
            return self._whole(held)
        blocks = self._put_together(held, recomputed, mix) if self._may_begin_inside else self._in_order(held)
        (part, _), *_ = blocks
        inside = filter(None, part.block_of.values())
        counts = {**dict.fromkeys(inside, 0), **Counter(name for _, name in blocks)}
        runs = [
            in_a_row(one.micro.moments[name] for one, name in run) for run in in_runs(blocks, self.schedule.interleave)
        ]
        every = self.schedule.passes(number, len(layers))
        activations_B = max(peak.total_B for peak in peaks(runs, *_weights_B(blocks), every)) + self.sent_B
        scatters, swaps = self.settings.optimizer_level is OptimizerLevel.LEVEL2, self.settings.swap_optimizer
        return stage_memory_B(part.program, len(layers), scatters, activations_B, counts, part.block_of, swaps)

    def program_of(self, number: int, layers: Sequence[int], recomputed: int) -> Program:
        """The program of a stage, with few of its blocks; arguments as of `of_one`."""
        held = self._held(number, layers, recomputed, WHOLE)
        written = self._alike(held, WHOLE, recomputed > 0) if self._may_begin_inside else self._written(held)[0]
        return written.program

    @property
    def _may_begin_inside(self) -> bool:
        """Whether stages may begin inside a period of which there are enough to write some of one way between others."""
        groups = zip(self._few.turns, self._few.periods, strict=True)
        several = [len(periods) for kinds, periods in groups if kinds > 1]
        return min(several, default=0) >= TOGETHER + 2

    def _held(self, number: int, layers: Sequence[int], recomputed: int, mix: Mix) -> Held:
        """The blocks of a stage, chunk by chunk. In the network with few blocks they are neighbours; where periods are too few to
        begin inside one, as many that are neighbours in the whole network stand for them.
        """
        in_place = max(self._few.turns, default=1) > 1 and not self._may_begin_inside
        start, interleave = sum(layers[:number]), 1 if in_place else self.schedule.interleave
        blocks = stage_by_stage(self._chain, layers, interleave)[start : start + layers[number]]
        return [(block, (block.kind, mix.way(block.kind, n < recomputed))) for n, block in enumerate(blocks)]

    def _written(self, held: Held) -> tuple[Written, list[Run]]:
        """The stage with few periods of every run of equal ones, and its runs as they truly are."""
        periods = [[*period] for _, period in groupby(held, key=lambda one: one[0][:2])]
        forms = [(period[0][0].group, tuple(way for _, way in period)) for period in periods]
        true = [Run(*form, len(list(alike))) for form, alike in groupby(forms)]
        before, after = self._beside(held)
        begun = {block[:2] for block, _ in (*held[:1], *held[-1:])}
        sides = [tuple(sorted({b.group for b in side if b[:2] not in begun})) for side in (before, after)]
        few: list[Run] = []
        for group, there in enumerate(self._few.periods):
            mine = [run for run in true if run.group == group]
            most = len(there) - sum(side.count(group) for side in sides)
            counts = self._counts([run.periods for run in mine], most)
            few += (run._replace(periods=n) for run, n in zip(mine, counts, strict=True))
        return self._few.written(tuple(few), *sides), true

    def _beside(self, held: Held) -> tuple[list[_Block], list[_Block]]:
        """The blocks of the network before and after those of a stage."""
        places = [block.place for block, _ in held] or [0]
        return self._chain[: places[0]], self._chain[places[-1] + 1 :]

    def _counts(self, true: Sequence[int], most: int) -> list[int]:
        """Periods of runs that stand for those that there are truly, at most so many: of a micro-batch three for two as well, so
        that one program stands for both.
        """
        few = [EACH if n > 1 else n for n in true]
        return few if sum(few) <= most and not self._few.is_whole else [min(n, EACH) for n in true]

    def _whole(self, held: Held) -> dict[str, int]:
        """The memory of a step that takes the batch at once."""
        written, true = self._written(held)
        assert isinstance(written.needs, ShortProgram)
        more = [run.periods - len(names) for names, run in zip(written.named, true, strict=True)]
        several = [(names[1], 1 + n) for names, n in zip(written.named, more, strict=True) if n]
        times = {name: count for period, count in several for name in period}
        program = written.program
        placed = ((one, times.get(written.block_of.get(name, ""), 1)) for name, one in program.parameters.items())
        return peak_B(program, placed, written.needs.peak_B(more), self.settings.swap_optimizer)

    def _in_order(self, held: Held) -> list[tuple[Written, str]]:
        """For every block of a stage that is a part of the network one that is written: of a way the first, between, or last."""
        written, _ = self._written(held)
        left = {}
        for way, count in Counter(way for _, way in held).items():
            names = written.like[way]
            left[way] = iter(names[:1] if count == 1 else [names[0], *[names[1]] * (count - 2), names[-1]])
        return [(written, next(left[way])) for _, way in held]

    def _put_together(self, held: Held, recomputed: int, mix: Mix) -> list[tuple[Written, str]]:
        """For every block of a stage one that is written, in a program where all recompute as the first ones do, or the others.

        The first and the last block of a program have what stands outside of blocks.
        """
        parts = {one: self._alike(held, mix, one) for one in {n < recomputed for n in range(len(held))}}
        found = []
        for number, (_, way) in enumerate(held):
            part = parts[number < recomputed]
            names, ends = part.like[way], (part.named[0][0][0], part.named[-1][-1][-1])
            inside = [name for name in names if name not in ends] or names
            is_end = number in (0, len(held) - 1)
            found.append((part, (names[0] if number == 0 else names[-1]) if is_end else inside[0]))
        return found

    def _alike(self, held: Held, mix: Mix, is_first: bool) -> Written:
        """The groups of a stage in whole periods, all of which recompute as its first blocks do, or as the others."""
        blocks = Counter(block.group for block, _ in held)
        runs = []
        for group, count in sorted(blocks.items()):
            first, kinds = sum(self._few.turns[:group]), self._few.turns[group]
            form = tuple((kind, mix.way(kind, is_first)) for kind in range(first, first + kinds))
            runs.append(Run(group, form, TOGETHER if kinds > 1 else min(count, EACH)))
        before, after = (tuple(sorted({b.group for b in side})) for side in self._beside(held))
        return self._few.written(tuple(runs), before, after)


def _weights_B(blocks: Sequence[tuple[Written, str]]) -> tuple[int, int]:
    """Bytes of the weights in use of a stage of these blocks: in all passes, and behind the last forward pass."""
    every = [(part.micro, name) for part, name in blocks]
    outside, _ = every[0]
    whole_B = outside.weights_B.get(None, 0) + sum(micro.weights_B.get(name, 0) for micro, name in every)
    behind_B = outside.weights_behind_B.get(None, 0) + sum(micro.weights_behind_B.get(name, 0) for micro, name in every)
    return whole_B, behind_B
