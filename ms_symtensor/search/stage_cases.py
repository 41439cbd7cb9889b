"""Cases of which one is true however the blocks are divided into stages: each bounds the step by what one stage holds.

Let b_0 = 0 <= b_1 <= … <= b_P = L be any numbers of blocks, and e_s how many blocks stand before stage s. At the last s with
e_s <= b_s, stage s < P - 1 holds the blocks b_s to b_(s+1) at least, both included, since e_(s+1) > b_(s+1); the last stage,
all blocks from b_(P-1). So one of P runs of blocks lies on one stage. If that is stage s,

    T >= (M - 1) (t_run + r a_run) + Σ_places t + r a_run + once        with r such that the run fits stage s,

which is bounded below as a weighted sum of what every place costs, with a price on the memory of stage s. The b are runs that no
layout known so far can hold on one stage in a step as fast as is asked for.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.pipeline import in_flight
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_layers import Chain, Part
from ms_symtensor.search.terms import Costs, Weights

Array = NDArray[np.float64]

HALVINGS = 6
"""So often the interval is halved in which the slowest step is sought that cases can show."""


@dataclass(frozen=True)
class Case:
    """One stage, which keeps `flight` micro-batches, holds a run of blocks: so often every place of the network."""

    held: tuple[int, ...]
    flight: int


@dataclass(frozen=True)
class Layout:
    """A choice of layouts: its parts one by one, and `total_s`: a step is so much longer than (M - 1) times its slowest stage."""

    chain: Chain
    total_s: float


def layout(parts: Sequence[Part], once_s: float) -> Layout:
    """The layout that costs `parts`, and `once_s` at the end of a step."""
    return Layout(Chain(parts), sum(part.each_s for part in parts) + once_s)


def cases(
    known: Sequence[Layout], occurrences: Sequence[int], shape: Shape, limit_B: float, bound_s: float, asked_s: float
) -> tuple[Case, ...]:
    """The cases that show for the layouts `known` that no step on `shape` is faster than `asked_s`, or else, than as long a time
    above `bound_s` as can be shown.

    Equal runs are one case, with the fewest micro-batches that any of their stages keeps.
    """
    starts = _slowest(known, shape, limit_B, bound_s, asked_s)
    chain, place_of = known[0].chain, [place for place, n in enumerate(occurrences) for _ in range(n)]
    blocks = int(chain.blocks[-1])
    ends = [*starts[1:], blocks]
    held_by: dict[tuple[int, ...], int] = {}
    for stage, (start, end) in enumerate(zip(starts, ends, strict=True)):
        later = shape.stages - stage - 1
        last = end + (1 if later else 0)
        if last > blocks - later:
            continue  # every later stage holds a block
        held = [0] * len(occurrences)
        for part in range(_part(chain, start) if stage else 0, _part(chain, last) if later else len(place_of)):
            held[place_of[part]] += 1
        flight = in_flight(stage, shape.stages, shape.micro_batch_num)
        held_by[tuple(held)] = min(flight, held_by.get(tuple(held), flight))
    return tuple(Case(held, flight) for held, flight in held_by.items())


def _slowest(known: Sequence[Layout], shape: Shape, limit_B: float, bound_s: float, asked_s: float) -> list[int]:
    """How many blocks stand before every stage, such that no layout can hold what follows in a step as fast as can be."""
    found = _starts(known, shape, limit_B, asked_s)
    low_s, high_s = bound_s, asked_s
    for _ in range(0 if found else HALVINGS):
        middle_s = (low_s + high_s) / 2
        if (slower := _starts(known, shape, limit_B, middle_s)) is None:
            high_s = middle_s
        else:
            low_s, found = middle_s, slower
    blocks = int(known[0].chain.blocks[-1])
    return found or [stage * blocks // shape.stages for stage in range(shape.stages)]


def _starts(known: Sequence[Layout], shape: Shape, limit_B: float, step_s: float) -> list[int] | None:
    """How many blocks stand before every stage if each takes as many as any layout holds in a step of `step_s`, or one block;
    None if the last stage holds the rest.
    """
    blocks, start, found = int(known[0].chain.blocks[-1]), 0, []
    for stage in range(shape.stages):
        found.append(start)
        later = shape.stages - stage - 1
        least = start if later else blocks
        ends = [_end(one, shape, stage, start, least, blocks - later, limit_B, step_s) for one in known]
        if not later:
            return None if max(ends) == blocks else found
        start = max(*ends, stage + 1)
    return found


def _end(
    one: Layout, shape: Shape, stage: int, start: int, least: int, most: int, limit_B: float, step_s: float
) -> int:
    """The last block count, of those from `least` to `most`, up to which the layout holds blocks from `start`; else `start`."""
    chain, flight = one.chain, in_flight(stage, shape.stages, shape.micro_batch_num)
    pace_s = (step_s - one.total_s) / (shape.micro_batch_num - 1)
    begin = _part(chain, start) if stage else 0

    def holds(end: int) -> bool:
        part = len(chain.parts) if stage == shape.stages - 1 else _part(chain, end)
        return chain.stage(begin, part, flight, limit_B, pace_s) is not None

    if least == most:
        return most if holds(most) else start
    low, high = start, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _part(chain: Chain, blocks: int) -> int:
    """The number of the part that is block number `blocks`."""
    return bisect_right(chain.blocks, blocks) - 1


def best_price(weights: Weights, known: Sequence[Costs], limit_B: float, asked_s: float) -> Array:
    """The price of memory, case by case, at which the best of the layouts `known` is as slow as can be.

    The value of a layout, recomputing what pays, is a concave function of the price: the best is where two of these cross, or
    where recomputation begins to pay; a price at which all are slower than `asked_s` will do.
    """
    plain, again, memory, saved = (np.stack(rows) for rows in zip(*(_sums(weights, one) for one in known), strict=True))
    over = memory - limit_B
    lines = [(plain, over), (plain + again, over - saved)]
    prices = [np.zeros_like(plain[0])]
    with np.errstate(divide="ignore", invalid="ignore"):
        prices += list(again / saved)
        for value, slope in lines:
            prices += list((asked_s - value) / slope)
            for other, other_slope in lines:
                prices += [
                    (other[j] - value[i]) / (slope[i] - other_slope[j]) for i in range(len(known)) for j in range(i)
                ]
    price = np.stack(prices)
    price = np.where(np.isfinite(price) & (price > 0), price, 0.0)[:, None, :]
    least = np.minimum(*(value + price * slope for value, slope in lines)).min(axis=1)
    best = np.argmax(np.minimum(least, asked_s), axis=0)
    found: Array = np.take_along_axis(price[:, 0], best[None], axis=0)[0]
    return found


def _sums(weights: Weights, one: Costs) -> tuple[Array, Array, Array, Array]:
    """Seconds without recomputation, and of it; bytes, and what it saves; case by case."""
    plain = one.each_s @ weights.each_s + one.once_s @ weights.once_s
    memory = one.kept_B @ weights.kept_B + one.at_rest_B @ weights.at_rest_B
    return plain, one.again_s @ weights.again_s, memory, (one.kept_B - one.kept_recomputed_B) @ weights.saved_B


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
    # Where all blocks are recomputed, the one that is computed again first is there, what stands behind them no longer; of
    # several kinds, it may be the smallest.
    blocks = held.copy()
    blocks[[0, -1]] = 0.0
    number_held = blocks.sum(axis=0)
    kinds = sum(blocks[place : place + 3].any(axis=0) for place in range(1, len(blocks) - 1, 3))
    blocks *= np.where((kinds == 1) & (held[-1] == 0), 1 - 1 / (flight * np.maximum(number_held, 1)), 1.0)
    return Weights(there + (number - 1) * held, number * blocks, there / stages, flight * held, flight * blocks, held)
