"""Plans in micro-batches whose blocks are recomputed in part: bounds that hold for such plans too, and other layouts than those
of the plan that was found, which were met on the way to these and promise more.
"""

import math
from dataclasses import replace

import numpy as np

from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.least_bounds import Raised, selection_bounds
from ms_symtensor.search.closest import least_plan
from ms_symtensor.search.in_part import fit_of, recomputed_in_part
from ms_symtensor.search.pipelined import Pipelined, bounded
from ms_symtensor.search.smallest import known_of_all, smallest
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.whole import Whole, settled

TRIED = 2
"""So many further layouts are worked out at most, if the plan is CLOSE to its bound by then (empirical)."""

FAR = 6
"""So many at most if it is not: each takes about a tenth of a second (empirical)."""

CLOSE = 1.01
"""A plan that takes no more than so many times its bound is close to it (empirical: so are those of the zoo)."""

SURE = 1.005
"""Where a plan takes more, layouts are worked out too that promise no more than its own, but more than it takes: they may keep
theirs better (empirical)."""

RAISED = 2
"""So often bounds are raised, the last time if the plan is not CLOSE to its bound by then: what is known of other layouts, and
what is asked for, decide what cases show (empirical)."""

WORTH = 2e-3
"""They are if they promise steps that are shorter by this share (empirical)."""

SAME = 1e-6
"""Of layouts that promise the same but for so much, as on another mesh of as many devices, one is enough (empirical)."""

ALIKE = 5e-3
"""So it is of layouts of one shape, which keep about as much of what they promise (empirical)."""


def fitted(network: Network, request: Request, searched: Pipelined) -> Pipelined:
    """`searched`, which has no plan, with one where a last attempt finds what fits."""
    outcome = searched.outcome
    if outcome is None:
        return searched
    least, known = None, known_of_all(outcome)
    found = None if request.limits.names("recompute") else smallest(network, request, known)
    if found is None and not request.is_trial:
        least = least_plan(network, request, known)
        found = least if least is not None and least.estimate.peak_memory_B <= request.limit_B else None
    if found is not None and request.limits.selects:
        found = recomputed_in_part(network, request, found)  # none of its blocks as a whole
    return replace(searched, whole=found, least=least)


def improved(network: Network, request: Request, searched: Pipelined, known_s: float, fronts: Fronts) -> Pipelined:
    """`searched` with bounds for plans that recompute blocks in part, and with the best plan of the layouts that these met and
    that promise more than its own and `known_s`. `fronts`: what layouts may make again, as far as it is known; it grows.
    """
    outcome = searched.outcome
    enough_s = min(known_s, searched.time_s)
    if outcome is None or not outcome.surveyed or math.isinf(enough_s):
        return searched
    if not outcome.surveyed[0].setting.problem.selects:
        return searched
    raised_s, tried = dict[Shape, float](), set[tuple]()
    for _ in range(RAISED):
        # What layouts must promise to be worked out is as near to the plan as its bound has to be.
        raised = selection_bounds(
            outcome.surveyed, network.depths, request.limit_B, (1 - WORTH) * enough_s, raised_s, fronts
        )
        raised_s |= {shape: max(bound_s, raised_s.get(shape, 0.0)) for shape, bound_s in raised.bounds_s.items()}
        searched = bounded(request, searched, {**outcome.bounds_s, **raised_s})
        better = _worked_out(network, request, searched, raised, enough_s, tried)
        if better is not None:
            enough_s = better.estimate.step_time_s
            searched = replace(searched, whole=better)
        if enough_s <= CLOSE * searched.bound_s:
            break
    return searched


def _worked_out(
    network: Network, request: Request, searched: Pipelined, raised: Raised, enough_s: float, tried: set[tuple]
) -> Whole | None:
    """The best plan of the layouts that promise more than `enough_s`, if it is faster; but for those that were `tried`."""
    found, is_far = None, enough_s > SURE * searched.bound_s
    for number, (step_s, row) in enumerate(_promising(raised, searched.whole, enough_s, is_far)):
        is_close = enough_s <= CLOSE * searched.bound_s
        if step_s >= (1 - _worth(is_far)) * enough_s or (number >= TRIED and is_close):
            break
        key = row.shape, row.level, row.choice.tobytes()
        if key in tried:
            continue
        tried.add(key)
        better = settled(network, [row], request.limit_B, request.rules, fit_of(request))
        if better is not None and better.estimate.step_time_s < enough_s:
            enough_s, found = better.estimate.step_time_s, better
    return found


def _promising(raised: Raised, mine: Whole | None, enough_s: float, is_far: bool) -> list[tuple[float, Row]]:
    """Layouts that promise more than those of the plan `mine`, with the seconds that they promise, the fewest first.

    Where the plan takes much more than its own promise, as it does if it `is_far` from its bound, all that promise more than it
    takes: others may keep theirs better.
    """
    alike = [] if mine is None else raised.steps(enough_s, lambda row: _alike(row, mine))
    mine_s = enough_s if is_far else min((step_s for step_s, _ in alike), default=enough_s)
    below_s, found = (1 - _worth(is_far)) * mine_s, list[tuple[float, Row]]()
    own = {id(row) for _, row in alike}
    for step_s, row in raised.steps(below_s, lambda row: raised.bounds_s[row.shape] < below_s and id(row) not in own):
        if not any(step_s <= (1 + (ALIKE if row.shape == other.shape else SAME)) * its_s for its_s, other in found):
            found.append((step_s, row))
    return found[:FAR]


def _worth(is_far: bool) -> float:
    """The share by which layouts must promise more: every one counts if the plan `is_far` from its bound."""
    return 0.0 if is_far else WORTH


def _alike(row: Row, mine: Whole) -> bool:
    """Whether the layouts of `row` cost what those of `mine` do: other ones of as many seconds and bytes promise no more."""
    one, other = row.shape, mine.estimate.shape
    if row.level is not mine.row.level or (one.stages, one.turns) != (other.stages, other.turns):
        return False
    mine_costs = mine.row.costs
    pairs = ((row.costs.each_s, mine_costs.each_s), (row.costs.kept_B, mine_costs.kept_B))
    return all(bool((np.abs(a - b) <= WORTH * b).all()) for a, b in pairs)
