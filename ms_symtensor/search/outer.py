"""The whole outer space at once: the best layouts of the blocks for every shape, and what the step then takes.

For every shape (stages, micro-batches, mesh) and every setting of the optimizer, the operators' layouts that minimise

    T = (M + P - 1) / P · Σ_places n_place t_place + Σ_parameters

are found exactly for all shapes of one family together (`elimination`); T is a lower bound of the step, in which all stages
are equally slow. Then the chain is divided into stages that fit (`stage_layers`), shape by shape in the order of the bounds,
until no bound is below the best step found.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.average_stage import average_weights
from ms_symtensor.search.family import family
from ms_symtensor.search.folding import fold
from ms_symtensor.search.growth import batch_powers
from ms_symtensor.search.limits import FREE, Limits
from ms_symtensor.search.parameters import stage_terms
from ms_symtensor.search.places import places
from ms_symtensor.search.pricing import Pricer
from ms_symtensor.search.problem import Problem, problem_of
from ms_symtensor.search.rows import Row, Setting
from ms_symtensor.search.shapes import Shape
from ms_symtensor.search.solve import settings_of
from ms_symtensor.search.stage_layers import Part, Stage, divide
from ms_symtensor.search.variables import Variables, variables
from ms_symtensor.tensor.graph import Graph

Array = NDArray[np.float64]

SHORT = 3
"""Blocks of every kind in the network whose tables are written down: a first, a last and one between them."""

SAMPLES = {1: (2, 6), 2: (4, 24), 3: (16, 384)}
"""Samples of the representative by the axes of its mesh: one per position of the major axis, and three per device."""


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
    all choices of layouts that were priced, by rising bounds. `ruled_out_s`: bounds of shapes whose layouts were not looked at.
    """

    estimates: tuple[Estimate, ...]
    bound_s: float
    candidates: int
    shapes: int
    tried: int
    infeasible: tuple[Shape, ...]
    rows: tuple[Row, ...]
    ruled_out_s: Mapping[Shape, float]

    @property
    def bounds_s(self) -> dict[Shape, float]:
        """The bound of every shape."""
        found = dict(self.ruled_out_s)
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
    limits: Limits = FREE,
) -> Outcome:
    """Price all of `space` within `limits`; what cannot beat a step of `known_s` is not looked at closely.

    `graph_at(batch)` is the network with SHORT blocks of every kind at that many samples; `depths`: how many blocks of every
    kind it really has, with 1 before and after.
    """
    settings: list[Setting] = []
    ruled_out_s: dict[Shape, float] = {}
    for members in _families(space):
        graph, known = _variables(graph_at, members, cluster, rules, limits)
        if math.isfinite(known_s):
            least_s = _least_work_s(graph, known, depths, members)
            if min(least_s) >= known_s:
                ruled_out_s.update(zip(members, least_s, strict=True))
                continue
        settings += _settings(problem_of(graph, known), depths, members)
    tried = _Tried(depths, limit_B, keep, known_s)
    fast = [s.fastest() for s in settings]
    tried.look_at(row for rows in fast for row in rows)
    rows = [_looked_at(of, first, tried.worst_s, limit_B) for of, first in zip(settings, fast, strict=True)]
    tried.look_at(row for of_setting in rows for row in of_setting)
    if tried.recomputes:
        # Memory decides: knowing how fast a step can be, the bounds can say how unevenly the blocks may lie at most.
        best_s = tried.best_s
        rows = [_looked_at(of, first, best_s, limit_B, best_s) for of, first in zip(settings, fast, strict=True)]
        tried.look_at(row for of_setting in rows for row in of_setting)
    candidates = sum(of.problem.candidates * len(of.members) for of in settings if of.level is OptimizerLevel.NONE)
    return tried.outcome([row for of_setting in rows for row in of_setting], ruled_out_s, candidates, len(space))


def _looked_at(
    of: Setting, first: Sequence[Row], worth_s: float, limit_B: float, known_s: float = math.inf
) -> list[Row]:
    """The rows `first` of a setting, those looked at closely whose bound is below `worth_s`."""
    worth = [row for row in first if row.bound_s < worth_s]
    return of.slim(worth, limit_B, known_s) + [row for row in first if row.bound_s >= worth_s]


class _Tried:
    """Shapes divided into stages, in the order of their bounds, until no bound is below the `keep` best steps."""

    def __init__(self, depths: tuple[int, ...], limit_B: float, keep: int, known_s: float) -> None:
        self._depths, self._limit_B, self._keep, self._known_s = depths, limit_B, keep, known_s
        self._known: dict[tuple, Estimate | None] = {}
        self._found: dict[Shape, Estimate] = {}

    @property
    def worst_s(self) -> float:
        """What a step must be faster than to be of interest."""
        times = sorted(e.step_time_s for e in self._found.values())
        return times[self._keep - 1] if len(times) >= self._keep else self._known_s

    @property
    def best_s(self) -> float:
        return min((e.step_time_s for e in self._found.values()), default=math.inf)

    @property
    def recomputes(self) -> bool:
        """Whether the best step found recomputes blocks."""
        best = min(self._found.values(), key=lambda e: e.step_time_s, default=None)
        return best is not None and any(stage.recomputed for stage in best.stages)

    def look_at(self, rows: Iterable[Row]) -> None:
        """Divide those of `rows` that may be of interest."""
        for row in sorted(rows, key=lambda row: row.bound_s):
            if row.bound_s >= self.worst_s:
                break
            one = self._divided(row)
            known = self._found.get(row.shape)
            if one is not None and (known is None or one.step_time_s < known.step_time_s):
                self._found[row.shape] = one

    def outcome(self, rows: Sequence[Row], ruled_out_s: Mapping[Shape, float], candidates: int, shapes: int) -> Outcome:
        """What was learnt, `rows` being all that was priced, with their best bounds."""
        ordered = sorted(rows, key=lambda row: row.bound_s)
        refused = {row.shape: None for row in ordered if row.shape not in self._found and row.bound_s < self.worst_s}
        best = tuple(sorted(self._found.values(), key=lambda e: (e.step_time_s, e.shape.stages, e.shape.mesh)))
        bounds = [row.bound_s for row in ordered if row.shape not in refused]
        bound_s = min((*bounds, *ruled_out_s.values()), default=math.inf)
        return Outcome(best, bound_s, candidates, shapes, len(self._known), tuple(refused), tuple(ordered), ruled_out_s)

    def _divided(self, row: Row) -> Estimate | None:
        key = (row.shape, row.level, row.choice.tobytes())
        if key not in self._known:
            self._known[key] = divided(row, self._depths, self._limit_B)
        return self._known[key]


def short_depths(graph: Graph) -> tuple[int, ...]:
    """The depths of every place of `graph`."""
    return places(graph, fold(graph)).depths


def _families(space: Sequence[Shape]) -> list[list[Shape]]:
    """Shapes whose layouts are alike: as many axes, one or several samples per copy."""
    found: dict[tuple[int, bool], list[Shape]] = {}
    for shape in space:
        found.setdefault((len(shape.mesh), shape.samples > 1), []).append(shape)
    return list(found.values())


def _variables(
    graph_at: Callable[[int], Graph],
    members: Sequence[Shape],
    cluster: Cluster,
    rules: Mapping[str, Rule] | None,
    limits: Limits,
) -> tuple[Graph, Variables]:
    """The representative's graph, and its operators with their candidates on all shapes of a family."""
    batch = SAMPLES[len(members[0].mesh)][members[0].samples > 1]
    graph = graph_at(batch)
    pricer = Pricer(cluster, family([m.mesh for m in members], [m.batch / batch for m in members]))
    powers = batch_powers(graph, graph_at(2 * batch))
    return graph, variables(graph, fold(graph), pricer, rules, powers, limits=limits)


def _least_work_s(graph: Graph, known: Variables, depths: tuple[int, ...], members: Sequence[Shape]) -> list[float]:
    """Seconds that no step is faster than: every operator by itself at its best, nothing moved."""
    where = places(graph, fold(graph))
    each = average_weights(depths, members, np.zeros(len(members)), math.inf).each_s
    total = np.zeros(len(members))
    for variable in known.items:
        counts = np.array(where.counts(dict.fromkeys(variable.members, 1)))
        total += (counts @ each) * (variable.forward_s + variable.backward_s).min(axis=1)
    found: list[float] = total.tolist()
    return found


def _settings(of: Problem, depths: tuple[int, ...], members: Sequence[Shape]) -> list[Setting]:
    """Shapes that make a family, under every setting of the optimizer."""
    found = []
    for settings in settings_of(of.settings, of.shares_blocks, of.limits):
        level = settings.optimizer_level
        # MindSpore does not combine level 3 with pipeline stages.
        allowed = [i for i, m in enumerate(members) if m.stages == 1 or level is not OptimizerLevel.LEVEL3]
        terms = stage_terms(of.known, of.parameters, settings, [m.stages > 1 for m in members])
        found.append(Setting(of, tuple(members), depths, level, terms, np.array(allowed, dtype=np.intp)))
    return found


def divided(row: Row, depths: tuple[int, ...], limit_B: float | Sequence[float]) -> Estimate | None:
    """The stages of `row` that fit, and what the step then takes."""
    parts = parts_of(row, depths)
    recomputed = row.problem.limits.recomputed(sum(depths[1:-1]))
    stages = divide(parts, row.shape.stages, row.shape.micro_batch_num, limit_B, recomputed)
    return None if stages is None else estimated(row, depths, parts, stages)


def parts_of(row: Row, depths: tuple[int, ...]) -> list[Part]:
    """The chain of what stands before the blocks, the blocks, and what stands after them."""
    c = row.costs
    chain: list[Part] = []
    for place, depth in enumerate(depths):
        is_block = 0 < place < len(depths) - 1
        each_s, again_s, kept_B, again_B, rest_B = (
            float(v[place]) for v in (c.each_s, c.again_s, c.kept_B, c.kept_recomputed_B, c.at_rest_B)
        )
        chain += [Part(each_s, again_s, kept_B, again_B, rest_B, is_block)] * depth
    return chain


def estimated(row: Row, depths: tuple[int, ...], parts: Sequence[Part], stages: tuple[Stage, ...]) -> Estimate:
    """What the step takes on `stages` of `parts`: T = M · max s + (Σ s - max s) + once."""
    c = row.costs
    once = float(c.once_s[0]), float(c.once_s[-1])
    blocks = float((c.once_s[1:-1] * depths[1:-1]).sum()) / max(1, sum(depths[1:-1]))
    once_s = max(
        s.blocks * blocks + (once[0] if i == 0 else 0.0) + (once[1] if i == len(stages) - 1 else 0.0)
        for i, s in enumerate(stages)
    )
    work_s = sum(part.each_s for part in parts)
    return Estimate(row.shape, row.level, row.bound_s, max(s.peak_B for s in stages), stages, work_s, once_s)
