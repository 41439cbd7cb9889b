"""The whole plan: screening's best shapes, each with the true peak of its stages.

Screening leaves out what lives only for a moment, and prices many meshes by one. So for its best shapes the programs of their
stages are written down and priced on their own mesh, and the blocks are divided again with what the peaks leave for them,
until all stages fit. The answer is the best of these; its gap is the distance to screening's bound.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.folded.depth import unfold
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import EACH, PeakMemory
from ms_symtensor.search.folded.mix import Mix
from ms_symtensor.search.folded.stage_peaks import FEW, StagePeaks
from ms_symtensor.search.folded.whole_peaks import WholePeaks
from ms_symtensor.search.space.family import Family
from ms_symtensor.search.space.step_layouts import StepLayout
from ms_symtensor.search.stages.borders import sent_B
from ms_symtensor.search.stages.estimate import Estimate, chain_of, divided, estimated
from ms_symtensor.search.stages.incumbents import ScreeningResult
from ms_symtensor.search.stages.layout_candidates import Candidate
from ms_symtensor.search.stages.network import Network
from ms_symtensor.search.stages.own_mesh import priced
from ms_symtensor.search.stages.question import Question
from ms_symtensor.search.stages.screening import screen
from ms_symtensor.search.stages.stage_layers import laid_out
from ms_symtensor.search.tables.problem import sample_num

REFINED = 3
"""At most so many of screening's best shapes are settled, those whose survey is below the best that was settled; at most four
times as many are looked at if some do not fit."""

MISPRICED = 0.01
"""Shapes that take so much longer than they promise, as by the costs of their own mesh, are not counted among them; all their
layouts are tried (empirical)."""

ROUNDS = 6
"""So often the blocks of a shape are divided at most, each time with what the last division's true peaks leave for them."""


@dataclass(frozen=True)
class MaterializedPlan:
    """The best plan: its shape and stages, the strategies in the network of SHORT blocks, and the memory of every stage; none if
    it is a guess, of which no programs have been written.

    `mixes`: what the blocks of every stage recompute that are recomputed, and the others; empty: everything, nothing.
    """

    estimate: Estimate
    row: Candidate
    strategies: Mapping[str, OpStrategy]
    memory_B: tuple[Mapping[str, int], ...]
    mixes: tuple[Mix, ...] = ()

    @property
    def is_guess(self) -> bool:
        return not self.memory_B

    @property
    def settings(self) -> Settings:
        """Those of a stage, nothing recomputed."""
        return settings_of(self.row)


def made_feasible(
    network: Network, row: Candidate, limit_B: float, rules: Mapping[str, Rule] | None
) -> MaterializedPlan | None:
    """`row`, at the costs of its own mesh, on stages whose true peaks fit: with as few recomputed blocks as make them; None if
    none do.
    """
    strategies = strategies_of(row)
    peaks = peaks_of(network, row, strategies, rules)
    beyond_B, chain = [0.0] * row.shape.stages, chain_of(row, network.depths)
    for _ in range(ROUNDS):
        found = divided(row, chain, [limit_B - more for more in beyond_B])
        if found is None:
            break
        memory_B = peaks.of(found.stages)
        if all(sum(one.values()) <= limit_B for one in memory_B):
            return with_memory(found, row, strategies, memory_B)
        known = zip(beyond_B, found.stages, memory_B, strict=True)
        beyond_B = [max(more, sum(one.values()) - stage.peak_B) for more, stage, one in known]
    smallest = smallest_of(network, row, limit_B, rules)
    return smallest if smallest is not None and smallest.estimate.peak_memory_B <= limit_B else None


Fit = Callable[[Network, Candidate, float, Mapping[str, Rule] | None], MaterializedPlan | None]
"""A plan of given layouts that fits a limit in bytes, as `make_feasible` finds one."""


Promise = tuple[float, Sequence[Candidate]]
"""Seconds of a step, and the layouts for one shape that promise them."""

Promised = Callable[[ScreeningResult, Sequence[Estimate]], Sequence[Promise]]
"""What the shapes of some estimates of an outcome promise, in the order in which they are tried, as `as_estimated`."""


def as_estimated(screening: ScreeningResult, estimates: Sequence[Estimate]) -> Sequence[Promise]:
    """What was estimated, by all layouts of a shape."""
    rows: dict[StepLayout, list[Candidate]] = {one.shape: [] for one in estimates}
    for row in screening.rows:
        if row.shape in rows:
            rows[row.shape].append(row)
    return [(one.step_time_s, rows[one.shape]) for one in estimates]


def fastest_plan(
    network: Network,
    space: Sequence[StepLayout],
    question: Question,
    fit: Fit = made_feasible,
    promised: Promised = as_estimated,
    any_plan: bool = False,
) -> tuple[ScreeningResult, MaterializedPlan | None]:
    """What was learnt of `space`, and the fastest plan that fits, as `question`; if `any_plan` will do, the first one,
    layouts that need least being tried first. None if none does and beats the step that is known.
    """
    screening = screen(network.short, network.depths, space, question, any_batch=network.batch is None)
    best: MaterializedPlan | None = None
    left = REFINED
    attempted: set[tuple] = set()
    most = screening.estimates[: 4 * REFINED]
    best_s, broken = math.inf, set[StepLayout]()  # shapes of which layouts did not keep what they promised
    promises = promised(screening, most)
    if any_plan:  # what needs least is the first to fit
        promises = sorted(promises, key=lambda one: min(_least_B(network, row) for row in one[1]))
    for promised_s, rows in promises:
        if not left or (best is not None and any_plan):
            break
        if promised_s >= best_s:
            continue
        shape = rows[0].shape
        cutoff_s = math.inf if shape in broken else best_s
        found = materialized(network, rows, question.limit_B, question.rules, fit, attempted, any_plan, cutoff_s)
        if found is not None and found.estimate.step_time_s <= (1 + MISPRICED) * promised_s:
            left -= 1
        else:
            broken.add(shape)
        if found is not None and found.estimate.step_time_s < min(question.incumbent_s, best_s):
            best, best_s = found, found.estimate.step_time_s
    return screening, best


def materialized(
    network: Network,
    rows: Sequence[Candidate],
    limit_B: float,
    rules: Mapping[str, Rule] | None = None,
    fit: Fit = made_feasible,
    attempted: set[tuple] | None = None,
    any_plan: bool = False,
    cutoff_s: float = math.inf,
) -> MaterializedPlan | None:
    """The best of `rows`, choices for one shape, on the stages that `fit` finds, with their true peaks; if `any_plan` will do,
    the first one, those that need least being tried first. None if nothing fits. Of equal ones, that which shards the
    optimizer least.

    Left out are those that take `cutoff_s` or more by what screening knows, and those `attempted`, as on another mesh of as many
    devices; what is tried is noted there.
    """
    attempted = set() if attempted is None else attempted
    different = {(row.level, row.choice.tobytes()): row for row in rows}.values()
    every = [
        (guess, row) for row in different if (guess := divided(row, chain_of(row, network.depths), limit_B)) is not None
    ]
    guesses = {
        (row.level, guess.stages, guess.once_s): (guess, row) for guess, row in every
    }.values()  # alike in all: one
    best: MaterializedPlan | None = None
    order = [(_least_B(network, row) if any_plan else guess.step_time_s, row.level) for guess, row in guesses]
    for _, (guess, row) in sorted(zip(order, guesses, strict=True), key=lambda one: one[0]):
        if best is not None and any_plan:
            break
        if guess.step_time_s >= cutoff_s:
            continue
        strategies = strategies_of(row)
        key = (
            row.level,
            guess.shape.stages,
            guess.shape.micro_batch_num,
            guess.shape.interleave,
            guess.shape.scheduler,
            frozenset(strategies.items()),
        )
        if key in attempted:
            continue
        attempted.add(key)
        try:
            found = fit(network, _on_own_mesh(network, row, strategies, rules), limit_B, rules)
        except InvalidStrategyError:
            continue  # a mesh like the family's other ones in all but this
        if found is not None and (best is None or found.estimate.step_time_s < best.estimate.step_time_s):
            best, cutoff_s = found, min(cutoff_s, found.estimate.step_time_s)
    return best


def _least_B(network: Network, row: Candidate) -> float:
    """Bytes of the fullest stage if everything is recomputed, on the division that is best where memory is free; inf if there is
    none.
    """
    chain = chain_of(row, network.depths)
    free = divided(row, chain, math.inf)
    if free is None:
        return math.inf
    layers = [stage.blocks for stage in free.stages]
    return max(stage.peak_B for stage in laid_out(chain, layers, layers, row.shape.schedule))


def _on_own_mesh(
    network: Network, row: Candidate, strategies: Mapping[str, OpStrategy], rules: Mapping[str, Rule] | None
) -> Candidate:
    """`row`, of these `strategies`, at the costs of its own mesh."""
    of = row.problem
    if of.known.pricer.family.members > 1 or sample_num(of.graph) != row.shape.batch:
        return priced(network, row, strategies, rules)
    return row


def smallest_of(
    network: Network, row: Candidate, limit_B: float, rules: Mapping[str, Rule] | None
) -> MaterializedPlan | None:
    """`row` with as few recomputed blocks on every stage as fit, all where even those do not, on the division that is best where
    memory is free. None if it is pinned how many are recomputed.
    """
    blocks = sum(network.depths[1:-1])
    free = divided(row, chain_of(row, network.depths), math.inf)
    if free is None or row.problem.limits.recomputed(blocks) != (0, blocks):
        return None
    held = tuple(stage.blocks for stage in free.stages)
    return with_fewest(lambda recomputation: as_given(network, row, held, recomputation, rules), held, limit_B)


def with_fewest(
    laid: Callable[[Sequence[int]], MaterializedPlan], layers: Sequence[int], limit_B: float
) -> MaterializedPlan:
    """On every stage as few recomputed blocks as fit, all where even those do not."""
    low, high = [0] * len(layers), list(layers)
    middle = low
    while low != high:
        sizes = [stage.peak_B for stage in laid(middle).estimate.stages]
        for i, size in enumerate(sizes):
            if size <= limit_B:
                high[i] = min(high[i], middle[i])
            else:
                low[i] = min(middle[i] + 1, high[i])
        middle = [(least + most) // 2 for least, most in zip(low, high, strict=True)]
    return laid(high)


def as_given(
    network: Network,
    row: Candidate,
    layers: Sequence[int],
    recomputed: Sequence[int],
    rules: Mapping[str, Rule] | None = None,
) -> MaterializedPlan:
    """`row` on stages of so many blocks, of which each recomputes so many, whether they fit or not."""
    strategies, chain = strategies_of(row), chain_of(row, network.depths)
    stages = laid_out(chain, layers, recomputed, row.shape.schedule)
    memory_B = peaks_of(network, row, strategies, rules).of(stages)
    return with_memory(estimated(row, chain, stages), row, strategies, memory_B)


def with_memory(
    found: Estimate, row: Candidate, strategies: Mapping[str, OpStrategy], memory_B: tuple[Mapping[str, int], ...]
) -> MaterializedPlan:
    """`found` with the true peaks in the place of screening's."""
    sizes = [float(sum(one.values())) for one in memory_B]
    stages = tuple(replace(stage, peak_B=size) for stage, size in zip(found.stages, sizes, strict=True))
    return MaterializedPlan(replace(found, stages=stages, peak_memory_B=max(sizes)), row, strategies, memory_B)


Peaks = StagePeaks | WholePeaks
"""The memory of the stages of one choice of layouts."""


def peaks_of(
    network: Network, row: Candidate, strategies: Mapping[str, OpStrategy], rules: Mapping[str, Rule] | None
) -> Peaks:
    """The memory of stages of `row`: programs that were written down for it are not written again."""
    batch, turns = row.shape.batch, row.shape.schedule

    def written() -> Peaks:
        count = FEW if row.shape.accumulates else 2 * EACH
        few = network.short(batch, count)
        named = unfold(fold(few).class_of, network.short(batch), strategies)
        if not row.shape.accumulates:
            return WholePeaks(network.shorts(batch, rules, count), named, settings_of(row))
        waiting_B = int(sent_B(row)) if turns.interleave > 1 else 0
        return StagePeaks(few, network.depths, named, settings_of(row), turns, rules, waiting_B)

    return network.peaks(_key(row, strategies), written)


def peaks_as_one_stage(
    network: Network, row: Candidate, strategies: Mapping[str, OpStrategy], rules: Mapping[str, Rule] | None
) -> PeakMemory:
    """The memory of the whole network on one stage of `row`, nothing recomputed: its program is not written again."""
    shorts = network.shorts(row.shape.batch, rules)
    return network.peaks_as_one(_key(row, strategies), lambda: PeakMemory(shorts, strategies, settings_of(row)))


def _key(row: Candidate, strategies: Mapping[str, OpStrategy]) -> tuple:
    """What the programs of stages of `row` depend on."""
    return row.shape, row.level, row.problem.settings.swap_optimizer, frozenset(strategies.items())


def host_memory_B(network: Network, found: MaterializedPlan, rules: Mapping[str, Rule] | None) -> int:
    """Bytes of optimizer states that stay on the host, of a device of the fullest stage: what they would take on the device."""
    if not found.settings.swap_optimizer:
        return 0
    peaks = peaks_of(network, found.row, found.strategies, rules)
    on_device = peaks.under(replace(found.settings, swap_optimizer=False))
    return max(one["optimizer_states"] for one in on_device.of(found.estimate.stages, found.mixes))


def settings_of(row: Candidate) -> Settings:
    """The settings of a stage on the mesh of `row`, nothing recomputed."""
    return replace(row.problem.settings, device_num=math.prod(row.shape.mesh), optimizer_level=row.level)


def strategies_of(row: Candidate) -> dict[str, OpStrategy]:
    """The strategies of `row` on its own mesh, by the operators' names in the network with SHORT blocks."""
    of = row.problem
    family = of.known.pricer.family

    def own(degrees: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(_degree(family, n, row.member) for n in dims) for dims in degrees)

    found = {}
    for name, number in of.known.index.items():
        strategy = of.known.items[number].strategies[row.choice[number]]
        outputs = None if strategy.outputs is None else own(strategy.outputs)
        found[name] = OpStrategy(own(strategy.inputs), outputs)
    return found


def _degree(family: Family, n: int, member: int) -> int:
    degrees = family.degree(n)
    assert degrees is not None, f"{n} slices are no product of axes"
    return int(degrees[member])
