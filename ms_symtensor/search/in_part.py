"""Plans in micro-batches whose blocks are recomputed in part: how layouts are made to fit, and which are tried first."""

import math
from collections.abc import Mapping, Sequence

from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.met import Met
from ms_symtensor.search.selections.selected_stages import selecting
from ms_symtensor.search.stages.estimate import Estimate, chain_of, divided
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.stages.tried import Outcome
from ms_symtensor.search.stages.whole import Fit, Promise, Promised, Whole, as_estimated, fitting, strategies_of

NEAR = 1.05
"""What shapes promise is asked for up to so many times the best estimate: where blocks are recomputed in part, a step takes some
percent less than where they are as a whole (empirical)."""

RANKED = 6
"""Of so many shapes at most: each takes some milliseconds (empirical)."""


def fit_of(request: Request) -> Fit:
    """How layouts are made to fit: with blocks recomputed in part, where that is faster and it is not pinned how many are."""
    if request.limits.names("recompute"):
        return fitting

    def in_part(network: Network, row: Row, limit_B: float, rules: Mapping[str, Rule] | None) -> Whole | None:
        # Programs of whole blocks are not written where it is known without them that they would be of no use.
        guess = divided(row, chain_of(row, network.depths), limit_B)
        if guess is not None and any(stage.recomputed for stage in guess.stages):
            found = recomputed_in_part(network, request, Whole(guess, row, strategies_of(row), ()))
            if found is not None:
                return found
        whole = fitting(network, row, limit_B, rules)
        return None if whole is None else recomputed_in_part(network, request, whole)

    return in_part


def recomputed_in_part(network: Network, request: Request, found: Whole) -> Whole | None:
    """`found` with blocks recomputed in part where that is faster, and nowhere as a whole if that is pinned. None if nothing fits
    then, or of what `found` is a guess at.
    """
    return selecting(network, found, request.limit_B, request.cluster, request.rules, request.limits.selects)


def promised_in_part(network: Network, request: Request, fronts: Fronts) -> Promised:
    """What shapes promise that have to recompute, if they do so in part: of those whose estimates are NEAR the best one, and that
    could beat what an earlier one promises.

    `fronts`: what layouts may make again, as far as it is known; it grows.
    """

    def promised(outcome: Outcome, estimates: Sequence[Estimate]) -> Sequence[Promise]:
        estimated = as_estimated(outcome, estimates)
        again = [e for e in estimates if any(stage.recomputed for stage in e.stages)]
        if not again or len(estimates) < 2 or not outcome.surveyed[0].setting.problem.selects:
            return estimated
        best_s = estimates[0].step_time_s
        near = {e.shape for e in again[:RANKED] if e.step_time_s < NEAR * best_s}
        every = [Met(of, fronts, network.depths, request.limit_B, best_s) for of in outcome.surveyed]
        found, least_s = list[Promise](), math.inf
        for step_s, rows in estimated:
            shape = rows[0].shape
            if shape in near and min(met.quickest_s(shape) for met in every) < least_s:
                promises = [one for met in every for one in met.promises(shape)]
                if promises:
                    step_s, row = min(promises, key=lambda one: one[0])
                    least_s, rows = min(step_s, least_s), [row]
            found.append((step_s, rows))
        # Where these do not keep what they promise, all layouts are tried in the end.
        return [*sorted(found, key=lambda one: one[0]), *estimated]

    return promised
