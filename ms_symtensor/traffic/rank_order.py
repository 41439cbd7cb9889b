"""Which rank runs where: the order of stages and mesh axes over the levels of a cluster.

MindSpore numbers ranks stage by stage, and in a stage by the axes of its device matrices. A rank table may put them elsewhere.
Ranks are written as digits, one for every axis; an order of the axes is an order of the digits, and a step is priced for it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, permutations

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.plan_price import PlanBill, plan_bill, priced
from ms_symtensor.cost.runtime import Runtime, runtime_of
from ms_symtensor.program.stage_program import Programs
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.traffic.exchanged import Message, messages

MOST_AXES = 5
"""Of so many axes all orders are priced (120); of more, exchanges of two axes while they gain (empirical)."""


@dataclass(frozen=True)
class Axis:
    """`size` ranks, `stride` apart; `name`: "stages", or what the axis is in a stage."""

    name: str
    size: int
    stride: int


@dataclass(frozen=True)
class RankOrder:
    """`axes` outermost first, as they lie on the levels; `positions`: where every rank runs; the step so, and in rank order."""

    axes: tuple[Axis, ...]
    positions: tuple[int, ...]
    step_s: float
    rank_order_s: float
    is_exact: bool

    @property
    def gain(self) -> float:
        """How much shorter the step is, as a share of that in rank order."""
        return 1 - self.step_s / self.rank_order_s


def order_of(plan: Plan, graph: Graph, programs: Programs) -> RankOrder:
    """The best order for `plan` of `graph`, whose programs these are, on the cluster and under the run-time that it is for."""
    runtime = runtime_of(plan.runtime, plan.hide)
    bill = plan_bill(graph, plan.stages, plan.pipeline, programs=programs, fuses=runtime.fuses)
    return best_order(bill, messages(programs), plan.planned_for, runtime, plan.device_num)


def best_order(
    bill: PlanBill, exchanged: Sequence[Message], cluster: Cluster, runtime: Runtime, device_num: int
) -> RankOrder:
    """The order whose step is shortest, rank order where none is shorter; exact for MOST_AXES axes."""
    stages = 1 if bill.pipeline is None else bill.pipeline.stage_num
    axes = axes_of(exchanged, cluster, device_num, stages)
    known: dict[tuple[Axis, ...], float] = {}

    def step_s(order: tuple[Axis, ...]) -> float:
        if order not in known:
            laid = cluster if order == axes else replace(cluster, positions=positions_of(axes, order))
            known[order] = priced(bill, laid, runtime).step_time_s
        return known[order]

    is_exact = len(axes) <= MOST_AXES
    best = axes
    if is_exact:
        best = min(permutations(axes), key=step_s)  # rank order comes first, and stays where others are equal
    else:
        while (better := min(_exchanged(best), key=step_s)) and step_s(better) < step_s(best):
            best = better
    return RankOrder(best, positions_of(axes, best), step_s(best), step_s(axes), is_exact)


def _exchanged(order: tuple[Axis, ...]) -> Iterator[tuple[Axis, ...]]:
    for i, j in combinations(range(len(order)), 2):
        changed = list(order)
        changed[i], changed[j] = changed[j], changed[i]
        yield tuple(changed)


def positions_of(axes: Sequence[Axis], order: Sequence[Axis]) -> tuple[int, ...]:
    """Where every rank runs if `axes`, the digits of ranks, have this `order`, outermost first."""
    stride: dict[Axis, int] = {}
    inside = 1
    for axis in reversed(order):
        stride[axis], inside = inside, inside * axis.size
    ranks = range(math.prod(axis.size for axis in axes))
    return tuple(sum(rank // axis.stride % axis.size * stride[axis] for axis in axes) for rank in ranks)


def axes_of(exchanged: Sequence[Message], cluster: Cluster, device_num: int, stages: int) -> tuple[Axis, ...]:
    """The axes that groups of ranks tell apart, outermost first; one that spans several levels is cut at these."""
    inside = device_num // stages
    cuts = {1, device_num, inside, *(level.ranks for level in cluster.levels[:-1] if level.ranks)}
    for ranks in {one.ranks for one in exchanged if one.kind != "Send"}:
        cuts |= set(_strides(ranks))
    chain = [1]
    for cut in sorted(cuts):
        fits = inside % cut == 0 or (cut % inside == 0 and device_num % cut == 0)
        if cut > chain[-1] and cut % chain[-1] == 0 and fits:
            chain.append(cut)
    found = [Axis("stages" if low >= inside else "mesh", high // low, low) for low, high in pairwise(chain)]
    return tuple(reversed(found))


def _strides(ranks: tuple[int, ...]) -> Iterator[int]:
    """Where the axes of a regular group begin and end."""
    members = sorted(ranks)
    while len(members) > 1:
        stride = members[1] - members[0]
        count = next((i for i, rank in enumerate(members) if rank != members[0] + i * stride), len(members))
        yield from (stride, stride * count)
        members = members[::count]
