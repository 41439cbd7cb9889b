"""The peak of a long program from a short one: of every run of equal periods of blocks a few are written.

A period is one block, or several that come again in this order. The live bytes of a long run are known everywhere from a run of
three periods: further ones, put before the last one, only add what the middle one keeps until the backward pass, and only while
they wait for it. (The first and the last of a run may keep other tensors, since what a block moves or casts for the next one is
kept or not with either of the two.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ms_symtensor.program.liveness import live_B, lives, program_steps
from ms_symtensor.program.program import Program

EACH = 3
"""Periods of a run in a short program: the first, one for all between, the last."""

Period = Sequence[str]
"""The names of the blocks of a period, in order."""


@dataclass(frozen=True)
class ShortProgram:
    """The live bytes of a short program, step by step.

    Attributes:
        waits: for every step, how many of the runs have their further periods run forward and waiting for their backward pass.
        kept_B: bytes that one more period of every run keeps.
    """

    live_B: tuple[int, ...]
    waits: tuple[int, ...]
    kept_B: tuple[int, ...]

    def peak_B(self, more: Sequence[int]) -> int:
        """The peak with `more` further periods in every run."""
        waiting = (0, *accumulate(n * kept for n, kept in zip(more, self.kept_B, strict=True)))
        return max((live + waiting[w] for live, w in zip(self.live_B, self.waits, strict=True)), default=0)


def measure(program: Program, runs: Sequence[Sequence[Period]]) -> ShortProgram:
    """Measure a short program whose blocks make `runs`, each a few periods."""
    sizes = {i: t.size_B for i, t in enumerate(program.tensors)}
    steps = program_steps(program)
    alive = lives(steps, program.kept)
    made_in = {t: n.block for n in program.nodes for t in n.outputs}
    half = sum(not s.is_backward for s in steps)
    kept: dict[str | None, int] = {}
    for tensor, (first, last) in alive.items():
        if first < half <= last:
            kept[made_in[tensor]] = kept.get(made_in[tensor], 0) + sizes[tensor]
    waits: dict[str | None, int] = {}
    for number, run in enumerate(runs):
        waits |= {name: number + (place > 0) for place, period in enumerate(run) for name in period}
    return ShortProgram(
        tuple(live_B(alive, sizes, len(steps))),
        tuple(waits.get(n.block, len(runs)) for n in program.nodes),
        tuple(sum(kept.get(name, 0) for period in run[1:2] for name in period) for run in runs),
    )
