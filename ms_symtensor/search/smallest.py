"""A last attempt, where nothing was found that fits: what keeps least, whatever it takes; or else, what stands in the way of it.

Screening looks for fast layouts and counts what is alive at one moment; it knows neither what lives for a moment nor the
buffers of communicators. Near the smallest peak there is, these decide. So of every shape the layouts are looked for that keep
least, on the average stage, the first and the last one, and worked out with true peaks.
"""

import math
from collections.abc import Iterator
from itertools import islice

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.constraints.obstacle import AT_REST, Obstacle, largest_tensor
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.search.folded.chain import Chain
from ms_symtensor.search.selections.selected_stages import make_feasible
from ms_symtensor.search.stages.estimate import divided
from ms_symtensor.search.stages.layout_candidates import Candidate, slimmest
from ms_symtensor.search.stages.materialize import MaterializedPlan, as_given, on_own_mesh, peaks_of, smallest_of
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.screening import ScreeningResult
from ms_symtensor.search.stages.stage_layers import even, laid_out

TRIED = 24
"""So many layouts are worked out at most of which screening thinks that they fit, those first that keep least (empirical)."""

FEW = 4
"""So many where it is only asked whether something fits (empirical)."""

WORKED_OUT = 3
"""So many where screening thinks that nothing fits (empirical)."""

UNLIKE_B = GIB / 4
"""These differ by so much: less is not worth telling."""

NEAR = 1e-3
"""The memory that layouts need by what the tables know is found to this fraction of itself."""


def smallest(network: Network, request: Request, screening: ScreeningResult) -> MaterializedPlan | None:
    """The fastest plan that fits, of what keeps least; if none does, the plan that needs least.

    None if there is none, or if it is only asked whether something fits.
    """
    known = sorted(_different(screening), key=lambda one: _evenly_B(*one))
    fit = (row for row, _ in known if divided(row, request.limit_B) is not None)
    rows = list(islice(fit, FEW if request.is_trial else TRIED))
    if not rows and not request.is_trial:
        unlike = {int(_evenly_B(row, chain) / UNLIKE_B): row for row, chain in reversed(known)}
        rows = [unlike[size] for size in sorted(unlike)[:WORKED_OUT]]
    every = [one for row in rows for one in _worked_out(network, row, request)]
    there = [one for one in every if one.estimate.peak_memory_B <= request.limit_B]
    if there or request.is_trial:
        return min(there, key=lambda one: one.estimate.step_time_s, default=None)
    return min(every, key=lambda one: one.estimate.peak_memory_B, default=None)


def _worked_out(network: Network, row: Candidate, request: Request) -> Iterator[MaterializedPlan]:
    """`row` with true peaks, in ways that may need little; nothing where MindSpore rejects it."""
    limit_B = request.limit_B
    try:
        own = on_own_mesh(network, row)
        found = None if request.limits.names("recompute") else smallest_of(network, own, limit_B)
        if found is not None:
            yield found
            if found.estimate.peak_memory_B > limit_B >= _whatever_is_recomputed_B(found):
                more = make_feasible(network, found, limit_B)
                yield from [] if more is None else [more]
        if found is None or (found.estimate.peak_memory_B > limit_B and not request.is_trial):
            for layers, recomputation in _divisions(own):
                yield as_given(network, own, layers, recomputation)
    except InvalidStrategyError:
        return


def _evenly_B(row: Candidate, chain: Chain) -> float:
    """Bytes of the fullest stage by what the tables know, on stages of equally many blocks, all that may be recomputed."""
    blocks = int(chain.blocks[-1])
    layers, most = even(blocks, row.shape.stages), row.problem.limits.recomputed(blocks)[1]
    recomputed = [min(count, -(-most // row.shape.stages)) for count in layers]
    return max(stage.peak_B for stage in laid_out(chain, layers, recomputed, row.shape.schedule))


def _whatever_is_recomputed_B(found: MaterializedPlan) -> float:
    """Bytes that the fullest stage needs at least with these layouts, whatever is recomputed and however blocks are divided."""
    at_rest_B = sum(sum(one[kind] for kind in AT_REST) for one in found.memory_B)
    return at_rest_B / len(found.memory_B) + min(one["buffers"] for one in found.memory_B)


def _different(screening: ScreeningResult) -> list[tuple[Candidate, Chain]]:
    """Different layouts with their parts: those that were screened, and those that keep least, of all settings."""
    slim = (row for setting, _ in screening.screened for row in slimmest(setting, frozenset(setting.shapes)))
    found: dict[tuple, tuple[Candidate, Chain]] = {}
    for row in (*screening.rows, *slim):
        chain = row.chain
        found.setdefault((row.shape.stages, row.shape.schedule, row.level, chain.parts), (row, chain))
    return list(found.values())


def _divisions(row: Candidate) -> Iterator[tuple[list[int], list[int]]]:
    """The blocks of every stage, and how many are recomputed, in the division of `row` that fits the least memory by what its
    tables know; and all of them recomputed, since more lives for a moment than tables count.
    """
    least, low_B = divided(row, math.inf), 0.0
    if least is None:
        return
    while (high_B := least.peak_memory_B) - low_B > NEAR * high_B:
        middle_B = (low_B + high_B) / 2
        found = divided(row, middle_B)
        least, low_B = (least, middle_B) if found is None else (found, low_B)
    layers, recomputation = [s.blocks for s in least.stages], [s.recomputed for s in least.stages]
    yield layers, recomputation
    if recomputation != layers and row.problem.limits.recomputed(sum(layers))[1] == sum(layers):
        yield layers, layers


def obstacle_of(network: Network, found: MaterializedPlan) -> Obstacle:
    """The obstacle of a plan: its fullest stage."""
    stages = found.estimate.stages
    number = max(range(len(stages)), key=lambda n: sum(found.memory_B[n].values()))
    peaks = peaks_of(network, found.row)
    program = peaks.program_of(number, [stage.blocks for stage in stages], stages[number].recomputed)
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
