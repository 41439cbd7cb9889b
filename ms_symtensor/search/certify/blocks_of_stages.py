"""A bound of one step layout: how many blocks of every kind each stage holds, by mixed-integer programming (HiGHS).

With n_ik blocks of kind k on stage i of P, its seconds s_i for a micro-batch, the slowest stage's τ, o what a step takes once:

    min  (M - 1/v) τ + Σ_i s_i / v + o
    s_i + c (o + Σ_{j<i} s_j / v) + σ L >= Σ_k n_ik B_k(σ, f_i) + E_i(σ)   for every stage i, some prices σ of a byte and shares c
    τ >= s_i,   Σ_i n_ik = D_k,   n_ik whole,   Σ_k n_ik >= v

What a stage does once per step runs while it waits for those before it, and for what they send. L is the limit in bytes, less
the buffers that every plan has, f_i the micro-batches in flight on stage i, E_i what stands before or behind the blocks. Every
row holds for all layouts and whatever is recomputed (`fronts`), each stage having layouts of its own: so the minimum is a bound
of any plan.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.search.certify.fronts import Among, Fronts, Prices
from ms_symtensor.search.folded.places import ONE_KIND
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.estimate import border_s, least_borders_s
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup
from ms_symtensor.streams import silenced
from ms_symtensor.tensor.graph import Graph, ParameterRef

Array = NDArray[np.float64]

PRICES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Prices of a byte that are tried, in times of what recomputation of whole blocks pays for one (empirical)."""

COARSE = tuple((price, 1.0) for price in PRICES)
FINE = tuple(product(PRICES, (0.0, 1.0, 4.0, 16.0)))
"""The same, each with the share of what a step takes once that is tried, in times of c (empirical)."""

FINE_ON_ONE_STAGE = tuple(
    (price, 1.0) for price in (*(n / 12 for n in range(25)), *(2 ** (1 + n / 4) for n in range(1, 13)))
)
"""The same where there is one stage, which hides nothing of what it does once (empirical)."""

IN_FLIGHT_COUNTS = 6
"""Of so many numbers of micro-batches in flight at most the fronts are worked out (empirical);
others lie above the chords between them."""

NODES = 1000
"""HiGHS looks at so many nodes at most (empirical): its bound holds wherever it stops."""

CLOSE = 1e-4
"""HiGHS stops where its bound is so near, a share (empirical: far below the gap that is asked for)."""


@dataclass(frozen=True)
class Bound:
    """Seconds that no step is faster than, and layouts [some, variables] that the bound was seen at.

    `mixed`: a variable that has several candidates there, which no plan has, and one of them; None if there is no such variable.
    """

    step_s: float
    layouts: NDArray[np.intp]
    mixed: tuple[int, int] | None = None


def bound(of: ConfigGroup, row: Candidate, fronts: Fronts, limit_B: float, finely: bool, among: Among) -> Bound:
    """The bound of the shape of `row`, a row of `of`, with candidates `among` some, on devices that hold `limit_B`; `finely`: a
    closer one, for more work.
    """
    fine = FINE_ON_ONE_STAGE if row.shape.stages == 1 else FINE
    room_B = limit_B - _buffers_B(of.problem.graph, row.shape)
    found = _bound(of, row, fronts, room_B, fine if finely else COARSE, among)
    return replace(found, step_s=max(row.bound_s, found.step_s + least_borders_s(row)))


def _buffers_B(graph: Graph, shape: StepLayout) -> int:
    """Bytes of the buffers of communicators that each device has at least: all stages are one; the devices of a stage are another
    where all blocks train, over which the gradient of a weight, or what comes of slices of it, is summed or gathered.
    """
    trained = {one.name for one in graph.parameters if one.requires_grad}
    read = ((op, one) for op in graph.ops for one in graph.tensor_inputs(op))
    train = {op.block for op, one in read if isinstance(one, ParameterRef) and one.name in trained}
    is_one_inside = math.prod(shape.mesh) > 1 and train >= {op.block for op in graph.ops if op.block is not None}
    return HCCL_BUFFER_B * ((shape.stages > 1) + is_one_inside)


def _price_s(of: ConfigGroup, row: Candidate) -> float:
    """Seconds that recomputation of whole blocks pays for a byte of a micro-batch that is not kept."""
    occurs = np.array(of.occurrences, dtype=float)[1:-1]
    saved_B = float((row.costs.kept_B - row.costs.kept_recomputed_B)[1:-1] @ occurs)
    return float(row.costs.recompute_s[1:-1] @ occurs) / max(saved_B, 1.0)


def _once(row: Candidate) -> float:
    """The share of what a step takes once that counts as seconds of a micro-batch: c of a step of equal stages."""
    return 1 / (row.shape.schedule.slowest + row.shape.stages / row.shape.interleave)


def _bound(
    of: ConfigGroup,
    row: Candidate,
    fronts: Fronts,
    limit_B: float,
    wanted: Sequence[tuple[float, float]],
    among: Among,
) -> Bound:
    shape, occurs = row.shape, np.array(of.occurrences, dtype=float)
    stages = [shape.in_flight(i) for i in range(shape.stages)]
    every = sorted({many for one in stages for many in one.runs})
    in_flight_counts = [
        every[i] for i in np.unique(np.linspace(0, len(every) - 1, IN_FLIGHT_COUNTS).round().astype(int))
    ]
    unit_s = _price_s(of, row) / (sum(one.mean for one in stages) / len(stages))
    cuts = [(unit_s * price, _once(row) * share) for price, share in wanted]
    question = [(place, many) for many in in_flight_counts for place in range(len(occurs)) if occurs[place]]
    questions = [(place, many, *cut) for place, many in question for cut in cuts]
    places, in_flight, byte_s, once = (np.array(one, dtype=float) for one in zip(*questions, strict=True))
    weights = np.zeros((len(questions), len(occurs)))
    weights[np.arange(len(questions)), places.astype(int)] = 1.0
    least = fronts.least(weights, Prices(byte_s, in_flight, once), among)
    known = np.full((len(in_flight_counts), len(occurs), len(cuts)), np.inf)
    for (place, many), some in zip(question, least.value.reshape(len(question), -1), strict=True):
        known[in_flight_counts.index(many), place] = some
    of_flight = {many: _between_in_flight(known, in_flight_counts, many) for many in every}
    # Blocks of one kind are in all runs of a stage, of several kinds one may stand in the run with the fewest in flight alone.
    runs = [one.runs if len(occurs) == ONE_KIND else (min(one.runs),) for one in stages]
    parts = np.array([np.mean([of_flight[many] for many in some], axis=0) for some in runs])
    parts[0, 0], parts[-1, -1] = of_flight[stages[0].runs[0]][0], of_flight[stages[-1].runs[-1]][-1]
    step_s, tight = _divided_s(parts, cuts, row, of.depths[1:-1], limit_B)
    of_place = least.assignment.reshape(len(in_flight_counts), -1, len(cuts), least.assignment.shape[1])
    used = [sorted({bisect_left(in_flight_counts, many) for many in one.runs}) for one in stages]
    seen = [of_place[n, :, q] for i, q in tight for n in used[i]]
    return Bound(step_s, np.unique(least.assignment, axis=0), _mixed(of, row, seen))


def _mixed(of: ConfigGroup, row: Candidate, seen: Sequence[NDArray[np.intp]]) -> tuple[int, int] | None:
    """The variable in which layouts `seen` [occurring places, variables] differ most, and its candidate in most of them: blocks
    that disagree with those count, each with the most seconds that a candidate works. Those of blocks come first.
    """
    places = np.flatnonzero(of.occurrences)
    counts = np.zeros((len(of.problem.sizes), len(of.occurrences)))
    for one in of.problem.terms:
        for v in one.scope:
            counts[v] = np.maximum(counts[v], one.counts)
    counts *= np.array(of.occurrences)
    best, mixed = (False, 0.0), None
    for v, own in enumerate(of.problem.terms[: len(of.problem.sizes)]):
        votes = np.zeros(of.problem.sizes[v])
        for layouts in seen:
            np.add.at(votes, layouts[:, v], counts[v, places])
        work_s = own.each_s[row.member]
        score = (votes.sum() - votes.max()) * float(work_s.max(initial=0.0, where=np.isfinite(work_s)))
        rank = any(own.counts[1:-1]), score
        if score and rank > best:
            best, mixed = rank, (v, int(votes.argmax()))
    return mixed


def _between_in_flight(known: Array, in_flight_counts: Sequence[int], many: int) -> Array:
    """What is `known` [flights, places, prices] at so `many` in flight: B is concave in them, so that a chord lies below it."""
    above = bisect_left(in_flight_counts, many)
    if in_flight_counts[above] == many:
        same: Array = known[above]
        return same
    share = (many - in_flight_counts[above - 1]) / (in_flight_counts[above] - in_flight_counts[above - 1])
    with np.errstate(invalid="ignore"):
        found: Array = np.where(
            np.isinf(known[above]), np.inf, known[above - 1] + share * (known[above] - known[above - 1])
        )
    return found


def _divided_s(
    parts: Array, cuts: Sequence[tuple[float, float]], row: Candidate, depths: Sequence[int], limit_B: float
) -> tuple[float, list[tuple[int, int]]]:
    """The minimum over divisions of so many blocks of every kind, inf where none fits; and the rows that are tight there, each a
    stage and the number of a cut.

    `parts` [stages, places, cuts]: B of every place as on each stage, infinite where the network has none; `cuts`: at which price
    of a byte, and for which share of what a step takes once.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    shape, kinds, sent_s = row.shape, len(depths), border_s(row)
    stages, runs = shape.stages, shape.interleave
    held, seconds = stages * kinds, stages * kinds + stages
    rows, low, high = list[Array](), list[float](), list[float]()
    row_of = dict[tuple[int, int], int]()

    def require(entries: dict[int, float], least: float, most: float) -> None:
        line = np.zeros(seconds + 2)
        line[list(entries)] = list(entries.values())
        rows.append(line)
        low.append(least)
        high.append(most)

    for i in range(stages):
        own = {i * kinds + k: 1.0 for k in range(kinds)}
        for q, (byte_s, once) in enumerate(cuts):
            blocks, ends_s = _of_blocks(parts[i, :, q], i == 0, i == stages - 1)
            line = dict(zip(own, blocks, strict=True)) | {held + i: -1.0, seconds + 1: -once}
            line |= {held + j: -once / runs for j in range(i)}
            row_of[i, q] = len(rows)
            require(line, -np.inf, byte_s * limit_B - ends_s + once * i * sent_s / runs)
        require({held + i: 1.0, seconds: -1.0}, -np.inf, 0.0)
        require(own, runs, np.inf)
    for k, depth in enumerate(depths):
        require({i * kinds + k: 1.0 for i in range(stages)}, depth, depth)
    goal = np.zeros(seconds + 2)
    goal[held:seconds], goal[seconds], goal[seconds + 1] = 1 / runs, shape.schedule.slowest, 1.0
    with silenced():
        found = milp(
            goal,
            constraints=LinearConstraint(np.array(rows), low, high),
            integrality=np.r_[np.ones(held), np.zeros(stages + 2)],
            bounds=Bounds(0, np.inf),
            options={"node_limit": NODES, "mip_rel_gap": CLOSE},
        )
    if found.status == INFEASIBLE:
        return math.inf, []
    step_s = -math.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
    if found.x is None:
        return step_s, list(row_of)
    slack = np.array(high) - np.array(rows) @ found.x
    return step_s, [at for at, n in row_of.items() if slack[n] < TIGHT * found.x[held + at[0]]]


TIGHT = 0.05
"""A row is tight whose two sides are so near, a share of the seconds of its stage (empirical: prices are some apart)."""


INFEASIBLE = 2
"""The status of HiGHS where nothing meets the rows."""


def _of_blocks(least_s: Array, is_first: bool, is_last: bool) -> tuple[list[float], float]:
    """Of one stage at one price: what a block of every kind counts, and what stands at the ends beside the blocks.

    Where the first or the last block of a kind takes less than the others, that counts for every stage that may hold it.
    """
    ends_s = (least_s[0] if is_first else 0.0) + (least_s[-1] if is_last else 0.0)
    kinds, blocks = (len(least_s) - 2) // 3, list[float]()
    for kind in range(kinds):
        first_s, middle_s, last_s = (float(v) for v in least_s[3 * kind + 1 : 3 * kind + 4])
        each_s = middle_s if math.isfinite(middle_s) else first_s
        blocks.append(each_s)
        if kind or is_first:
            ends_s += min(0.0, first_s - each_s)
        if (kind < kinds - 1 or is_last) and math.isfinite(last_s):
            ends_s += min(0.0, last_s - each_s)
    return blocks, float(ends_s)
