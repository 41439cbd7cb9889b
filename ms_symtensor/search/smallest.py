"""A last attempt, where nothing was found that fits: what keeps least, whatever it takes.

Screening looks for fast layouts and counts what is alive at one moment; it knows neither what lives for a moment nor the
buffers of communicators. Near the smallest peak there is, these decide. So of every shape the layouts are looked for that keep
least, on the average stage, the first and the last one, and worked out with true peaks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.constraints.obstacle import AT_REST
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.selections.selected_stages import make_feasible
from ms_symtensor.search.stages.average_stage import average_weights
from ms_symtensor.search.stages.estimate import chain_of, divided
from ms_symtensor.search.stages.incumbents import ScreeningResult
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup
from ms_symtensor.search.stages.materialize import MaterializedPlan, smallest_of, strategies_of
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.own_mesh import priced

EVERYTHING = 1e-6
"""A price of memory, in seconds per byte, that outweighs any time of a block: a second for a megabyte (empirical)."""

TRIED = 24
"""So many layouts are worked out at most, those first of which screening thinks that they keep least (empirical)."""

FEW = 4
"""So many where it is only asked whether something fits (empirical)."""


def smallest(network: Network, request: Request, known: Sequence[Candidate]) -> MaterializedPlan | None:
    """The fastest plan that fits with one of the layouts `known`, if one is found."""
    rows = _different(network, known, request.limit_B)[: FEW if request.is_trial else TRIED]
    every = [one for row in rows if (one := _worked_out(network, request, row)) is not None]
    fit = [one for one in every if one.estimate.peak_memory_B <= request.limit_B]
    return min(fit, key=lambda one: one.estimate.step_time_s, default=None)


def _worked_out(network: Network, request: Request, row: Candidate) -> MaterializedPlan | None:
    """`row` with true peaks, in a way that fits if there is one; None where MindSpore rejects it."""
    try:
        own = priced(network, row, strategies_of(row), request.rules)
        found = smallest_of(network, own, request.limit_B, request.rules)
        if found is not None and found.estimate.peak_memory_B > request.limit_B >= _whatever_is_recomputed_B(found):
            return make_feasible(network, found, request.limit_B, request.cluster, request.rules) or found
    except InvalidStrategyError:
        return None
    return found


def _whatever_is_recomputed_B(found: MaterializedPlan) -> float:
    """Bytes that the fullest stage needs at least with these layouts, whatever is recomputed and however blocks are divided."""
    at_rest_B = sum(sum(one[kind] for kind in AT_REST) for one in found.memory_B)
    return at_rest_B / len(found.memory_B) + min(one["buffers"] for one in found.memory_B)


def _different(network: Network, known: Sequence[Candidate], limit_B: float) -> list[Candidate]:
    """Different layouts that screening thinks fit, those that keep least first."""
    found: dict[tuple, tuple[float, Candidate]] = {}
    for row in known:
        guess = divided(row, chain_of(row, network.depths), limit_B)
        if guess is not None:
            found.setdefault((row.shape, row.level, frozenset(strategies_of(row).items())), (guess.peak_memory_B, row))
    return [row for _, row in sorted(found.values(), key=lambda pair: pair[0])]


def known_of_all(screening: ScreeningResult) -> list[Candidate]:
    """The layouts that were screened, and those that keep least, of all settings."""
    slimmest = [row for one in screening.screened for row in _slimmest(one.setting)]
    return [*screening.rows, *slimmest]


def _slimmest(of: ConfigGroup) -> Iterator[Candidate]:
    """The layouts that keep least, with nothing or all recomputed, of every shape with one model chunk per stage."""
    which = np.array([n for n in of.which if of.shapes[n].interleave == 1], dtype=np.intp)
    if not len(which):
        return
    shapes = [of.shapes[n] for n in which]
    stages = np.array([shape.stages for shape in shapes], dtype=float)
    every = average_weights(of.occurrences, shapes)
    price = np.full(len(which), EVERYTHING)
    for place in (None, 0, -1):
        weights = every
        if place is not None:
            kept_B, at_rest_B = every.kept_B.copy(), every.at_rest_B.copy()
            kept_B[place] *= stages
            at_rest_B[place] *= stages
            weights = replace(every, kept_B=kept_B, at_rest_B=at_rest_B)
        for recomputed in (0.0, 1.0):
            tables = of.tables.factors(recomputed, price, weights, of.members[which])
            least = of.problem.least(tables)
            there = np.isfinite(least.value)
            yield from of.rows_of(which[there], least.assignment[there], least.value[there])
