"""The true peak memory of a plan, found on a short network and carried on to the full depth.

The live bytes of a chain of equal blocks are known everywhere from a program with three recomputed and three plain blocks:
further blocks of either kind, put before the last of their kind, only add what the middle one keeps until the backward pass,
and only while they wait for it. (The first and the last of a kind may keep other tensors, since what a block moves or casts
for the next one is kept or not with either of the two.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ms_symtensor.cost.step import buffers_B
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.forward import Meanings
from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.folding import Fold, repeated_blocks, shorten
from ms_symtensor.tensor.graph import Graph

EACH = 3
"""Blocks of either kind (plain, recomputed) in the longest short program."""

Peak = tuple[int, int]
"""Bytes of activations at the peak, and of communication buffers."""


@dataclass(frozen=True)
class ShortGraphs:
    """A network with up to 2 EACH of its repeated blocks, and what its operators mean."""

    blocks: tuple[str, ...]
    by_length: Mapping[int, tuple[Graph, Meanings]]


def short_graphs(graph: Graph, folded: Fold, known: Meanings) -> ShortGraphs:
    """The short networks of `graph`, whose operators mean what `known` says; where it has few blocks, itself."""
    blocks = repeated_blocks(graph, folded)
    lengths = [len(blocks)] if len(blocks) <= 2 * EACH else range(EACH, 2 * EACH + 1)
    shorts = {n: shorten(graph, folded, n) for n in lengths}
    return ShortGraphs(blocks, {n: (short, known) for n, short in shorts.items()})


@dataclass
class PeakMemory:
    """Peaks for one choice of strategies and settings, for any number of recomputed blocks."""

    shorts: ShortGraphs
    strategies: Mapping[str, OpStrategy]
    settings: Settings
    _known: dict[tuple[int, int], "_Short"] = field(default_factory=dict)

    def of(self, recomputed: int) -> Peak:
        """The peak with the first `recomputed` blocks recomputed."""
        blocks = len(self.shorts.blocks)
        if blocks <= 2 * EACH:
            short = self._short(blocks - recomputed, recomputed)
            return max(short.live_B, default=0), short.buffers_B
        plain = blocks - recomputed
        first, second = min(plain, EACH), min(recomputed, EACH)
        short = self._short(first, second)
        return short.peak_B(plain - first, recomputed - second), short.buffers_B

    def _short(self, plain: int, recomputed: int) -> "_Short":
        key = (plain, recomputed)
        if key not in self._known:
            small, known = self.shorts.by_length[plain + recomputed]
            again = dict.fromkeys(self.shorts.blocks[:recomputed], Recompute())
            kept = {op.name: self.strategies[op.name] for op in small.ops if op.name in self.strategies}
            program = partition(small, StagePlan(kept, replace(self.settings, recompute=again)), known=known)
            self._known[key] = _measure(program, self.shorts.blocks[: plain + recomputed], recomputed)
        return self._known[key]


@dataclass(frozen=True)
class _Short:
    """The live bytes of a short program, step by step.

    `waits` tells for every step how many kinds of further blocks have run forward and wait for their backward pass: 0 none
    (the first block), 1 the recomputed ones, 2 all (the last block, and what follows the blocks). `kept_B` is what one
    more recomputed and one more plain block keep.
    """

    live_B: tuple[int, ...]
    waits: tuple[int, ...]
    kept_B: tuple[int, int]
    buffers_B: int

    def peak_B(self, plain: int, recomputed: int) -> int:
        """The peak with so many further blocks of either kind."""
        first = recomputed * self.kept_B[0]
        more = (0, first, first + plain * self.kept_B[1])
        return max(live + more[waits] for live, waits in zip(self.live_B, self.waits, strict=True))


def _measure(program: Program, blocks: tuple[str, ...], recomputed: int) -> _Short:
    """Measure a short program whose first `recomputed` blocks are recomputed."""
    sizes = {i: t.size_B for i, t in enumerate(program.tensors)}
    steps = program_steps(program)
    alive = lives(steps, program.kept)
    made_in = {t: n.block for n in program.nodes for t in n.outputs}
    half = sum(not s.is_backward for s in steps)
    kept: dict[str | None, int] = {}
    for tensor, (first, last) in alive.items():
        if first < half <= last:
            kept[made_in[tensor]] = kept.get(made_in[tensor], 0) + sizes[tensor]
    again, plain = blocks[:recomputed], blocks[recomputed:]
    waits = dict.fromkeys(blocks, 1)
    if blocks:
        waits |= {blocks[0]: 0, blocks[-1]: 2}
    return _Short(
        tuple(live_B(alive, sizes, len(steps))),
        tuple(waits.get(n.block or "", 2) for n in program.nodes),
        (kept.get(again[1], 0) if len(again) > 1 else 0, kept.get(plain[1], 0) if len(plain) > 1 else 0),
        buffers_B(program),
    )
