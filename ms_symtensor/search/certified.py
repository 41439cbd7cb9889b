"""What a search found, with the certificate of how near that is to the optimum."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ms_symtensor.search.certify.certificate import certificate
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.found import Found, with_bounds
from ms_symtensor.search.selective import fit_of
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.materialize import MaterializedPlan, materialized
from ms_symtensor.search.stages.network import Network


def with_certificate(
    of: Network, request: Request, found: Found, incumbent_s: float, progress: Callable[[str], None]
) -> Found:
    """`found` for the network `of`, certified to the gap of `request`; with a faster plan, where one is met on the way.

    `incumbent_s`: seconds of a step that is known of elsewhere.
    """
    screening, gap = found.screening, request.certified_gap
    step_s = min(found.time_s, incumbent_s)
    if screening is None or gap is None or math.isinf(step_s):
        return found
    best: MaterializedPlan | None = found.whole
    fit, attempted = fit_of(request), set[tuple]()

    def attempt(rows: Sequence[Candidate], cutoff_s: float) -> float:
        nonlocal best
        made = materialized(of, rows, request.limit_B, request.rules, fit, attempted, cutoff_s=cutoff_s)
        if made is None or made.estimate.step_time_s >= cutoff_s:
            return cutoff_s
        best = made
        return made.estimate.step_time_s

    known = certificate(screening, step_s, request.limit_B, gap, attempt, progress)
    considered = with_bounds(found.considered, known.bounds_s)
    return replace(found, whole=best, bound_s=known.bound_s, considered=considered, certificate=known)
