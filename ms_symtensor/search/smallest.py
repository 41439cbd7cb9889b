"""A last attempt, where nothing was found that fits: what keeps least, whatever it takes; or else, what stands in the way of it.

Screening looks for fast layouts and counts what is alive at one moment; it knows neither what lives for a moment nor the
buffers of communicators. Near the smallest peak there is, these decide. So of every shape the layouts are looked for that keep
least, on the average stage, the first and the last one, and worked out with true peaks.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.constraints.obstacle import AT_REST, Obstacle, largest_tensor
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.search.folded.chain import Chain
from ms_symtensor.search.selections.selected_stages import make_feasible
from ms_symtensor.search.stages.estimate import chain_of, divided
from ms_symtensor.search.stages.incumbents import ScreeningResult
from ms_symtensor.search.stages.layout_candidates import Candidate, ConfigGroup, average_weights
from ms_symtensor.search.stages.materialize import MaterializedPlan, as_given, on_own_mesh, peaks_of, smallest_of
from ms_symtensor.search.stages.network import Network

EVERYTHING = 1e-6
"""A price of memory, in seconds per byte, that outweighs any time of a block: a second for a megabyte (empirical)."""

TRIED = 24
"""So many layouts are worked out at most, those first of which screening thinks that they keep least (empirical)."""

FEW = 4
"""So many where it is only asked whether something fits (empirical)."""

WORKED_OUT = 3
"""So many layouts that need least by what the tables know, each another limit, are worked out with true peaks (empirical)."""

STEPS_PER_GIB = 4
"""Limits are tried in steps of a quarter of a GiB: less is not worth telling."""

MOST_GIB = 4096
"""No limit above is tried: devices with as much are not to be had."""


def smallest(network: Network, request: Request, known: Sequence[Candidate]) -> MaterializedPlan | None:
    """The fastest plan that fits with one of the layouts `known`, if one is found."""
    rows = _different(network, known, request.limit_B)[: FEW if request.is_trial else TRIED]
    every = [one for row in rows if (one := _worked_out(network, row, request.limit_B)) is not None]
    fit = [one for one in every if one.estimate.peak_memory_B <= request.limit_B]
    return min(fit, key=lambda one: one.estimate.step_time_s, default=None)


def _worked_out(network: Network, row: Candidate, limit_B: float) -> MaterializedPlan | None:
    """`row` with true peaks, in a way that fits if there is one; None where MindSpore rejects it."""
    try:
        found = smallest_of(network, on_own_mesh(network, row), limit_B)
        if found is not None and found.estimate.peak_memory_B > limit_B >= _whatever_is_recomputed_B(found):
            return make_feasible(network, found, limit_B) or found
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
            found.setdefault((row.shape, row.level, frozenset(row.strategies.items())), (guess.peak_memory_B, row))
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


def least_plan(network: Network, rows: Sequence[Candidate]) -> MaterializedPlan | None:
    """The plan that needs least, with one of the layouts `rows` and blocks recomputed as a whole, whether it
    fits or not; None if there is none.
    """
    different: dict[tuple, tuple[Candidate, Chain]] = {}
    for row in rows:
        chain = chain_of(row, network.depths)
        different.setdefault((row.shape.stages, row.shape.schedule, chain.parts), (row, chain))
    first, most = dict[int, Candidate](), MOST_GIB * STEPS_PER_GIB
    for row, chain in different.values():
        first.setdefault(_least_limit(row, chain, most), row)
        if len(first) > WORKED_OUT:
            first.pop(max(first))
            most = max(first)
    every = []
    for row in [first[limit] for limit in sorted(first)]:
        try:
            own = on_own_mesh(network, row)
            every += [as_given(network, own, *counts) for counts in _divisions(network, own)]
        except InvalidStrategyError:
            continue
    return min(every, key=lambda one: one.estimate.peak_memory_B, default=None)


def _least_limit(row: Candidate, chain: Chain, most: int) -> int:
    """The least limit, in steps, that some division of `chain` fits by what the tables know; one more than `most` if it is
    larger.
    """

    def fits(limit: int) -> bool:
        return divided(row, chain, limit * GIB / STEPS_PER_GIB) is not None

    return 1 + bisect_left(range(1, most), True, key=fits) if fits(most) else most + 1


def _divisions(network: Network, row: Candidate) -> Iterator[tuple[list[int], list[int]]]:
    """The blocks of every stage, and how many are recomputed, in the division of `row` that fits the least memory by what its
    tables know; and all of them recomputed, since more lives for a moment than tables count.
    """
    chain = chain_of(row, network.depths)
    least = divided(row, chain, _least_limit(row, chain, MOST_GIB * STEPS_PER_GIB) * GIB / STEPS_PER_GIB)
    if least is None:
        return
    layers, recomputation = [s.blocks for s in least.stages], [s.recomputed for s in least.stages]
    yield layers, recomputation
    if recomputation != layers and row.problem.limits.recomputed(sum(layers))[1] == sum(layers):
        yield layers, layers


def obstacle_of(network: Network, found: MaterializedPlan) -> Obstacle:
    """The obstacle of a plan: its fullest stage."""
    stages = found.estimate.stages
    number = max(range(len(stages)), key=lambda n: sum(found.memory_B[n].values()))
    peaks = peaks_of(network, found.row)
    start = sum(stage.blocks for stage in stages[:number])
    program = peaks.program_of(start, stages[number])
    memory_B = found.memory_B[number]
    return Obstacle(
        ", ".join(_layout(found)),
        number if len(stages) > 1 else None,
        memory_B,
        *largest_tensor(peaks.graph, program, memory_B),
    )


def _layout(found: MaterializedPlan) -> Iterator[str]:
    shape, stages = found.estimate.shape, found.estimate.stages
    yield f"{shape.stages} stages" if shape.stages > 1 else "one stage"
    if shape.accumulates:
        yield f"{shape.micro_batch_num} micro-batches"
    yield _settings(found.row.settings, sum(s.recomputed for s in stages), sum(s.blocks for s in stages))


def _settings(settings: Settings, recomputed: int, blocks: int) -> str:
    recomputation = "everything recomputed" if recomputed == blocks else f"{recomputed} of {blocks} blocks recomputed"
    host = ", optimizer offload" if settings.swap_optimizer else ""
    return f"optimizer sharding {settings.optimizer_level.name.lower()}, {recomputation}{host}"
