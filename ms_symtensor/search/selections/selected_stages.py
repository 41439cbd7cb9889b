"""Plans that recompute operators inside blocks.

Every stage has its own mixture of two levels (`levels`): the quickest one whose true peak fits. The blocks are divided as is best
if all stages had the same two levels, with what true peaks leave for them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.pipeline import stage_by_stage
from ms_symtensor.search.folded.chain import Chain, Part, Stage
from ms_symtensor.search.selections.levels import Level, Levels, Step, Steps, levels
from ms_symtensor.search.stages.estimate import borders_s, divided, estimated
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.materialize import MaterializedPlan, peaks_of, with_memory
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.stage_layers import divided_chain, laid_out, step_s

FEW = 10
"""So many levels are tried for what stages may hold (empirical)."""

GONE = 2.0
"""Where so many times what the last block keeps would not do, the block before it does not fit either (1 by what peaks consist
of; empirical beyond)."""


def selecting(network: Network, row: Candidate, limit_B: float) -> MaterializedPlan | None:
    """`row`, at the costs of its own mesh, with blocks recomputed in part so that it fits.

    None if nothing does, or if it cannot be chosen what of a block is recomputed.
    """
    paths = levels(network, row)
    return _Selecting(network, row, paths, limit_B).best([None, None]) if paths.every else None


def make_feasible(network: Network, found: MaterializedPlan, limit_B: float) -> MaterializedPlan | None:
    """`found`, which does not fit, with blocks recomputed in part so that it does; None if they cannot be.

    Where no mixture fits, what lives at the peak may be a single tensor of a stage's last block.
    """
    if not any(network.depths[1:-1]):
        return None
    paths = levels(network, found.row, singly=True)
    if not paths.every:
        return None
    of = _Selecting(network, found.row, paths, limit_B)
    layers, recomputed = zip(*((stage.blocks, stage.recomputed) for stage in found.estimate.stages), strict=True)
    of.note_beyond(laid_out(of.chain, layers, recomputed, of.schedule), found)
    return of.best([layers, None])


def promised_s(network: Network, row: Candidate, limit_B: float) -> float:
    """Seconds of a step of `row` on its best stages, if blocks recompute just what lets them fit, but for what lives for a moment
    only; where that does not do, if they are recomputed as a whole; inf where they do not fit so, or where MindSpore rejects
    the layouts.
    """
    whole = divided(row, limit_B)
    if whole is None:
        return math.inf
    if not any(stage.recomputed for stage in whole.stages):
        return whole.step_time_s
    try:
        paths = levels(network, row)
    except InvalidStrategyError:
        return math.inf
    limits_B = [limit_B - paths.buffers_B] * row.shape.stages
    stages = selected_stages(row, paths, limits_B) if paths.every else None
    return whole.step_time_s if stages is None else step_s(stages, row.shape.schedule) + borders_s(row)


def selected_stages(row: Candidate, paths: Levels, limits_B: Sequence[float]) -> tuple[Stage, ...] | None:
    """The stages of the fastest step of `row` that fit, where all blocks are on one of two of a few levels."""
    parts, kinds = row.chain.parts, row.kinds
    last = len(paths.every) - 1
    few = [paths.every[number] for number in sorted({round(last * n / FEW) for n in range(FEW + 1)})]
    best, best_s = None, math.inf
    for pair in combinations(few, 2):
        chain = _between(parts, kinds, few[0], *pair)
        found = divided_chain(chain, limits_B, row.shape.schedule, cutoff_s=best_s)
        if found is not None and (found_s := step_s(found, row.shape.schedule)) < best_s:
            best, best_s = found, found_s
    return best


def _between(parts: Sequence[Part], kinds: Sequence[int], nothing: Level, less: Level, more: Level) -> Chain:
    """The chain of `parts` whose blocks are on the level `less`, or on `more` where they are recomputed."""
    different: dict[tuple[int, int], Part] = {}
    of_blocks, found = iter(kinds), list[Part]()
    for part in parts:
        if part.is_block:
            kind = next(of_blocks)
            if (id(part), kind) not in different:
                all_B = part.kept_B - nothing[kind].kept_B
                different[id(part), kind] = replace(
                    part,
                    each_s=part.each_s + less[kind].recompute_s,
                    recompute_s=more[kind].recompute_s - less[kind].recompute_s,
                    kept_B=all_B + less[kind].kept_B,
                    kept_recomputed_B=all_B + more[kind].kept_B,
                )
            part = different[id(part), kind]
        found.append(part)
    return Chain(found)


class _Selecting:
    def __init__(self, network: Network, row: Candidate, paths: Levels, limit_B: float) -> None:
        self.row, self.paths, self.limit_B = row, paths, limit_B
        self.schedule, self.chain = row.shape.schedule, row.chain
        self.kinds = row.kinds
        self.peaks = peaks_of(network, row)
        # What true peaks have beyond what is known without programs; none where no program was looked at.
        self.beyond_B: list[float | None] = [None] * row.shape.stages
        self.likely_B: float = paths.buffers_B  # that of the stage that was looked at last

    def best(self, divisions: Sequence[Sequence[int] | None]) -> MaterializedPlan | None:
        """The fastest plan of some divisions, so many blocks on every stage; None: the one that is best by what is known."""
        best, attempted = None, set[tuple[int, ...]]()
        for fixed in divisions:
            layers = self._division() if fixed is None else tuple(fixed)
            if not layers or layers in attempted:
                continue
            attempted.add(layers)
            one = self._with(layers)
            if one is not None and (best is None or one.estimate.step_time_s < best.estimate.step_time_s):
                best = one
        return best

    def note_beyond(self, stages: Sequence[Stage], found: MaterializedPlan) -> None:
        """Note what the true peaks of `found` have beyond what is known of its `stages` without programs."""
        peaks_B = [sum(memory_B.values()) for memory_B in found.memory_B]
        self.beyond_B = [peak_B - stage.peak_B for stage, peak_B in zip(stages, peaks_B, strict=True)]

    def _division(self) -> tuple[int, ...]:
        """The blocks of every stage that are best; where nothing seems to fit, those where memory is free."""
        limits_B = [self.limit_B - (self.paths.buffers_B if more is None else more) for more in self.beyond_B]
        found = selected_stages(self.row, self.paths, limits_B)
        if found is None and (free := divided(self.row, math.inf)) is not None:
            found = free.stages
        return () if found is None else tuple(stage.blocks for stage in found)

    def _with(self, layers: Sequence[int]) -> MaterializedPlan | None:
        """The plan with so many blocks on every stage, each of which goes as far as its true peak makes necessary.

        None if one does not fit.
        """
        chosen = list[Step]()
        try:
            for number in range(len(layers)):
                step = self._first_feasible(layers, number)
                if step is None:
                    return None
                chosen.append(step)
            stages, mixes = self._gone_so_far(layers, chosen), tuple(step.mix for step in chosen)
            memory_B = self.peaks.of(stages, mixes)
        except InvalidStrategyError:
            return None
        found = with_memory(estimated(self.row, stages), self.row, memory_B)
        self.note_beyond(stages, found)
        return replace(found, mixes=mixes)

    def _plain(self, layers: Sequence[int]) -> tuple[Stage, ...]:
        return laid_out(self.chain, layers, [0] * len(layers), self.schedule)

    def _steps(self, layers: Sequence[int], number: int) -> Steps:
        """All mixtures of a stage."""
        start, flight = sum(layers[:number]), self.schedule.in_flight(number, len(layers))
        counts_in_flight = [n / flight.mean for n in flight.of_blocks(layers[number])]
        kinds = stage_by_stage(self.kinds, layers, self.schedule.interleave)
        return Steps(self.paths, kinds[start : start + layers[number]], counts_in_flight)

    def _gone_so_far(self, layers: Sequence[int], chosen: Sequence[Step]) -> tuple[Stage, ...]:
        """Stages that go so far, by what is known without programs."""
        return tuple(
            replace(
                stage,
                recomputed=step.first,
                each_s=stage.each_s + step.recompute_s,
                peak_B=stage.peak_B - step.saved_B * self._flight(layers, number),
            )
            for number, (stage, step) in enumerate(zip(self._plain(layers), chosen, strict=True))
        )

    def _first_feasible(self, layers: Sequence[int], number: int) -> Step | None:
        """The quickest mixture that fits on a stage, as far as peaks fall from one to the next as its micro-batches save
        more.
        """
        steps, flight = self._steps(layers, number), self._flight(layers, number)
        plain_B, known_B = self._plain(layers)[number].peak_B, self.beyond_B[number]
        beyond_B = self.likely_B if known_B is None else known_B
        low, high = 0, len(steps)  # the last one of low … high fits, if it is there
        while low < high:
            middle = steps.saving((plain_B + beyond_B - self.limit_B) / flight, low, high)
            if middle is None:
                if high < len(steps):
                    break
                middle = high - 1
            size_B = self._peak_B(layers, number, steps[middle])
            beyond_B = self.likely_B = size_B - (plain_B - steps.saved_B[middle] * flight)
            low, high = (low, middle) if size_B <= self.limit_B else (middle + 1, high)
        if high < len(steps):
            return steps[high]
        if (
            not self.row.shape.accumulates
            or self.schedule.interleave > 1
            or not self._may_fit_singly(layers, number, steps[len(steps) - 1])
        ):
            return None
        kept_B = self._plain(layers)[number].peak_B  # of these what is kept alone must fit
        singly = [s for s in steps.singly(self.paths.every[-1]) if kept_B - s.saved_B * flight <= self.limit_B]
        return next((step for step in singly if self._peak_B(layers, number, step) <= self.limit_B), None)

    def _may_fit_singly(self, layers: Sequence[int], number: int, last: Step) -> bool:
        """Whether it may be the last block of a stage alone that does not fit where all are on the last level. The one before it
        is recomputed alike, when no more is gone than what the last one kept.
        """
        end = sum(layers[: number + 1])
        kinds = self.kinds[end - min(2, layers[number]) : end]
        if len(kinds) < 2 or kinds[0] != kinds[1]:
            return True
        kept_B = self.paths.every[-1][kinds[1]].kept_B
        return self._peak_B(layers, number, last) <= self.limit_B + GONE * kept_B

    def _flight(self, layers: Sequence[int], number: int) -> float:
        return self.schedule.in_flight(number, len(layers)).mean

    def _peak_B(self, layers: Sequence[int], number: int, step: Step) -> float:
        """The true peak of a stage that goes so far."""
        return float(sum(self.peaks.of_one(number, layers, step.first, step.mix).values()))
