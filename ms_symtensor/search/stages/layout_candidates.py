"""The best layouts of every shape of a family under one setting of the optimizer, and how fast no layout is.

A first look is quick: the layouts that are best where memory is free. The second one is for shapes that are still worth it:
layouts that keep little, and better bounds.
"""

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.folded.chain import Chain, Part
from ms_symtensor.search.folded.places import ONE_KIND, kinds_in_order, occurrences
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.bounds import hidden_ends_s
from ms_symtensor.search.tables.elimination import Minimum
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.problem import Problem
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.search.tables.terms import Costs, Weights

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

SELECTIVE = (0.25, 0.6)
"""What selective recomputation may pay for a byte, in times of what recomputation of whole blocks does (empirical)."""


DEAR = 4.0
"""So many times as much is paid for a byte where memory is so short that recomputation alone does not do (empirical)."""


EVERYTHING = 1e-6
"""A price of memory, in seconds per byte, that outweighs any time of a block: a second for a megabyte (empirical)."""


@dataclass(frozen=True)
class Candidate:
    """One shape, number `number` of its setting, on the mesh and batch that are member number `member` of the family of
    `problem`: `costs` [places] of the candidates `choice` of the problem's variables. `depths`: of the whole network.
    """

    shape: StepLayout
    level: OptimizerLevel
    bound_s: float
    costs: Costs
    number: int
    member: int
    problem: Problem
    choice: Numbers
    depths: tuple[int, ...]

    def bound_by(self, bound_s: float) -> "Candidate":
        """The same with this bound; itself if it has it."""
        return self if bound_s == self.bound_s else replace(self, bound_s=bound_s)

    @property
    def occurrences(self) -> tuple[int, ...]:
        """How often every place is there."""
        return occurrences(self.depths)

    @property
    def hidden_s(self) -> float:
        """What the tables' sum counts at most too much of the end of a step."""
        return hidden_ends_s(self.shape, self.occurrences, self.costs)

    @property
    def copied_B(self) -> Array:
        """Bytes of the weights that every micro-batch copies at every place [places], unless it is recomputed."""
        return self.costs.copied_B if self.shape.interleave > 1 else np.zeros_like(self.costs.copied_B)

    @property
    def chain(self) -> Chain:
        """What stands before the blocks, the blocks, and what stands after them."""
        c, parts = self.costs, list[list[Part]]()
        for place, depth in enumerate(self.occurrences):
            is_block = 0 < place < len(c.each_s) - 1
            each_s, recompute_s, kept_B, recompute_B, rest_B, once_s = (
                float(v[place]) for v in (c.each_s, c.recompute_s, c.kept_B, c.kept_recomputed_B, c.at_rest_B, c.once_s)
            )
            kept_B += float(self.copied_B[place])
            parts.append([Part(each_s, recompute_s, kept_B, recompute_B, rest_B, is_block, once_s)] * depth)
        (before, *blocks, after) = parts
        of_kind = [chain.from_iterable(blocks[n : n + 3]) for n in range(0, len(blocks), 3)]
        return Chain([*before, *(next(of_kind[kind]) for kind in self.kinds), *after])

    @property
    def kinds(self) -> list[int]:
        """The kind of every block, in the order of the network."""
        return kinds_in_order(self.depths, self.problem.places.turns)

    @property
    def settings(self) -> Settings:
        """The settings of a stage on its mesh, nothing recomputed."""
        return replace(self.problem.settings, device_num=math.prod(self.shape.mesh), optimizer_level=self.level)

    @cached_property
    def strategies(self) -> dict[str, OpStrategy]:
        """The strategies on its own mesh, by the operators' names in the network with SHORT blocks."""
        known, own, found = self.problem.known, cache(self._own), {}
        for name, number in known.index.items():
            strategy = known.items[number].strategies[self.choice[number]]
            outputs = None if strategy.outputs is None else own(strategy.outputs)
            found[name] = OpStrategy(own(strategy.inputs), outputs)
        return found

    def _own(self, slices: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """On its own mesh, `slices` of the representative."""
        degree = self.problem.known.pricer.degree
        return tuple(tuple(int(degree(n)[self.member]) for n in dims) for dims in slices)


@dataclass(frozen=True)
class ConfigGroup:
    """One optimizer level, the tables under it, and the shapes for which MindSpore allows it: those with the
    numbers `which` of `shapes`.

    `members` [shapes]: the members of the family of `problem` that are their meshes and batches.
    """

    problem: Problem
    shapes: tuple[StepLayout, ...]
    members: Numbers
    depths: tuple[int, ...]
    level: OptimizerLevel
    tables: Tables
    which: Numbers

    @property
    def occurrences(self) -> tuple[int, ...]:
        """How often every place is there."""
        return occurrences(self.depths)

    def fastest(self) -> list[Candidate]:
        """Where memory is free: one row per shape that can be laid out; its bound is its time if all stages were alike, less what
        later ones hide at the end of a step.

        Shapes that differ in virtual stages alone are given the layouts of the first of them: such stages change by one factor
        how often the work of a micro-batch counts. That factor times the time of the first is a bound.
        """
        alike: dict[tuple[int, int, int], list[int]] = {}
        for n in self.which.tolist():
            alike.setdefault(self._without_virtual_stages(n), []).append(n)
        if not alike:
            return []
        first = np.array([numbers[0] for numbers in alike.values()], dtype=np.intp)
        least = self._least(first, self._weights(first), self._shares[0])
        possible = np.isfinite(least.value)
        rows = self.rows_of(first[possible], least.assignment[possible], least.value[possible])
        found = []
        for row in rows:
            for n in alike[self._without_virtual_stages(row.number)]:
                one = replace(row, shape=self.shapes[n], number=n)
                share = min(1.0, _passes(one.shape) / _passes(row.shape))
                found.append(one.bound_by(share * row.bound_s - one.hidden_s))
        return found

    def slim(self, among: Sequence[Candidate], limit_B: float) -> tuple[list[Candidate], dict[StepLayout, float]]:
        """For the shapes of `among`, results of `fastest`: these again, and those that are best where memory is dear.

        The bound is the largest value of the Lagrangian dual D(λ) = min over layouts and recomputation r of T + λ (M - limit),
        M being the memory of an average stage; λ = 0, and what recomputation pays for a byte. And bounds that hold where blocks
        may be recomputed selectively, too: as if everything were, in no time.
        """
        if not among:
            return [], {}
        which = np.array([row.number for row in among], dtype=np.intp)
        fast = Costs(*(np.stack([getattr(row.costs, f.name) for row in among], axis=1) for f in fields(Costs)))
        bound, hidden_s = np.array([(row.bound_s, row.hidden_s) for row in among]).T
        weights = self._weights(which)
        saved = (weights.saved_B * (fast.kept_B - fast.kept_recomputed_B))[1:-1].sum(axis=0)
        recomputation = (weights.recompute_s * fast.recompute_s)[1:-1].sum(axis=0)
        price = np.where(np.isfinite(recomputation), recomputation, 0.0) / np.maximum(saved, 1.0)
        (least_share, most_share), every, selects = self._shares, np.arange(len(which)), self.problem.selects
        paths = [
            (every, weights, least_share, 1.0),
            (every, weights, most_share, 1.0),
            (every, weights.in_no_time, 1.0, 1.0),
        ]
        # Bounds are of every shape. Layouts at other prices are shared by those that differ in virtual stages alone: at a price
        # of the fewest, and at two of the most.
        fewest, most, group = self._alike(which)
        if selects:
            paths += [(of, weights, least_share, factor) for of, factor in zip((fewest, most), SELECTIVE, strict=True)]
        paths += [(most, weights, most_share, DEAR)]
        least = self._least(
            np.concatenate([which[of] for of, _, _, _ in paths]),
            Weights.beside([one.of(of) for of, one, _, _ in paths]),
            np.concatenate([np.full(len(of), share) for of, _, share, _ in paths]),
            np.concatenate([factor * price[of] for of, _, _, factor in paths]),
        )
        *values, free_s = least.value[: 3 * len(which)].reshape(3, -1) - price * limit_B - hidden_s
        bound = np.maximum(bound, np.min(values, axis=0))
        found = [row.bound_by(float(least_s)) for row, least_s in zip(among, bound, strict=True)]
        none, whole, _, *others = np.split(least.assignment, np.cumsum([len(of) for of, *_ in paths])[:-1])
        for choices in (none, whole, *(some[group] for some in others)):
            found += self.rows_of(which, choices, bound)
        holds = free_s if selects else bound
        return found, {row.shape: float(bound_s) for row, bound_s in zip(among, holds, strict=True)}

    def _alike(self, which: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """The shapes `which` in groups that differ in virtual stages alone: the places of those with the fewest and with the most
        of every group, and the group of each of `which`.
        """
        kinds = [self._without_virtual_stages(n) for n in which.tolist()]
        _, fewest, group = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        _, behind = np.unique(kinds[::-1], axis=0, return_index=True)
        return fewest, len(kinds) - 1 - behind, group.reshape(-1)

    def _without_virtual_stages(self, number: int) -> tuple[int, int, int]:
        """What shapes have in common that differ in virtual stages alone."""
        shape = self.shapes[number]
        return shape.stages, shape.micro_batch_num, int(self.members[number])

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
                self.shapes[n], self.level, float(bound_s[i]), costs.of(i), int(n), int(members[i]), self.problem, assignment[i],
                self.depths,
            )
            for i, n in enumerate(which)
            if finite[i]
        ]  # fmt: skip


def slimmest(of: ConfigGroup, among: Container[StepLayout]) -> Iterator[Candidate]:
    """The layouts that keep least, with nothing or all recomputed, of those of `among` that have one model chunk per stage."""
    which = np.array([n for n in of.which if (one := of.shapes[n]).interleave == 1 and one in among], dtype=np.intp)
    if not len(which):
        return
    shapes = [of.shapes[n] for n in which]
    stages = np.array([shape.stages for shape in shapes], dtype=float)
    every = average_weights(of.occurrences, shapes)
    several = [every]
    for place in (0, -1):
        kept_B, at_rest_B = every.kept_B.copy(), every.at_rest_B.copy()
        kept_B[place] *= stages
        at_rest_B[place] *= stages
        several.append(replace(every, kept_B=kept_B, at_rest_B=at_rest_B))
    paths = [(weights, recomputed) for weights in several for recomputed in (0.0, 1.0)]
    numbers = np.tile(which, len(paths))
    recomputed = np.repeat([share for _, share in paths], len(which))
    weights = Weights.beside([one for one, _ in paths])
    price = np.full(len(numbers), EVERYTHING)
    least = of.problem.least(of.tables.factors(recomputed, price, weights, of.members[numbers]))
    there = np.isfinite(least.value)
    yield from of.rows_of(numbers[there], least.assignment[there], least.value[there])


def combines(shape: StepLayout, level: OptimizerLevel, limits: Limits) -> bool:
    """Whether MindSpore combines `level` with `shape`, and no other level does the same there.

    Level 3 goes with no stages (nor do we combine it with gradients that add up), level 2 with none that add up on one stage.
    """
    if level is OptimizerLevel.LEVEL2:
        idle = not shape.accumulates and limits.allows("optimizer_level", OptimizerLevel.LEVEL1)
        return shape.stages > 1 or not (shape.accumulates or idle)
    return not shape.accumulates or level is not OptimizerLevel.LEVEL3


def fixed_candidate(of: Problem, shape: StepLayout, level: OptimizerLevel, depths: tuple[int, ...]) -> Candidate:
    """The row of `of`, whose variables have one candidate each, in a network of so many blocks."""
    settings = replace(of.settings, optimizer_level=level)
    parameters = parameter_terms(of.known, of.parameters, settings, [shape.accumulates], [shape.stages])
    choice = np.zeros((1, len(of.known.items)), dtype=np.intp)
    costs = Tables(of, parameters).by_place(choice, np.zeros(1, dtype=np.intp))
    return Candidate(shape, level, 0.0, costs.of(0), 0, 0, of, choice[0], depths)


def average_weights(occurrences: tuple[int, ...], members: Sequence[StepLayout]) -> Weights:
    """How often every place counts on an average stage; the network has it so often as `occurrences` says.

    Early stages keep more micro-batches: no less is kept than with all blocks on the last one. Nor is more saved: n micro-batches
    that wait in a block need n (kept - saved), which is least where n is, since no block saves more than it keeps. The runs of
    the last stage keep what they do, and save no more than if in each as many waited as in the one with the most.
    """
    depth = np.array(occurrences, dtype=float)[:, None]
    stages, number, runs = np.array([(m.stages, m.micro_batch_num, m.interleave) for m in members], dtype=float).T
    is_mixed = len(occurrences) > ONE_KIND
    kept, saved = np.array([(_least(m, is_mixed), max(m.in_flight(m.stages - 1).runs)) for m in members], dtype=float).T
    each = depth * (number + (stages - 1) / runs) / stages
    inside = np.ones((len(occurrences), 1))
    inside[[0, -1]] = 0.0
    kept_B = depth * np.where(inside > 0, kept, 1.0) / stages
    return Weights(each, each, depth / stages, kept_B, inside * depth * saved / stages, depth / stages)


def _passes(shape: StepLayout) -> float:
    """How often a step takes the work of a micro-batch, in times of that of all its stages."""
    return shape.micro_batch_num + (shape.stages - 1) / shape.interleave


def _least(shape: StepLayout, is_mixed: bool) -> float:
    """Micro-batches that a block on the last stage keeps at least on average: of unequal runs the last ones are longer. If blocks
    are of several kinds (`is_mixed`), one may stand in the last run alone.
    """
    last, runs = shape.in_flight(shape.stages - 1), shape.interleave
    return min(last.runs) if is_mixed else min(sum(last.of_blocks(n)) / n for n in range(runs, 2 * runs))
