"""Plans whose blocks are recomputed selectively: how layouts are made to fit, and which are tried first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.closest import least_plan
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.found import Found
from ms_symtensor.search.selections.selected_stages import promised_s, selecting
from ms_symtensor.search.smallest import known_of_all, smallest
from ms_symtensor.search.stages.estimate import Estimate, chain_of, divided, quickest_s
from ms_symtensor.search.stages.incumbents import ScreeningResult
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.materialize import (
    Fit,
    MaterializedPlan,
    Promise,
    Promised,
    as_estimated,
    made_feasible,
    strategies_of,
)
from ms_symtensor.search.stages.network import Network

ESTIMATED = 48
"""Of so many layouts, the quickest ones where memory is free, it is estimated what they take (empirical)."""

RANKED = 12
"""For so many of these the front of recomputation is worked out (empirical: some 20 ms each)."""


def fit_of(request: Request) -> Fit:
    """How layouts are made to fit: with selective recomputation, where that is faster and it is not pinned how many blocks are
    recomputed.
    """
    if request.limits.names("recompute"):
        return made_feasible

    def in_part(
        network: Network, row: Candidate, limit_B: float, rules: Mapping[str, Rule] | None
    ) -> MaterializedPlan | None:
        # Programs of whole blocks are not written where it is known without them that they would be of no use.
        guess = divided(row, chain_of(row, network.depths), limit_B)
        if guess is not None and any(stage.recomputed for stage in guess.stages):
            found = recomputed_in_part(network, request, MaterializedPlan(guess, row, strategies_of(row), ()))
            if found is not None:
                return found
        whole = made_feasible(network, row, limit_B, rules)
        return None if whole is None else recomputed_in_part(network, request, whole)

    return in_part


def recomputed_in_part(network: Network, request: Request, found: MaterializedPlan) -> MaterializedPlan | None:
    """`found` with selective recomputation where that is faster, and no block as a whole if that is pinned. None if nothing fits
    then, or of what `found` is a guess at.
    """
    return selecting(network, found, request.limit_B, request.cluster, request.rules, request.limits.selects)


def promised_in_part(network: Network, request: Request) -> Promised:
    """What layouts promise if they recompute selectively as little as lets them fit, the fewest seconds first; behind these what
    was estimated, which is tried where promises are not kept.
    """

    def promised(screening: ScreeningResult, estimates: Sequence[Estimate]) -> Sequence[Promise]:
        estimated = as_estimated(screening, estimates)
        recomputation = any(stage.recomputed for one in estimates for stage in one.stages)
        if not recomputation or not screening.screened[0].setting.problem.selects:
            return estimated
        found, best_s = list[Promise](), math.inf
        for row in _likely(network, screening, estimates[0].step_time_s, request.limit_B):
            if _least_s(row, network) < best_s:
                step_s = promised_s(
                    network, row, request.limit_B, request.cluster, request.rules, request.limits.selects
                )
                if math.isfinite(step_s):
                    found.append((step_s, [row]))
                    best_s = min(best_s, step_s)
        return [*sorted(found, key=lambda one: one[0]), *estimated]

    return promised


def _least_s(row: Candidate, network: Network) -> float:
    return quickest_s(row, occurrences(network.depths))


def _likely(network: Network, screening: ScreeningResult, best_s: float, limit_B: float) -> list[Candidate]:
    """Layouts that may be the fastest. What is cheap to recompute is so first: of the seconds that whole blocks take, it is taken
    to be the share that recomputed blocks are of all.
    """
    different: dict[tuple, tuple[float, Candidate]] = {}
    for row in screening.rows:
        if (least_s := _least_s(row, network)) < best_s:
            different.setdefault(_alike(row), (least_s, row))
    every = []
    for _, row in sorted(different.values(), key=lambda one: one[0]):
        chain = chain_of(row, network.depths)
        free, guess = divided(row, chain, math.inf), divided(row, chain, limit_B)
        if free is not None and guess is not None:
            share = sum(stage.recomputed for stage in guess.stages) / max(1, sum(network.depths[1:-1]))
            every.append((free.step_time_s + share * (guess.step_time_s - free.step_time_s), row))
        if len(every) == ESTIMATED:
            break
    return [row for _, row in sorted(every, key=lambda one: one[0])[:RANKED]]


def _alike(row: Candidate) -> tuple:
    """What layouts have in common that cost the same, as on another mesh of as many devices."""
    costs = row.costs
    numbers = (costs.each_s, costs.once_s, costs.kept_B, costs.at_rest_B)
    shape = row.shape
    return shape.stages, shape.schedule, row.level, *(tuple(f"{value:.6g}" for value in some) for some in numbers)


def fitted(network: Network, request: Request, searched: Found) -> Found:
    """`searched`, which has no plan, with one where a last attempt finds what fits."""
    screening = searched.screening
    if screening is None:
        return searched
    least, known = None, known_of_all(screening)
    found = None if request.limits.names("recompute") else smallest(network, request, known)
    if found is None and not request.is_trial:
        least = least_plan(network, request, known)
        found = least if least is not None and least.estimate.peak_memory_B <= request.limit_B else None
    if found is not None and request.limits.selects:
        found = recomputed_in_part(network, request, found)  # none of its blocks as a whole
    return replace(searched, whole=found, least=least)
