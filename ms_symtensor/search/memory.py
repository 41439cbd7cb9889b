"""The true peak memory of a plan, found on a short network and carried on to the full depth.

The peak of a chain of equal blocks grows by the same amount with every block, so that programs of two and three blocks tell
the peak of any number: M(L) = M(2) + (L - 2) (M(3) - M(2)), plain and recomputed blocks counted apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ms_symtensor.cost.step import buffers_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.forward import Meanings, meanings
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.folding import Fold, repeated_blocks, shorten
from ms_symtensor.tensor.graph import Graph

SHORT = 3
"""Blocks of the longest short program."""

Peak = tuple[int, int]
"""Bytes of activations at the peak, and of communication buffers."""


@dataclass(frozen=True)
class ShortGraphs:
    """A network with one to SHORT of its repeated blocks, and what its operators mean."""

    blocks: tuple[str, ...]
    by_length: Mapping[int, tuple[Graph, Meanings]]


def short_graphs(graph: Graph, folded: Fold, rules: Mapping[str, Rule] | None = None) -> ShortGraphs:
    """The short networks of `graph`; where it has no more than SHORT blocks, itself."""
    blocks = repeated_blocks(graph, folded)
    lengths = [len(blocks)] if len(blocks) <= SHORT else range(2, SHORT + 1)
    shorts = {n: shorten(graph, folded, n) for n in lengths}
    return ShortGraphs(blocks, {n: (short, meanings(short, rules)) for n, short in shorts.items()})


@dataclass
class PeakMemory:
    """Peaks for one choice of strategies and settings, for any number of recomputed blocks."""

    shorts: ShortGraphs
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    _known: dict[Peak, Peak] = field(default_factory=dict)

    def of(self, recomputed: int) -> Peak:
        """The peak with the first `recomputed` blocks recomputed."""
        blocks = len(self.shorts.blocks)
        plain = blocks - recomputed
        if blocks <= SHORT:
            return self._short(plain, recomputed)
        if recomputed == 0:
            return _along(self._short(2, 0), self._short(3, 0)[0], blocks - 2)
        mixed = self._short(1, 1)
        longer = _along(mixed, self._short(2, 1)[0], plain - 1)
        return _along(longer, longer[0] + self._short(1, 2)[0] - mixed[0], recomputed - 1)

    def _short(self, plain: int, recomputed: int) -> Peak:
        key = (plain, recomputed)
        if key not in self._known:
            small, known = self.shorts.by_length[plain + recomputed]
            again = dict.fromkeys(self.shorts.blocks[:recomputed], Recompute())
            kept = {op.name: self.strategies[op.name] for op in small.ops if op.name in self.strategies}
            program = partition(small, StagePlan(kept, replace(self.settings, recompute=again)), known=known)
            self._known[key] = activation_peak_B(program), buffers_B(program)
        return self._known[key]


def _along(first: Peak, next_B: int, more: int) -> Peak:
    return first[0] + more * (next_B - first[0]), first[1]
