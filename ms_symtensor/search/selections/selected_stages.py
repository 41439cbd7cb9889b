"""Plans in micro-batches that recompute operators inside blocks: whole-block plans made faster, their layouts as they are.

Every stage has its own mixture of two levels (`selected`): the quickest one whose true peak fits. Blocks may be divided anew:
there are the division of the plan, that of free memory, and the best one if stages could have anything between two levels; the
two that promise most are worked out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.folded.chain import Chain, Part, Stage
from ms_symtensor.search.selections.selected import Level, Levels, levels
from ms_symtensor.search.selections.steps import Step, Steps
from ms_symtensor.search.stages.borders import borders_s
from ms_symtensor.search.stages.estimate import chain_of, divided, estimated
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.materialize import (
    MaterializedPlan,
    peaks_as_one_stage,
    peaks_of,
    strategies_of,
    with_memory,
)
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.stage_layers import divided_chain, laid_out, step_s

FEW = 6
"""So many levels are tried for what stages may hold (empirical)."""

WORKED_OUT = 2
"""empirical: so many divisions of the blocks are worked out with true peaks; each writes the programs of all stages."""

GONE = 2.0
"""Where so many times what the last block keeps would not do, the block before it does not fit either (1 by what peaks consist
of; empirical beyond)."""

LIKELY_B = 2 << 30
"""Bytes that the first true peak is taken to have beyond what is known without programs (empirical: 1 to 3 GiB for buffers and
what lives for a moment; a good guess saves a program)."""


def selecting(
    network: Network,
    found: MaterializedPlan,
    limit_B: float,
    cluster: Cluster,
    rules: Mapping[str, Rule] | None = None,
    only: bool = False,
) -> MaterializedPlan | None:
    """`found` with blocks recomputed in part where that makes it faster.

    `only`: no block as a whole, whether that is faster or not. None if nothing fits then, or of what `found` is a guess at.
    """
    if not any(stage.recomputed for stage in found.estimate.stages):
        return found
    fallback = None if only or found.is_guess else found
    paths = levels(peaks_as_one_stage(network, found.row, found.strategies, rules), cluster, only)
    return _Selecting(network, found, paths, limit_B, rules).best(fallback) if paths.every else fallback


def make_feasible(
    network: Network,
    found: MaterializedPlan,
    limit_B: float,
    cluster: Cluster,
    rules: Mapping[str, Rule] | None = None,
) -> MaterializedPlan | None:
    """`found`, which does not fit, with blocks recomputed in part so that it does; None if they cannot be.

    Where no mixture fits, what lives at the peak may be a single tensor of a stage's last block.
    """
    if not any(network.depths[1:-1]):
        return None
    paths = levels(peaks_as_one_stage(network, found.row, found.strategies, rules), cluster, singly=True)
    return _Selecting(network, found, paths, limit_B, rules).best(None) if paths.every else None


def promised_s(
    network: Network,
    row: Candidate,
    limit_B: float,
    cluster: Cluster,
    rules: Mapping[str, Rule] | None = None,
    only: bool = False,
) -> float:
    """Seconds of a step of `row` on its best stages, if blocks recompute just what lets them fit, but for what lives for a moment
    only; inf where that does not do, or where MindSpore rejects the layouts.
    """
    try:
        paths = levels(peaks_as_one_stage(network, row, strategies_of(row), rules), cluster, only)
    except InvalidStrategyError:
        return math.inf
    if not paths.every:
        return math.inf
    limits_B = [limit_B - LIKELY_B] * row.shape.stages
    stages = selected_stages(row, network.depths, paths, limits_B)
    return math.inf if stages is None else step_s(stages, row.shape.schedule) + borders_s(row)


def selected_stages(
    row: Candidate, depths: tuple[int, ...], paths: Levels, limits_B: Sequence[float]
) -> tuple[Stage, ...] | None:
    """The stages of the fastest step of `row` that fit, where all blocks are on one of two of a few levels."""
    parts, kinds = chain_of(row, depths).parts, [kind for kind, depth in enumerate(depths[1:-1]) for _ in range(depth)]
    last = len(paths.every) - 1
    few = [paths.every[number] for number in sorted({round(last * n / FEW) for n in range(FEW + 1)})]
    every = [
        divided_chain(_between(parts, kinds, few[0], *pair), limits_B, row.shape.schedule)
        for pair in combinations(few, 2)
    ]
    there = [stages for stages in every if stages is not None]
    return min(there, key=lambda stages: step_s(stages, row.shape.schedule), default=None)


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
    def __init__(
        self, network: Network, found: MaterializedPlan, paths: Levels, limit_B: float, rules: Mapping[str, Rule] | None
    ) -> None:
        self.network, self.found, self.paths, self.limit_B = network, found, paths, limit_B
        self.schedule = found.estimate.shape.schedule
        self.is_whole = not found.estimate.shape.accumulates
        self.chain = chain_of(found.row, network.depths)
        self.kinds = [kind for kind, depth in enumerate(network.depths[1:-1]) for _ in range(depth)]
        self.peaks = peaks_of(network, found.row, found.strategies, rules)
        self.beyond_B = [0.0] * len(found.estimate.stages)  # the true peaks, beyond what is known without programs
        self.likely_B: float = LIKELY_B  # that of the stage that was looked at last
        if not found.is_guess:
            layers = [stage.blocks for stage in found.estimate.stages]
            guessed = laid_out(self.chain, layers, [s.recomputed for s in found.estimate.stages], self.schedule)
            self._note_beyond(guessed, [sum(memory_B.values()) for memory_B in found.memory_B])

    def best(self, best: MaterializedPlan | None) -> MaterializedPlan | None:
        """The fastest of what is worked out and `best`."""
        attempted = set[tuple[int, ...]]()
        for _ in range(WORKED_OUT):
            promising = min(
                ((self._promise_s(layers), layers) for layers in self._divisions() - attempted), default=None
            )
            if promising is None or (best is not None and promising[0] >= best.estimate.step_time_s):
                break
            _, layers = promising
            attempted.add(layers)
            mine = self._make_feasible(layers)
            one = None if mine is None else self._whole(layers, mine)
            if mine is None or one is None:
                continue
            self._note_beyond(self._gone_so_far(layers, mine), [sum(memory_B.values()) for memory_B in one.memory_B])
            if best is None or one.estimate.step_time_s < best.estimate.step_time_s:
                best = one
        return best

    def _note_beyond(self, stages: Sequence[Stage], peaks_B: Sequence[float]) -> None:
        """Note what the true peaks of `stages` have beyond what is known of these without programs."""
        self.beyond_B = [max(0.0, peak_B - stage.peak_B) for stage, peak_B in zip(stages, peaks_B, strict=True)]

    # -- divisions of the blocks ---------------------------------------------------------------------------------------

    def _divisions(self) -> set[tuple[int, ...]]:
        row = self.found.row
        free = divided(row, self.chain, float("inf"))
        limits_B = [self.limit_B - more for more in self.beyond_B]
        every = [
            self.found.estimate.stages,
            None if free is None else free.stages,
            selected_stages(row, self.network.depths, self.paths, limits_B),
        ]
        return {tuple(stage.blocks for stage in stages) for stages in every if stages is not None}

    # -- one division --------------------------------------------------------------------------------------------------

    def _plain(self, layers: Sequence[int]) -> tuple[Stage, ...]:
        return laid_out(self.chain, layers, [0] * len(layers), self.schedule)

    def _promise_s(self, layers: Sequence[int]) -> float:
        """Seconds of a step by what is known without programs; inf where not even everything recomputed fits."""
        each_s, once_s = list[float](), list[float]()
        for number, stage in enumerate(self._plain(layers)):
            steps = self._steps(layers, number)
            missing_B = stage.peak_B + self.beyond_B[number] - self.limit_B
            flight = self._flight(layers, number)
            step = steps.saving(missing_B / flight, 0, len(steps))
            if step is None:
                return float("inf")
            each_s.append(stage.each_s + steps.recompute_s[step])
            once_s.append(stage.once_s)
        return self.schedule.step_s(each_s, self.schedule.ending_s(each_s, once_s))

    def _steps(self, layers: Sequence[int], number: int) -> Steps:
        """All mixtures of a stage."""
        start, flight = sum(layers[:number]), self.schedule.in_flight(number, len(layers))
        counts_in_flight = [n / flight.mean for n in flight.of_blocks(layers[number])]
        return Steps(self.paths, self.kinds[start : start + layers[number]], counts_in_flight)

    def _make_feasible(self, layers: Sequence[int]) -> list[Step] | None:
        """How far the stages go with so many blocks, each as its true peak makes necessary; None if one does not fit."""
        chosen = []
        try:
            for number in range(len(layers)):
                step = self._first_feasible(layers, number)
                if step is None:
                    return None
                chosen.append(step)
        except InvalidStrategyError:
            return None
        return chosen

    def _whole(self, layers: Sequence[int], chosen: Sequence[Step]) -> MaterializedPlan | None:
        """The plan whose stages go so far."""
        stages = self._gone_so_far(layers, chosen)
        try:
            memory_B = self.peaks.of(stages, [step.mix for step in chosen])
        except InvalidStrategyError:
            return None
        row = self.found.row
        estimate = estimated(row, self.chain, stages)
        found = with_memory(estimate, row, self.found.strategies, memory_B)
        return replace(found, mixes=tuple(step.mix for step in chosen))

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
        plain_B, beyond_B = self._plain(layers)[number].peak_B, self.beyond_B[number] or self.likely_B
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
            self.is_whole
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
        stage = Stage(layers[number], step.first, 0.0, 0.0)
        return float(sum(self.peaks.of_one(number, len(layers), sum(layers[:number]), stage, step.mix).values()))
