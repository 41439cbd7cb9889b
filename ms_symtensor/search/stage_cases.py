"""Cases of which one is true however the blocks are divided into stages: each bounds the step by what one stage holds.

Let b_0 = 0 <= b_1 <= … <= b_P = L be any numbers of blocks, and e_s how many blocks stand before stage s. At the last s with
e_s <= b_s, stage s < P - 1 holds the blocks b_s to b_(s+1) at least, both included, since e_(s+1) > b_(s+1); the last stage,
all blocks from b_(P-1). So one of P runs of blocks lies on one stage. If that is stage s,

    T >= (M - 1) (t_run + r a_run) + Σ_places t + r a_run + once        with r such that the run fits stage s,

which is bounded below as a weighted sum of what every place costs, with a price on the memory of stage s. The b are those of a
good division that was found: the runs that it cannot hold at its pace.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_layers import Chain, Part
from ms_symtensor.search.terms import Weights


@dataclass(frozen=True)
class Case:
    """One stage, which keeps `flight` micro-batches, holds a run of blocks: so often every place of the network."""

    held: tuple[int, ...]
    flight: int


def cases(
    parts: Sequence[Part], occurrences: Sequence[int], stages: int, micro_batch_num: int, limit_B: float, pace_s: float
) -> tuple[Case, ...]:
    """The cases for what `parts` cost, which can be divided into stages at `pace_s` but at no faster pace.

    Equal runs are one case, with the fewest micro-batches that any of their stages keeps.
    """
    chain, place_of = Chain(parts), [place for place, n in enumerate(occurrences) for _ in range(n)]
    blocks = int(chain.blocks[-1])
    starts = [*_starts(chain, stages, micro_batch_num, limit_B, pace_s * (1 - 1e-9)), blocks]
    found: dict[tuple[int, ...], int] = {}
    for stage in range(stages):
        later = stages - stage - 1
        first, last = starts[stage], starts[stage + 1] + (1 if later else 0)
        if last > blocks - later:
            continue  # every later stage holds a block
        held = [0] * len(occurrences)
        for part in range(_part(chain, first) if stage else 0, _part(chain, last) if later else len(place_of)):
            held[place_of[part]] += 1
        flight = in_flight(stage, stages, micro_batch_num)
        found[tuple(held)] = min(flight, found.get(tuple(held), flight))
    return tuple(Case(held, flight) for held, flight in found.items())


def _part(chain: Chain, blocks: int) -> int:
    """The number of the part that is block number `blocks`."""
    return bisect_right(chain.blocks, blocks) - 1


def _starts(chain: Chain, stages: int, micro_batch_num: int, limit_B: float, pace_s: float) -> Iterator[int]:
    """How many blocks stand before every stage if each takes as many as fit within `pace_s`."""
    blocks, start = int(chain.blocks[-1]), 0
    for stage in range(stages):
        yield start
        later = stages - stage - 1
        flight, most = in_flight(stage, stages, micro_batch_num), blocks - later
        low, high = start, most
        while low < high:
            middle = (low + high + 1) // 2
            begin = _part(chain, start) if stage else 0
            if chain.stage(begin, _part(chain, middle), flight, limit_B, pace_s) is None:
                high = middle - 1
            else:
                low = middle
        start = max(low, stage + 1)


def case_weights(occurrences: Sequence[int], members: Sequence[Shape], chosen: Sequence[Case]) -> Weights:
    """How much every place counts in each of the cases `chosen`, of the shapes `members`."""
    held = np.array([case.held for case in chosen], dtype=float).T
    number, stages, flight = (
        np.array(column, dtype=float)
        for column in zip(
            *((m.micro_batch_num, m.stages, c.flight) for m, c in zip(members, chosen, strict=True)), strict=True
        )
    )
    there = np.array(occurrences, dtype=float)[:, None]
    blocks = held.copy()
    blocks[[0, -1]] = 0.0
    return Weights(there + (number - 1) * held, number * blocks, there / stages, flight * held, flight * blocks, held)
