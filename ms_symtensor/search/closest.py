"""Where nothing fits: the plan that needs least, as an obstacle."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.constraints.obstacle import Obstacle, largest_tensor
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.search.folded.chain import Chain
from ms_symtensor.search.stages.estimate import chain_of, divided
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.materialize import MaterializedPlan, as_given, peaks_of, strategies_of
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.own_mesh import priced

WORKED_OUT = 3
"""So many layouts that need least by what the tables know, each another limit, are worked out with true peaks (empirical)."""

STEPS_PER_GIB = 4
"""Limits are tried in steps of a quarter of a GiB: less is not worth telling."""

MOST_GIB = 4096
"""No limit above is tried: devices with as much are not to be had."""


def least_plan(network: Network, request: Request, rows: Sequence[Candidate]) -> MaterializedPlan | None:
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
            own = priced(network, row, strategies_of(row), request.rules)
            for layers, recomputation in _divisions(network, own):
                every.append(as_given(network, own, layers, recomputation, request.rules))
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


def obstacle_of(network: Network, request: Request, found: MaterializedPlan) -> Obstacle:
    """The obstacle of a plan: its fullest stage."""
    stages = found.estimate.stages
    number = max(range(len(stages)), key=lambda n: sum(found.memory_B[n].values()))
    peaks = peaks_of(network, found.row, found.strategies, request.rules)
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
    yield _settings(found.settings, sum(s.recomputed for s in stages), sum(s.blocks for s in stages))


def _settings(settings: Settings, recomputed: int, blocks: int) -> str:
    recomputation = "everything recomputed" if recomputed == blocks else f"{recomputed} of {blocks} blocks recomputed"
    host = ", optimizer offload" if settings.swap_optimizer else ""
    return f"optimizer sharding {settings.optimizer_level.name.lower()}, {recomputation}{host}"
