"""Cases of which one is true however blocks are divided into stages, made of one `Division` of them.

Some stage holds a block more than there; or none does, and then all stages hold what they do there. Where it is not excluded that
a stage holds one more, it holds two more; or just one more, and then the others together have one less, none of them more than is
not excluded. And so on.

Blocks of the last kind are divided: those of the kinds before it stand on the first stage, and one of the last kind too. That it
holds fewer is a case of its own (`stage_cases.on_few`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ms_symtensor.program.passes import Flights
from ms_symtensor.program.pipeline import dealt
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.stage_cases import Case, Held


def first_least(occurrences: tuple[int, ...], shape: Shape) -> int:
    """How many blocks the first stage of a division holds at least."""
    return max(shape.interleave, 1 + sum(occurrences[1:-4]))


@dataclass(frozen=True)
class Part:
    """One of `stages` holds `blocks` at least; or just so many (`is_whole`), and the others what is left for them.

    `case`: what is true then.
    """

    stages: tuple[int, ...]
    blocks: int
    is_whole: bool
    case: Case


@dataclass(frozen=True)
class Division:
    """The blocks on the stages of `shape`, at `most` so many on each; the network has every place so often as `occurrences`
    says.
    """

    occurrences: tuple[int, ...]
    shape: Shape
    most: tuple[int, ...]

    def parts(self, slowest: int) -> list[Part]:
        """All there is, if these are all blocks: more on some stage, alike ones at once; or just these, counted by what the
        stage `slowest` takes.
        """
        last, more = len(self.most) - 1, dict[tuple[int, int], list[int]]()
        for stage, blocks in enumerate(self.most):
            more.setdefault((stage if stage in (0, last) else 1, blocks + 1), []).append(stage)
        every = (self._at_least(tuple(stages), blocks) for (_, blocks), stages in more.items())
        return [*(part for one in every for part in one), self._just(slowest, self.most[slowest])]

    def finer(self, part: Part) -> tuple["Division", list[Part]]:
        """What `part` consists of, the last one of its stages apart, which keeps the fewest micro-batches; and the division that
        may have so many blocks there. A whole consists of nothing.
        """
        if part.is_whole:
            return self, []
        *others, last = part.stages
        most = tuple(part.blocks if stage == last else n for stage, n in enumerate(self.most))
        more = self._at_least(tuple(others), part.blocks) if others else []
        just = self._just(last, part.blocks)
        return replace(self, most=most), [*more, *self._at_least((last,), part.blocks + 1), just]

    def _at_least(self, stages: tuple[int, ...], blocks: int) -> list[Part]:
        """That one of these holds so many; nothing where that leaves none for a run of another one."""
        last, layers = stages[-1], self._least
        if blocks > self._blocks - sum(layers) + layers[last]:
            return []
        held = self._held([blocks if stage == last else n for stage, n in enumerate(layers)])
        return [Part(stages, blocks, False, Case(held[last], self._flights[last], held[0]))]

    def _just(self, stage: int, blocks: int) -> Part:
        """That one holds just so many."""
        layers = [blocks if other == stage else n for other, n in enumerate(self.most)]
        missing = sum(layers) - self._blocks
        for others in (range(stage), range(stage + 1, len(layers))):
            for other in self._shortened(others, missing):
                layers[other] = max(layers[other] - missing, self._least[other])
        every = list(zip(self._held(layers), self._flights, strict=True))
        case = Case(*every[stage], every[0][0], tuple(every[:stage]), tuple(every[stage + 1 :]))
        return Part((stage,), blocks, True, case)

    def _shortened(self, stages: Sequence[int], missing: int) -> list[int]:
        """Those of `stages` that must hold so many blocks less for all together, and the first one alone, to keep no more than
        if any did: the first one, that which comes first of those with so many to lose, and those where more micro-batches wait
        in what is lost.
        """
        lost = {stage: self._lost(stage, missing) for stage in stages if missing}
        enough = [stage for stage in lost if len(lost[stage]) == missing]
        least = min(lost[enough[0]]) if enough else 0
        return [stage for stage in lost if stage in (stages[0], *enough[:1]) or max(lost[stage], default=0) > least]

    def _lost(self, stage: int, missing: int) -> list[int]:
        """How many micro-batches wait in each block that a stage has no more, if it is to have so many less."""
        runs, least = self.shape.interleave, self._least[stage]
        whole, less = (dealt((max(self.most[stage] - n, least),), runs) for n in (0, missing))
        lengths = zip(self._flights[stage].runs, whole, less, strict=True)
        return [waiting for waiting, long, short in lengths for _ in range(long - short)]

    @property
    def _blocks(self) -> int:
        return sum(self.occurrences[1:-1])

    @cached_property
    def _least(self) -> list[int]:
        """How many every stage holds at least: one for each of its runs."""
        return [first_least(self.occurrences, self.shape), *[self.shape.interleave] * (len(self.most) - 1)]

    @cached_property
    def _flights(self) -> list[Flights]:
        return [self.shape.flights(stage) for stage in range(len(self.most))]

    def _held(self, layers: Sequence[int]) -> list[Held]:
        """How often every place lies on each stage of so many blocks, which need not be all that there are."""
        first, *between, last = layers
        before, before_last = sum(self.occurrences[1:-4]), [0] * len(self.occurrences[1:-4])
        return [
            (*self.occurrences[:-4], 1, first - before - 1, 0, 0),
            *((0, *before_last, 0, n, 0, 0) for n in between),
            (0, *before_last, 0, last - 1, 1, self.occurrences[-1]),
        ]
