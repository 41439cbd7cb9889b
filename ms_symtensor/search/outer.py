"""The whole outer space at once: the best layouts of the blocks for every shape, and what the step then takes.

For every shape (stages, micro-batches, mesh) and every setting of the optimizer, the operators' layouts that minimise

    T = (M + P - 1) / P · Σ_places n_place t_place + Σ_parameters

are found exactly for all shapes of one family together (`elimination`); T is a lower bound of the step, in which all stages
are equally slow. Then the chain is divided into stages that fit (`stage_layers`), shape by shape in the order of the bounds,
until no bound is below the best step found.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.elimination import minimise
from ms_symtensor.search.family import family
from ms_symtensor.search.folding import fold
from ms_symtensor.search.growth import batch_powers
from ms_symtensor.search.parameters import parameter_terms
from ms_symtensor.search.places import places
from ms_symtensor.search.problem import Problem, factors, problem_of_family
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.stage_layers import Part, Stage, divide, in_flight
from ms_symtensor.search.terms import Terms, Weights
from ms_symtensor.tensor.graph import Graph

Array = NDArray[np.float64]

SHORT = 3
"""Blocks of every kind in the network whose tables are written down: a first, a last and one between them."""


@dataclass(frozen=True)
class Estimate:
    """A shape with the best layouts that were found for it, and what they cost.

    `work_s`: a micro-batch's way through all stages without recomputation; `once_s`: what the end of a step takes.
    """

    shape: Shape
    level: OptimizerLevel
    bound_s: float
    peak_memory_B: float
    stages: tuple[Stage, ...]
    work_s: float
    once_s: float

    @property
    def step_time_s(self) -> float:
        return sum(self.time_s.values())

    @property
    def time_s(self) -> dict[str, float]:
        """T = M · max s + (Σ s - max s) + once, s being the stages' times: what an average stage does, and its waiting."""
        share = self.shape.micro_batch_num / self.shape.stages
        total, pace = sum(s.each_s for s in self.stages), max(s.each_s for s in self.stages)
        return {
            "work": share * self.work_s,
            "recompute": max(0.0, share * (total - self.work_s)),  # a sum in another order may be larger by rounding
            "bubble": max(0.0, self.shape.micro_batch_num * pace + total - pace - share * total),
            "once": self.once_s,
        }


@dataclass(frozen=True)
class Outcome:
    """All that was learnt: feasible estimates by rising step time, and a bound on every step.

    `candidates` operator strategies were priced over so many `shapes`, of which `tried` were divided into stages; `rows` are
    all choices of layouts that were priced, by rising bounds.
    """

    estimates: tuple[Estimate, ...]
    bound_s: float
    candidates: int
    shapes: int
    tried: int
    infeasible: tuple[Shape, ...]
    rows: tuple["Row", ...]

    @property
    def bounds_s(self) -> dict[Shape, float]:
        """The bound of every shape."""
        found: dict[Shape, float] = {}
        for row in self.rows:
            found.setdefault(row.shape, row.bound_s)
        return found


def survey(
    graph_at: Callable[[int], Graph],
    depths: tuple[int, ...],
    space: Sequence[Shape],
    cluster: Cluster,
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
    keep: int = 10,
    known_s: float = math.inf,
) -> Outcome:
    """Price all of `space`; what cannot beat a step of `known_s` is not looked at closely.

    `graph_at(batch)` is the network with SHORT blocks of every kind at that many samples; `depths`: how many blocks of every
    kind it really has, with 1 before and after.
    """
    tables = [(_tables(graph_at, members, cluster, rules), members) for members in _families(space)]
    outcome = _chosen(
        [r for of, members in tables for r in rows(of, depths, members, limit_B)], depths, space, limit_B, keep, known_s
    )
    priced = sum(of.candidates * len(members) for of, members in tables)
    best = outcome.estimates[0] if outcome.estimates else None
    if best is None or not any(stage.recomputed for stage in best.stages):
        return replace(outcome, candidates=priced)
    # Memory decides: knowing how fast a step can be, the bounds can say how unevenly the blocks may lie at most.
    again = [r for of, members in tables for r in rows(of, depths, members, limit_B, best.step_time_s)]
    return replace(_chosen(again, depths, space, limit_B, keep, known_s), candidates=priced)


def _chosen(
    priced: Sequence["Row"], depths: tuple[int, ...], space: Sequence[Shape], limit_B: float, keep: int, known_s: float
) -> Outcome:
    """Divide shapes into stages, in the order of their bounds, until no bound is below the `keep` best steps."""
    rows = sorted(priced, key=lambda row: row.bound_s)
    found: dict[Shape, Estimate] = {}
    refused: dict[Shape, None] = {}
    tried = 0
    for row in rows:
        worst = sorted(e.step_time_s for e in found.values())[keep - 1] if len(found) >= keep else known_s
        if row.bound_s >= worst:
            break
        tried += 1
        one = divided(row, depths, limit_B)
        if one is None:
            refused[row.shape] = None
        elif row.shape not in found or one.step_time_s < found[row.shape].step_time_s:
            found[row.shape] = one
    best = tuple(sorted(found.values(), key=lambda e: (e.step_time_s, e.shape.stages, e.shape.mesh)))
    bound = min((row.bound_s for row in rows if row.shape not in refused or row.shape in found), default=math.inf)
    return Outcome(best, bound, 0, len(space), tried, tuple(s for s in refused if s not in found), tuple(rows))


def short_depths(graph: Graph) -> tuple[int, ...]:
    """The depths of every place of `graph`."""
    return places(graph, fold(graph)).depths


def _families(space: Sequence[Shape]) -> list[list[Shape]]:
    """Shapes whose layouts are alike: as many axes, one or several samples per copy."""
    found: dict[tuple[int, bool], list[Shape]] = {}
    for shape in space:
        found.setdefault((len(shape.mesh), shape.samples > 1), []).append(shape)
    return list(found.values())


@dataclass(frozen=True)
class Costs:
    """Seconds of a micro-batch (forward and backward; again), seconds once per step, and bytes of one occurrence of every
    place: [places, members].
    """

    each_s: Array
    again_s: Array
    once_s: Array
    kept_B: Array
    kept_recomputed_B: Array
    at_rest_B: Array


@dataclass(frozen=True)
class Row:
    """One shape under one setting: `costs` at `member`, of the candidates `choice` of the variables of `problem`."""

    shape: Shape
    level: OptimizerLevel
    bound_s: float
    costs: Costs
    member: int
    problem: Problem
    choice: NDArray[np.intp]


def _tables(
    graph_at: Callable[[int], Graph], members: Sequence[Shape], cluster: Cluster, rules: Mapping[str, Rule] | None
) -> Problem:
    """The tables of shapes that make a family."""
    axes = len(members[0].mesh)
    batch = {1: 2, 2: 4, 3: 16}[axes] * (1 if members[0].samples <= 1 else 3)
    graph = graph_at(batch)
    of_all = family([m.mesh for m in members], [m.batch / batch for m in members])
    return problem_of_family(graph, cluster, of_all, rules, batch_powers(graph, graph_at(2 * batch)))


def rows(
    of: Problem, depths: tuple[int, ...], members: Sequence[Shape], limit_B: float, known_s: float = math.inf
) -> list[Row]:
    """For every member and setting of the optimizer the layouts that are best where memory is free, and where it is dear.

    The bound of a setting is the largest value of the Lagrangian dual D(λ) = min over layouts and recomputation r of
    T + λ (M - limit), M being the memory of an average stage; λ = 0, and what recomputation pays for a byte. Steps slower
    than `known_s` need not be bounded.
    """
    found: list[Row] = []
    for level in (OptimizerLevel.LEVEL1, OptimizerLevel.NONE):
        settings = replace(of.settings, optimizer_level=level)
        parameters = parameter_terms(of.known, of.parameters, settings)
        price: Array = np.zeros(len(members))
        bound = np.zeros(len(members))
        chosen: list[tuple[Costs, NDArray[np.intp]]] = []
        block_s = np.zeros(len(members))
        for recompute in ((0.0,), (0.0, 1.0)):
            weights = _weights(depths, members, block_s, known_s)
            least = [minimise(of.sizes, factors(of, parameters, r, price, weights), of.order) for r in recompute]
            bound = np.maximum(bound, np.min([one.value for one in least], axis=0) - price * limit_B)
            chosen += [(_by_place(of, parameters, one.assignment), one.assignment) for one in least]
            costs = chosen[0][0]
            block_s = costs.each_s[1:-1].min(axis=0, initial=math.inf)
            saved = (weights.saved_B * (costs.kept_B - costs.kept_recomputed_B))[1:-1].sum(axis=0)
            again = (weights.each_s * costs.again_s)[1:-1].sum(axis=0)
            price = np.where(np.isfinite(again), again, 0.0) / np.maximum(saved, 1.0)
        if len(depths) == 3:  # one kind of blocks
            paces = [
                minimise(of.sizes, factors(of, parameters, 0.0, 0.0, one), of.order).value
                for one in _pace_weights(depths, members, chosen[0][0])
            ]
            bound = np.maximum(bound, np.min(paces, axis=0))
        for costs, assignment in chosen:
            finite = np.isfinite(costs.each_s).all(axis=0)
            found += [
                Row(m, level, float(bound[i]), costs, i, of, assignment[i]) for i, m in enumerate(members) if finite[i]
            ]
    return found


def _weights(depths: tuple[int, ...], members: Sequence[Shape], block_s: Array, known_s: float) -> Weights:
    """How often every place counts on an average stage.

    Early stages keep more micro-batches. In a step of `known_s` no stage has more blocks than known_s / (M block_s), so that
    the least is kept where the last stages are as full as that; and a recomputed block saves no more than on the first.
    """
    depth = np.array(depths, dtype=float)[:, None]
    stages = np.array([m.stages for m in members], dtype=float)
    number = np.array([m.micro_batch_num for m in members], dtype=float)
    layers = sum(depths[1:-1])
    kept, saved = np.ones(len(members)), np.ones(len(members))
    for i, shape in enumerate(members):
        flights = [in_flight(s, shape.stages, shape.micro_batch_num) for s in range(shape.stages)]
        most, left, total = float(layers), float(layers), 0.0
        if math.isfinite(known_s) and block_s[i] > 0:
            most = max(known_s / (shape.micro_batch_num * block_s[i]), layers / shape.stages)
        for flight in reversed(flights):
            here = min(left, most)
            total, left = total + flight * here, left - here
        kept[i], saved[i] = total / max(layers, 1), flights[0]
    each = depth * (number + stages - 1) / stages
    inside = np.ones((len(depths), 1))
    inside[[0, -1]] = 0.0
    kept_B = depth * np.where(inside > 0, kept, 1.0) / stages
    return Weights(each, depth / stages, kept_B, inside * depth * saved / stages, depth / stages)


def _pace_weights(depths: tuple[int, ...], members: Sequence[Shape], costs: Costs) -> tuple[Weights, Weights]:
    """How often every place counts in a step whose pace is that of the last stage, and of a stage of blocks alone.

    A last stage with l blocks or more takes t_last + l t_block at least; if it has fewer, one of the others has
    ⌈(L - l + 1) / (P - 1)⌉ blocks. So no step is faster than the faster of these two; l is chosen where they are closest.
    """
    layers = depths[1]
    each, ends = np.ones((2, 3, len(members)))
    once = np.array(depths, dtype=float)[:, None] / np.array([m.stages for m in members])
    for i, shape in enumerate(members):
        block_s, last_s = costs.each_s[1, i], costs.each_s[2, i]
        more, others = shape.micro_batch_num - 1, max(shape.stages - 1, 1)

        def slower(last: int, block_s: float = block_s, last_s: float = last_s, others: int = others) -> float:
            return min(last_s + last * block_s, -(-(layers - last + 1) // others) * block_s)

        best = max(range(1, layers + 1), key=slower) if shape.stages > 1 else layers
        each[:, i] = 1, layers + more * best, 1 + more
        fullest = -(-(layers - best + 1) // others) if shape.stages > 1 else layers
        ends[:, i] = 1, layers + more * fullest, 1
    nothing = np.zeros_like(once)
    none = (nothing, nothing, nothing)
    return Weights(each, once, *none), Weights(ends, once, *none)


def _by_place(of: Problem, parameters: list[Terms], assignment: NDArray[np.intp]) -> Costs:
    """The costs of `assignment` [members, variables]."""
    members = np.arange(assignment.shape[0])
    sums = np.zeros((6, of.places.number, len(members)))
    for t in (*of.terms, *parameters):
        at = (members, *(assignment[:, v] for v in t.scope))
        row = np.stack(
            [
                t.forward_s[at] + t.backward_s[at],
                t.again_s[at],
                t.once_s[at],
                t.kept_B[at],
                t.kept_recomputed_B[at],
                t.at_rest_B[at],
            ]
        )
        sums += row[:, None, :] * np.array(t.counts)[None, :, None]
    return Costs(*sums)


def divided(row: Row, depths: tuple[int, ...], limit_B: float) -> Estimate | None:
    """The stages of `row` that fit, and what the step then takes."""
    parts = parts_of(row, depths)
    stages = divide(parts, row.shape.stages, row.shape.micro_batch_num, limit_B)
    return None if stages is None else estimated(row, depths, parts, stages)


def parts_of(row: Row, depths: tuple[int, ...]) -> list[Part]:
    """The chain of what stands before the blocks, the blocks, and what stands after them."""
    c, m = row.costs, row.member
    chain: list[Part] = []
    for place, depth in enumerate(depths):
        is_block = 0 < place < len(depths) - 1
        each_s, again_s, kept_B, again_B, rest_B = (
            float(v[place, m]) for v in (c.each_s, c.again_s, c.kept_B, c.kept_recomputed_B, c.at_rest_B)
        )
        chain += [Part(each_s, again_s, kept_B, again_B, rest_B, is_block)] * depth
    return chain


def estimated(row: Row, depths: tuple[int, ...], parts: Sequence[Part], stages: tuple[Stage, ...]) -> Estimate:
    """What the step takes on `stages` of `parts`: T = M · max s + (Σ s - max s) + once."""
    c, m = row.costs, row.member
    once = float(c.once_s[0, m]), float(c.once_s[-1, m])
    blocks = float((c.once_s[1:-1, m] * depths[1:-1]).sum()) / max(1, sum(depths[1:-1]))
    once_s = max(
        s.blocks * blocks + (once[0] if i == 0 else 0.0) + (once[1] if i == len(stages) - 1 else 0.0)
        for i, s in enumerate(stages)
    )
    work_s = sum(part.each_s for part in parts)
    return Estimate(row.shape, row.level, row.bound_s, max(s.peak_B for s in stages), stages, work_s, once_s)


def given_row(of: Problem, shape: Shape, level: OptimizerLevel) -> Row:
    """The row of `of`, whose variables have one candidate each."""
    parameters = parameter_terms(of.known, of.parameters, replace(of.settings, optimizer_level=level))
    choice = np.zeros((1, len(of.known.items)), dtype=np.intp)
    return Row(shape, level, 0.0, _by_place(of, parameters, choice), 0, of, choice[0])
