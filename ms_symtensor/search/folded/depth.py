"""From the network with few blocks, in which the search decides, to the one with all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import MoveCost
from ms_symtensor.cost.step import StepCost, accumulation_s, cost_of, price
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.parameters import require_synchronised
from ms_symtensor.program.program import Role
from ms_symtensor.program.settings import Settings
from ms_symtensor.search.asked.summary import Degrees, degrees
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import PeakMemory, ShortGraphs, further
from ms_symtensor.search.folded.mix import WHOLE, Mix
from ms_symtensor.tensor.graph import Graph


def at_depth(class_of: Mapping[str, int], short: Graph, strategies: Mapping[str, OpStrategy]) -> dict[str, OpStrategy]:
    """`strategies` of the network with few blocks, for the same network with all of its blocks, whose operators are of the
    classes `class_of` (`Fold.class_of`).
    """
    first = fold(short).class_of
    by_class = {first[name]: strategy for name, strategy in strategies.items()}
    return {name: by_class[number] for name, number in class_of.items() if number in by_class}


@dataclass(frozen=True)
class Judged:
    """What a choice costs in the network with all of its blocks, and the degrees that people ask for.

    `weights`, `scatters`: the parts of the step's time that casting and gathering weights takes, and scattering gradients.
    `adding_s`: what adding up the gradients would take in each of several micro-batches; no part of the step, which is one.
    """

    cost: StepCost
    degrees: Degrees
    weights: MoveCost
    scatters: MoveCost
    adding_s: float


def judged(
    shorts: ShortGraphs,
    strategies: Mapping[str, OpStrategy],
    settings: Settings,
    cluster: Cluster,
    rules: Mapping[str, Rule] | None = None,
    mix: Mix = WHOLE,
    first: int | None = None,
    peaks: PeakMemory | None = None,
) -> Judged:
    """Price a choice on a program with few blocks, the middle one of every run standing for all further ones.

    `first`: so many blocks are those that `mix` puts first (default: as many as `settings` recompute). `peaks`: those of this
    choice, where they are known.
    Errors: InvalidStrategyError where MindSpore would not sum the gradient of a parameter.
    """
    recomputed = len(settings.recompute) if first is None else first
    true = shorts.runs(recomputed)
    runs = shorts.short_runs(true)
    peaks = peaks or PeakMemory(shorts, strategies, settings, mix)
    graph, plan, program = shorts.of(runs), peaks.plan(runs), peaks.program(runs)
    require_synchronised(program.parameters, settings.device_num)
    more = zip(shorts.named(runs), further(true, runs), strict=True)
    times = {names[1]: 1 + count for names, count in more if len(names) > 1}
    cost = price(graph, plan, program, cluster, shorts.known, times)
    activations, buffers = peaks.of(recomputed)
    memory = {**cost.memory_B, "activations": activations, "buffers": buffers}
    weights = cost_of(program, cluster, lambda node: node.role is Role.WEIGHT, times)
    scatters = cost_of(program, cluster, lambda n: n.role is Role.SYNC and n.kind == "ReduceScatter", times)
    adding_s = accumulation_s(graph, program, settings, cluster, times)
    return Judged(replace(cost, memory_B=memory), degrees(graph, plan, rules, times), weights, scatters, adding_s)
