"""Shapes in micro-batches whose blocks are recomputed in part: the plan that was found made faster, bounds that hold for such
plans too, and other shapes where these promise more.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.least_bounds import selection_bounds
from ms_symtensor.search.pipelined import Pipelined, bounded, plan_of, shorts_of
from ms_symtensor.search.selecting import selects
from ms_symtensor.search.selections.selected_stages import selecting
from ms_symtensor.search.smallest import smallest
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.whole import Whole, settled

PROMISING = 0.01
"""A further shape, of other stages or micro-batches, is worked out if its bound is below the best step by this share (empirical:
that takes half a second, and seldom finds anything below that).
"""


def selecting_stages(network: Network, request: Request, searched: Pipelined) -> Pipelined:
    """`searched` with blocks of its plan recomputed in part, where that is faster and it is not pinned how many are.

    Its bounds stay those of plans that recompute whole blocks. No plan is left if no block may be, and nothing else fits.
    """
    start, found = time.perf_counter(), searched.whole
    if found is None or searched.plan is None or request.limits.names("recompute"):
        return searched
    better = _selected(network, request, found)
    if better is None:
        return replace(searched, plan=None, whole=None)
    return searched if better is found else _with(network, request, searched, better, start)


def _selected(network: Network, request: Request, found: Whole) -> Whole | None:
    shorts = shorts_of(network.short(found.estimate.shape.batch), network.depths, request.rules)
    only = request.limits.selects
    return selecting(network, found, shorts, request.limit_B, request.cluster, request.rules, only)


def fitted(network: Network, request: Request, searched: Pipelined) -> Pipelined:
    """`searched`, which has no plan, with one where a last attempt finds what fits."""
    start, outcome = time.perf_counter(), searched.outcome
    found = None if outcome is None or request.limits.names("recompute") else smallest(network, request, outcome)
    return searched if found is None else _with(network, request, searched, found, start)


def _with(network: Network, request: Request, searched: Pipelined, found: Whole, start: float) -> Pipelined:
    """`searched` with the plan that `found` describes."""
    before_s = searched.plan.search.search_time_s if searched.plan is not None else 0.0
    spent_s = before_s + time.perf_counter() - start
    return replace(searched, plan=plan_of(network, request, found, searched, spent_s), whole=found)


def improved(network: Network, request: Request, searched: Pipelined, known_s: float) -> Pipelined:
    """`searched` with bounds for plans that recompute blocks in part, and with the best plan of the shapes that promise more than
    its own and `known_s`.
    """
    outcome = searched.outcome
    enough_s = min(known_s, searched.time_s)
    if outcome is None or not outcome.surveyed or math.isinf(enough_s):
        return searched
    if not selects(outcome.surveyed[0].setting.problem, request):
        return searched
    plan = None if searched.whole is None else searched.whole.estimate.shape
    worth_s = (1 - PROMISING) * enough_s
    found_s = selection_bounds(outcome.surveyed, network.depths, request.limit_B, enough_s, plan, worth_s)
    bounds_s = {**outcome.bounds_s, **{shape: s for shape, s in found_s.items() if shape.interleave == 1}}
    searched = bounded(request, searched, bounds_s)
    if (shape := _promising(bounds_s, searched, enough_s)) is not None:
        start = time.perf_counter()
        whole = settled(network, [row for row in outcome.rows if row.shape == shape], request.limit_B, request.rules)
        better = None if whole is None else _selected(network, request, whole)
        if better is not None and better.estimate.step_time_s < enough_s:
            enough_s = better.estimate.step_time_s
            searched = _with(network, request, searched, better, start)
    return searched


def _promising(bounds_s: Mapping[Shape, float], searched: Pipelined, enough_s: float) -> Shape | None:
    """The shape of other stages or micro-batches than the plan's that promises most, if it promises enough."""
    mine = None if searched.whole is None else searched.whole.estimate.shape
    others = [
        shape
        for shape, bound_s in bounds_s.items()
        if shape.accumulates and shape.interleave == 1 and bound_s < (1 - PROMISING) * enough_s
        if mine is None or (shape.stages, shape.micro_batch_num) != (mine.stages, mine.micro_batch_num)
    ]
    return min(others, key=lambda shape: (bounds_s[shape], shape.stages, shape.mesh), default=None)
