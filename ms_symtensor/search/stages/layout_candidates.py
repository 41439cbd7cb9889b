"""The best layouts of every shape of a family under one setting of the optimizer, and how fast no layout is.

A first look is quick: the layouts that are best where memory is free. The second one is for shapes that are still worth it:
layouts that keep little, and better bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.average_stage import average_weights
from ms_symtensor.search.tables.elimination import Minimum
from ms_symtensor.search.tables.parameters import stage_terms
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.search.tables.terms import Costs, Weights, occurring

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

SELECTIVE = (0.2, 0.4, 0.7)
"""What selective recomputation may pay for a byte, in times of what recomputation of whole blocks does (empirical)."""


DEAR = 4.0
"""So many times as much is paid for a byte where memory is so short that recomputation alone does not do (empirical)."""


@dataclass(frozen=True)
class Candidate:
    """One shape, number `number` of its setting, on the mesh and batch that are member number `member` of the family of
    `problem`: `costs` [places] of the candidates `choice` of the problem's variables.
    """

    shape: StepLayout
    level: OptimizerLevel
    bound_s: float
    costs: Costs
    number: int
    member: int
    problem: Problem
    choice: Numbers

    def bound_by(self, bound_s: float) -> "Candidate":
        """The same with this bound; itself if it has it."""
        return self if bound_s == self.bound_s else replace(self, bound_s=bound_s)


@dataclass(frozen=True)
class ConfigGroup:
    """One optimizer level, the tables under it, and the shapes for which MindSpore allows it: those with the
    numbers `which` of `shapes`.

    `members` [shapes]: the members of the family of `problem` that are their meshes and batches. `slack_s` [shapes]: so much
    faster may be steps under levels that are left out; all bounds allow for it.
    """

    problem: Problem
    shapes: tuple[StepLayout, ...]
    members: Numbers
    depths: tuple[int, ...]
    level: OptimizerLevel
    tables: Tables
    which: Numbers
    slack_s: Array

    @property
    def occurrences(self) -> tuple[int, ...]:
        """How often every place is there."""
        return occurrences(self.depths)

    def fastest(self) -> list[Candidate]:
        """Where memory is free: one row per shape that can be laid out; its bound is its time if all stages were alike, or, with
        several virtual stages, the share of that with one run that no step goes below.
        """
        plain = {self.shapes[n]: n for n in self.which if self.shapes[n].interleave == 1}
        single = {n: plain.get(self.shapes[n].in_one_run, n) for n in self.which.tolist()}
        which = np.array([n for n, of in single.items() if n == of], dtype=np.intp)
        if not len(which):
            return []
        least = self._least(which, self._weights(which), self._shares[0])
        possible = np.isfinite(least.value)
        every = self.rows_of(which[possible], least.assignment[possible], least.value[possible])
        found = {row.number: row for row in every}
        return [self._at(found[of], n) for n, of in single.items() if of in found]

    def _at(self, plain: Candidate, number: int) -> Candidate:
        """What `plain`, where memory is free, says of a shape that differs by its virtual stages."""
        shape = self.shapes[number]
        bound_s = plain.bound_s * _share(shape, plain.shape) - float(self.slack_s[number])
        return replace(plain, shape=shape, number=number, bound_s=bound_s)

    def saves_s(self, than: "ConfigGroup") -> tuple[Array, NDArray[np.bool_]]:
        """Seconds [shapes] that a step takes less at most than with the same layouts under the level of `than`, inf where every
        micro-batch may be faster; and whether it may need less memory.
        """
        weights = self._weights(np.arange(len(self.shapes)))
        parameters = self.tables.parameters
        (once,) = occurring(parameters, [weights.once_s])
        total, slimmer = np.zeros(len(self.shapes)), np.zeros(len(self.shapes), dtype=bool)
        for occurs, mine, other in zip(once, parameters, than.tables.parameters, strict=True):
            more_B = [
                mine.at_rest_B + kept - other.at_rest_B - other_kept
                for kept, other_kept in (
                    (mine.kept_B, other.kept_B), (mine.kept_recomputed_B, other.kept_recomputed_B)
                )
            ]  # fmt: skip
            with np.errstate(invalid="ignore"):  # what MindSpore would not train rightly is so under every level
                saved = np.nan_to_num(other.once_s - mine.once_s, nan=0.0)
            axes = tuple(range(1, saved.ndim))
            total += occurs * np.maximum(saved.max(axis=axes), 0.0)[self.members]
            total[(mine.each_s < other.each_s).any(axis=axes)[self.members]] = np.inf
            slimmer |= (np.minimum(*more_B) < 0).any(axis=axes)[self.members]
        return total, slimmer

    def slim(self, among: Sequence[Candidate], limit_B: float) -> tuple[list[Candidate], dict[StepLayout, float]]:
        """For the shapes of `among`, results of `fastest`: these again, and those that are best where memory is dear.

        The bound is the largest value of the Lagrangian dual D(λ) = min over layouts and recomputation r of T + λ (M - limit),
        M being the memory of an average stage; λ = 0, and what recomputation pays for a byte. And bounds that hold whatever is
        recomputed: as if everything were, in no time.
        """
        if not among:
            return [], {}
        which = np.array([row.number for row in among], dtype=np.intp)
        fast = Costs(*(np.stack([getattr(row.costs, f.name) for row in among], axis=1) for f in fields(Costs)))
        bound = np.array([row.bound_s for row in among])
        weights = self._weights(which)
        saved = (weights.saved_B * (fast.kept_B - fast.kept_recomputed_B))[1:-1].sum(axis=0)
        recomputation = (weights.recompute_s * fast.recompute_s)[1:-1].sum(axis=0)
        price = np.where(np.isfinite(recomputation), recomputation, 0.0) / np.maximum(saved, 1.0)
        count, shares = len(which), self._shares
        paths = [(weights, share, 1.0) for share in shares] + [(weights.in_no_time, 1.0, 1.0)]
        paths += [(weights, shares[0], factor) for factor in SELECTIVE] if self.problem.selects else []
        paths += [(weights, shares[1], DEAR)]
        several = np.tile(np.arange(count), len(paths))
        prices = np.concatenate([factor * price for _, _, factor in paths])
        least = self._least(
            which[several],
            Weights.beside([one for one, _, _ in paths]),
            np.repeat([s for _, s, _ in paths], count),
            prices,
        )
        *values, free = least.value.reshape(len(paths), -1)[:3] - price * limit_B - self.slack_s[which]
        bound = np.maximum(bound, np.min(values, axis=0))
        first = [row.bound_by(float(least_s)) for row, least_s in zip(among, bound, strict=True)]
        dear = [
            row
            for way in (0, 1, *range(3, len(paths)))
            for row in self.rows_of(which, least.assignment[way * count : (way + 1) * count], bound)
        ]
        return first + dear, {row.shape: float(free_s) for row, free_s in zip(among, free, strict=True)}

    def at_rest_B(self, which: Numbers) -> Array:
        """Bytes [which] of parameters, gradients and optimizer states that an average stage holds at least, in any layouts."""
        weights = self._weights(which)
        dear = replace(weights, kept_B=np.zeros_like(weights.kept_B))
        least = self._least(which, dear, price=np.ones(len(which)))  # a second for a byte: no layout takes that long
        costs = self.tables.by_place(least.assignment, self.members[which])
        found: Array = (weights.at_rest_B * costs.at_rest_B).sum(axis=0)
        return found

    @property
    def _shares(self) -> tuple[float, float]:
        """The least and the most of the blocks that may be recomputed; of several kinds, all might be of any."""
        blocks = sum(self.depths[1:-1])
        least, most = self.problem.limits.recomputed(blocks)
        if len(self.depths) != 3:
            return float(0 < blocks <= least), float(most > 0)
        return least / max(blocks, 1), most / max(blocks, 1)

    def _weights(self, which: Numbers) -> Weights:
        return average_weights(self.occurrences, [self.shapes[i] for i in which])

    def _least(
        self, which: Numbers, weights: Weights, recomputed: float | Array = 0.0, price: float | Array = 0.0
    ) -> Minimum:
        summed = self.tables.factors(recomputed, price, weights, self.members[which])
        return self.problem.least(summed)

    def rows_of(self, which: Numbers, assignment: Numbers, bound_s: Array) -> list[Candidate]:
        """The rows of those of the shapes `which` that `assignment` [which, variables] can be laid out on."""
        members = self.members[which]
        costs = self.tables.by_place(assignment, members)
        finite = np.isfinite(costs.each_s).all(axis=0)
        return [
            Candidate(
                self.shapes[n], self.level, float(bound_s[i]), costs.of(i), int(n), int(members[i]), self.problem, assignment[i]
            )
            for i, n in enumerate(which)
            if finite[i]
        ]  # fmt: skip


def combines(shape: StepLayout, level: OptimizerLevel, limits: Limits) -> bool:
    """Whether MindSpore combines `level` with `shape`, and no other level does the same there.

    Level 3 goes with no stages (nor do we combine it with gradients that add up), level 2 with none that add up on one stage.
    """
    if level is OptimizerLevel.LEVEL2:
        idle = not shape.accumulates and limits.allows("optimizer_level", OptimizerLevel.LEVEL1)
        return shape.stages > 1 or not (shape.accumulates or idle)
    return not shape.accumulates or level is not OptimizerLevel.LEVEL3


def fixed_candidate(of: Problem, shape: StepLayout, level: OptimizerLevel) -> Candidate:
    """The row of `of`, whose variables have one candidate each."""
    settings = replace(of.settings, optimizer_level=level)
    parameters = stage_terms(of.known, of.parameters, settings, [shape.accumulates], [shape.stages > 1])
    choice = np.zeros((1, len(of.known.items)), dtype=np.intp)
    costs = Tables(of, parameters).by_place(choice, np.zeros(1, dtype=np.intp))
    return Candidate(shape, level, 0.0, costs.of(0), 0, 0, of, choice[0])


def _share(shape: StepLayout, plain: StepLayout) -> float:
    """The share of an even step with one virtual stage that one with several takes: (M + (P - 1) / v) / (M + P - 1)."""
    even_s = [1.0] * shape.stages
    return shape.schedule.step_s(even_s, 0.0) / plain.schedule.step_s(even_s, 0.0)
