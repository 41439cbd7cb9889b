"""What a rank holds whose devices take the whole batch at once: the peaks of a plan of one stage without micro-batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ms_symtensor.cost.step import memory_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.folded.memory import PeakMemory, ShortGraphs, further
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.tensor.graph import Graph


@dataclass
class WholePeaks:
    """As `StagePeaks`, for the network that `shorts` stands for."""

    shorts: ShortGraphs
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    _known: dict[Mix, PeakMemory] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.shorts.graph

    def under(self, settings: Settings) -> "WholePeaks":
        """The same under other settings."""
        return replace(self, settings=settings, _known={})

    def of(self, stages: Sequence[Stage], mixes: Sequence[Mix] = ()) -> tuple[dict[str, int], ...]:
        """Bytes by `cost.step.MEMORIES` of the only stage."""
        return (self.of_one(0, 1, 0, stages[0], mixes[0] if mixes else WHOLE),)

    def of_one(self, number: int, stages: int, start: int, stage: Stage, mix: Mix = WHOLE) -> dict[str, int]:
        """Those of `stage`, the only one."""
        activations_B, buffers_B = self._peaks(mix).of(stage.recomputed)
        return {**self._at_rest_B, "activations": activations_B, "buffers": buffers_B}

    def program_of(self, start: int, stage: Stage) -> Program:
        """The program, with few blocks."""
        return self._peaks(WHOLE).program(self.shorts.short_runs(self.shorts.runs(stage.recomputed)))

    def _peaks(self, mix: Mix) -> PeakMemory:
        if mix not in self._known:
            self._known[mix] = PeakMemory(self.shorts, self.strategies, self.settings, mix)
        return self._known[mix]

    @cached_property
    def _at_rest_B(self) -> Mapping[str, int]:
        true = self.shorts.runs(0)
        runs = self.shorts.short_runs(true)
        more = zip(self.shorts.named(runs), further(true, runs), strict=True)
        times = {names[1]: 1 + count for names, count in more if len(names) > 1}
        peaks = self._peaks(WHOLE)
        return memory_B(self.shorts.of(runs), peaks.plan(runs), peaks.program(runs), times)
