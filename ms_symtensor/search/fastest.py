"""The fastest plan of what was screened: ranked by what layouts promise, the best dozen are made plans that fit."""

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.selections.selected_stages import promised_s, selecting
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.estimate import divided, quickest_s
from ms_symtensor.search.stages.layout_candidates import Candidate, slimmest
from ms_symtensor.search.stages.materialize import MaterializedPlan, made_feasible, on_own_mesh
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.screening import ScreeningResult

SHAPES = 12
"""Of so many of the best step layouts all layouts may be tried."""

REFINED = 3
"""So many layouts are made plans at most that fit, those that promise to take less than the best plan so far (empirical)."""

ESTIMATED = 96
"""Of so many layouts, the quickest ones where memory is free, it is estimated what they take; then of so many with each number
of virtual stages (empirical)."""

RANKED = 12
"""For so many of these the front of recomputation is worked out (empirical: some 20 ms each)."""

LIKELY = 1.07
"""It is worked out only for layouts that are estimated to take less than so many times what the quickest of them with a front is
(empirical: promises are seen 2.5 % below estimates, 7 % where adapters train)."""

NEAR = 1.01
"""So near are promises to what plans take (empirical: 1.3 % below to 1 % above)."""

UNLIKE = 8
"""Of so many unlike layouts the programs are priced under run-times that hide communication (empirical)."""

SLIM = 6
"""So many of the layouts that keep least are tried where others do not fit (empirical)."""

Promise = tuple[float, Candidate]
"""Seconds of a step, and the layouts that promise them."""

Attempt = tuple[Candidate, MaterializedPlan | None]
"""Layouts, and the plan that was made of them; None where that does not fit, or MindSpore rejects it."""


def fastest_plan(
    network: Network,
    promises: Iterable[Promise],
    limit_B: float,
    attempted: dict[tuple, Attempt],
    cutoff_s: float = math.inf,
    most: int = REFINED,
) -> MaterializedPlan | None:
    """The fastest plan that fits, of layouts in the order of what they promise, so many of which are made plans that fit at most.

    None if none does and takes less than `cutoff_s`.

    Left out are those that promise more than is NEAR, and those `attempted`, as on another mesh of as many devices; what is
    tried is noted there, with what came of it. Where a plan takes more than is NEAR to its promise, so are others of its step
    layout taken to.
    """
    best: MaterializedPlan | None = None
    off: dict[StepLayout, float] = {}
    for step_s, row in promises:
        key = row.level, row.shape.stages, row.shape.schedule, frozenset(row.strategies.items())
        if step_s * off.get(row.shape, 1 / NEAR) >= cutoff_s or key in attempted:
            continue
        try:
            found = fitted(network, on_own_mesh(network, row), limit_B)
        except InvalidStrategyError:
            found = None  # a mesh like the family's other ones in all but this
        attempted[key] = row, found
        if found is None:
            continue
        most -= 1
        if (ratio := found.estimate.step_time_s / step_s) > NEAR:
            off[row.shape] = ratio
        if found.estimate.step_time_s < cutoff_s:
            best, cutoff_s = found, found.estimate.step_time_s
        if not most:
            break
    return best


def slim_promises(screening: ScreeningResult, limit_B: float, attempted: Mapping[tuple, Attempt]) -> list[Promise]:
    """What layouts that keep least promise, on the step layouts that promised enough and did not fit: as where much lives for a
    moment only, of which tables do not know.
    """
    shapes = {row.shape for row, found in attempted.values() if found is None}
    rows = (row for group, _ in screening.screened for row in slimmest(group, shapes))
    return estimates_of(rows, limit_B)[:SLIM]


def unlike_plans(
    network: Network, screening: ScreeningResult, limit_B: float, most_s: float
) -> Iterator[MaterializedPlan]:
    """Plans that fit of the quickest layouts of unlike stages, micro-batches and optimizer levels, where those may take less than
    `most_s`: for run-times whose price is not that of the tables.
    """
    unlike: dict[tuple, Candidate] = {}
    for row in sorted(screening.rows, key=quickest_s):
        if quickest_s(row) < most_s:
            unlike.setdefault((row.shape.stages, row.shape.micro_batch_num, row.level), row)
    for row in islice(unlike.values(), UNLIKE):
        try:
            found = fitted(network, on_own_mesh(network, row), limit_B)
        except InvalidStrategyError:
            continue
        if found is not None:
            yield found


def fitted(network: Network, row: Candidate, limit_B: float) -> MaterializedPlan | None:
    """`row` on stages that fit: with selective recomputation, where that is faster and it is not pinned how many blocks are
    recomputed. None if nothing fits.
    """
    if row.problem.limits.names("recompute"):
        return made_feasible(network, row, limit_B)
    # Programs of whole blocks are not written where it is known without them that they would be of no use.
    guess, whole = divided(row, limit_B), None
    if guess is not None and not any(stage.recomputed for stage in guess.stages):
        whole = made_feasible(network, row, limit_B)
        if whole is not None and not any(stage.recomputed for stage in whole.estimate.stages):
            return whole
    found = selecting(network, row, limit_B)
    if row.problem.limits.selects:
        return found
    if found is None and whole is None:
        whole = made_feasible(network, row, limit_B)
    every = [one for one in (found, whole) if one is not None]
    return min(every, key=lambda one: one.estimate.step_time_s, default=None)


def promises_of(
    network: Network, screening: ScreeningResult, limit_B: float, cutoff_s: float = math.inf
) -> Iterator[Promise]:
    """What the best layouts promise, in the order in which they are tried: if they recompute selectively as little as lets them
    fit, the fewest seconds first; behind these what is estimated of the layouts of the best shapes. What hardly takes less than
    `cutoff_s` may be left out.
    """
    if screening.estimates and screening.rows[0].problem.selects:
        found, best_s, first_s = list[Promise](), NEAR * cutoff_s, cutoff_s
        for estimated_s, row in _likely(screening, screening.estimates[0].step_time_s, limit_B):
            if quickest_s(row) >= best_s or estimated_s >= LIKELY * first_s:
                continue
            step_s = promised_s(network, row, limit_B)
            if math.isfinite(step_s):
                found.append((step_s, row))
                best_s, first_s = min(best_s, step_s), min(first_s, estimated_s)
        yield from sorted(found, key=lambda one: one[0])
    yield from promises_of_whole_blocks(screening, limit_B)


def promises_of_whole_blocks(screening: ScreeningResult, limit_B: float) -> list[Promise]:
    """What is estimated of the layouts of the best shapes."""
    best = {one.shape for one in screening.estimates[:SHAPES]}
    return estimates_of((row for row in screening.rows if row.shape in best), limit_B)


def estimates_of(rows: Iterable[Candidate], limit_B: float) -> list[Promise]:
    """What `rows` promise if blocks are recomputed as a whole, the fewest seconds first; of equal ones, that which shards the
    optimizer least. What does not fit is left out.
    """
    different = {(row.shape, row.level, row.choice.tobytes()): row for row in rows}.values()
    guessed = ((divided(row, limit_B), row) for row in different)
    found = [(guess.step_time_s, row) for guess, row in guessed if guess is not None]
    return sorted(found, key=lambda one: (one[0], one[1].level))


def _likely(screening: ScreeningResult, best_s: float, limit_B: float) -> list[Promise]:
    """Layouts that may be the fastest, the best ones by `_estimated_s`, with that: what is cheap to recompute is so first.

    Where memory is free, more virtual stages are always quicker: the best ones of every number of them are looked at, too.
    """
    different: dict[tuple, tuple[float, Candidate]] = {}
    for row in screening.rows:
        if (least_s := quickest_s(row)) < best_s:
            different.setdefault(_alike(row), (least_s, row))
    ranked, further, tried = list[Promise](), dict[int, Promise](), Counter[int]()
    for _, row in sorted(different.values(), key=lambda one: one[0]):
        number, is_quick = row.shape.interleave, tried.total() < ESTIMATED
        if not is_quick and tried[number] >= ESTIMATED:
            continue
        last = ranked[RANKED - 1 :] if is_quick else [further[number]] if number in further else []
        step_s = _estimated_s(row, limit_B, last[0][0] if last else math.inf)
        if step_s is None:
            continue
        tried[number] += 1
        if is_quick and math.isfinite(step_s):
            insort(ranked, (step_s, row), key=lambda one: one[0])
            del ranked[RANKED:]
        elif math.isfinite(step_s):
            further[number] = step_s, row
    return [*ranked, *(further[number] for number in sorted(further))]


def _estimated_s(row: Candidate, limit_B: float, cutoff_s: float) -> float | None:
    """Seconds of a step of `row` if selective recomputation takes of the seconds of whole blocks the share that recomputed blocks
    are of all; inf where that is not below `cutoff_s`, None where nothing fits.
    """
    free = divided(row, math.inf, cutoff_s)
    if free is None:
        return math.inf
    guess = divided(row, limit_B)
    if guess is None:
        return None
    share = sum(stage.recomputed for stage in guess.stages) / max(1, sum(row.depths[1:-1]))
    step_s = free.step_time_s + share * (guess.step_time_s - free.step_time_s)
    return step_s if step_s < cutoff_s else math.inf


def _alike(row: Candidate) -> tuple:
    """What layouts have in common that cost the same, as on another mesh of as many devices."""
    costs = row.costs
    numbers = (costs.each_s, costs.once_s, costs.kept_B, costs.at_rest_B)
    shape = row.shape
    return shape.stages, shape.schedule, row.level, *(tuple(f"{value:.6g}" for value in some) for some in numbers)
