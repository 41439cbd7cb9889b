"""Plans in micro-batches that recompute operators inside blocks: whole-block plans made faster, their layouts as they are.

Every stage has its own mixture of two neighbouring levels (`selected`): the first one, in the order in which they save more and
more, whose true peak fits. Blocks may be divided anew: there are the division of the plan, that of free memory, and the best one
if stages could have anything between two levels; the two that promise most are worked out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.folded.chain import SelectedChain, Stage, Turns
from ms_symtensor.search.folded.memory import ShortGraphs
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.search.selections.selected import Level, levels, mix_of
from ms_symtensor.search.stages.estimate import divided, estimated, parts_of
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.stage_layers import divided_chain, laid_out
from ms_symtensor.search.stages.whole import Whole, peaks_of, with_memory

WORKED_OUT = 2
"""empirical: so many divisions of the blocks are worked out with true peaks; each writes the programs of all stages."""


@dataclass(frozen=True)
class _Step:
    """How far a stage goes: its mixture and how many blocks come first, what that takes and saves beside recomputing nothing."""

    mix: Mix
    first: int
    again_s: float
    saved_B: float


def selecting(
    network: Network,
    found: Whole,
    shorts: ShortGraphs,
    limit_B: float,
    cluster: Cluster,
    rules: Mapping[str, Rule] | None = None,
    only: bool = False,
) -> Whole | None:
    """`found` with blocks recomputed in part where that makes it faster; `shorts` is the network of `found.strategies`.

    `only`: no block as a whole, whether that is faster or not; None if nothing fits then.
    """
    turns = Turns(found.estimate.shape.micro_batch_num, found.estimate.shape.interleave)
    if not any(stage.recomputed for stage in found.estimate.stages):
        return found
    every = levels(shorts, found.strategies, found.settings, cluster, only) if turns.interleave == 1 else ()
    if not every:
        return None if only else found
    return _Selecting(network, found, every, limit_B, turns, rules).best(None if only else found)


def fitting(
    network: Network,
    found: Whole,
    shorts: ShortGraphs,
    limit_B: float,
    cluster: Cluster,
    rules: Mapping[str, Rule] | None = None,
) -> Whole | None:
    """`found`, which does not fit, with blocks recomputed in part so that it does; None if they cannot be."""
    turns = Turns(found.estimate.shape.micro_batch_num, found.estimate.shape.interleave)
    every = levels(shorts, found.strategies, found.settings, cluster) if turns.interleave == 1 else ()
    return _Selecting(network, found, every, limit_B, turns, rules).best(None) if every else None


class _Selecting:
    def __init__(
        self, network: Network, found: Whole, every: Sequence[Level], limit_B: float, turns: Turns,
        rules: Mapping[str, Rule] | None,
    ) -> None:  # fmt: skip
        self.network, self.found, self.every, self.limit_B, self.turns = network, found, every, limit_B, turns
        self.parts = parts_of(found.row, network.depths)
        self.kinds = [kind for kind, depth in enumerate(network.depths[1:-1]) for _ in range(depth)]
        self.peaks = peaks_of(network, found.row, found.strategies, rules)
        layers = [stage.blocks for stage in found.estimate.stages]
        guessed = laid_out(self.parts, layers, [s.recomputed for s in found.estimate.stages], turns)
        self.beyond_B = [
            max(0.0, sum(memory_B.values()) - guess.peak_B)
            for memory_B, guess in zip(found.memory_B, guessed, strict=True)
        ]

    def best(self, best: Whole | None) -> Whole | None:
        """The fastest of what is worked out and `best`."""
        promising = sorted((self._promise_s(layers), layers) for layers in self._divisions())
        for promise_s, layers in promising[:WORKED_OUT]:
            if best is not None and promise_s >= best.estimate.step_time_s:
                break
            one = self._worked_out(layers)
            if one is not None and (best is None or one.estimate.step_time_s < best.estimate.step_time_s):
                best = one
        return best

    # -- divisions of the blocks ---------------------------------------------------------------------------------------

    def _divisions(self) -> set[tuple[int, ...]]:
        row = self.found.row
        free = divided(row, self.network.depths, float("inf"))
        limits_B = [self.limit_B - more for more in self.beyond_B]
        every = [
            self.found.estimate.stages,
            None if free is None else free.stages,
            divided_chain(SelectedChain(self.parts, self._levels()), limits_B, self.turns),
        ]
        return {tuple(stage.blocks for stage in stages) for stages in every if stages is not None}

    def _levels(self) -> NDArray[np.float64]:
        """What the parts of the chain recompute on every level and what that saves, [levels, parts, (seconds, bytes)]."""
        kinds = iter(self.kinds)
        found = np.zeros((len(self.every), len(self.parts), 2))
        for number, part in enumerate(self.parts):
            if part.is_block:
                kind = next(kinds)
                plain = self.every[0].corners[kind]
                found[:, number] = [
                    (c.again_s, plain.kept_B - c.kept_B) for c in (one.corners[kind] for one in self.every)
                ]
        return found

    # -- one division --------------------------------------------------------------------------------------------------

    def _plain(self, layers: Sequence[int]) -> tuple[Stage, ...]:
        return laid_out(self.parts, layers, [0] * len(layers), self.turns)

    def _promise_s(self, layers: Sequence[int]) -> float:
        """Seconds of a step by what is known without programs; inf where not even everything recomputed fits."""
        each_s, once_s = [], 0.0
        for number, (stage, steps) in enumerate(zip(self._plain(layers), self._steps(layers), strict=True)):
            missing_B = stage.peak_B + self.beyond_B[number] - self.limit_B
            flight = self.turns.in_flight(number, len(layers))
            step = next((s for s in steps if flight * s.saved_B >= missing_B), None)
            if step is None:
                return float("inf")
            each_s.append(stage.each_s + step.again_s)
            once_s = max(once_s, stage.once_s)
        return self.turns.step_s(each_s, once_s)

    def _steps(self, layers: Sequence[int]) -> list[list[_Step]]:
        """For every stage all its mixtures, from nothing to everything."""
        found, start = [], 0
        for blocks in layers:
            found.append(self._steps_of(self.kinds[start : start + blocks]))
            start += blocks
        return found

    def _steps_of(self, held: Sequence[int]) -> list[_Step]:
        def totals(level: Level, kinds: Sequence[int]) -> tuple[float, float]:
            corners, plain = [level.corners[k] for k in kinds], [self.every[0].corners[k] for k in kinds]
            saved_B = sum(p.kept_B - c.kept_B for p, c in zip(plain, corners, strict=True))
            return math.fsum(c.again_s for c in corners), float(saved_B)

        steps = [_Step(WHOLE, 0, 0.0, 0.0)]
        for less, more in zip(self.every, self.every[1:], strict=False):
            for first in range(1, len(held) + 1):
                (first_s, first_B), (then_s, then_B) = totals(more, held[:first]), totals(less, held[first:])
                steps.append(_Step(mix_of(more, less), first, first_s + then_s, first_B + then_B))
        return steps

    def _worked_out(self, layers: Sequence[int]) -> Whole | None:
        """The plan with so many blocks on the stages, each as far as its true peak makes necessary; None if one does not fit."""
        plain, chosen = self._plain(layers), []
        try:
            for number, steps in enumerate(self._steps(layers)):
                step = _first_fitting(steps, self._peak_of(layers, number), self.limit_B, self._flight(layers, number))
                if step is None:
                    return None
                chosen.append(step)
            stages = tuple(
                replace(stage, recomputed=step.first, each_s=stage.each_s + step.again_s)
                for stage, step in zip(plain, chosen, strict=True)
            )
            memory_B = self.peaks.of(stages, [step.mix for step in chosen])
        except InvalidStrategyError:
            return None
        row = self.found.row
        estimate = estimated(row, self.network.depths, self.parts, stages)
        found = with_memory(estimate, row, self.found.strategies, memory_B)
        return replace(found, mixes=tuple(step.mix for step in chosen))

    def _flight(self, layers: Sequence[int], number: int) -> int:
        return self.turns.in_flight(number, len(layers))

    def _peak_of(self, layers: Sequence[int], number: int) -> Callable[[_Step], float]:
        start = sum(layers[:number])

        def peak_B(step: _Step) -> float:
            stage = Stage(layers[number], step.first, 0.0, 0.0)
            return float(sum(self.peaks.of_one(number, len(layers), start, stage, step.mix).values()))

        return peak_B


def _first_fitting(
    steps: Sequence[_Step], peak_B: Callable[[_Step], float], limit_B: float, flight: int
) -> _Step | None:
    """The first of `steps` whose peak fits; peaks fall from step to step, about as `flight` micro-batches save more."""
    low, high = 0, len(steps)  # the answer is one of low … high
    middle = 0
    while low < high:
        size_B = peak_B(steps[middle])
        if size_B <= limit_B:
            high = middle
            middle = max(low, middle - 1)
        else:
            low = middle + 1
            wanted_B = steps[middle].saved_B + (size_B - limit_B) / flight
            middle = next((n for n in range(low, high) if steps[n].saved_B >= wanted_B), (low + high) // 2)
    return steps[low] if low < len(steps) else None
