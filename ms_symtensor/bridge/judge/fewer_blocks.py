"""A plan for a deep network, carried over to one with few of its blocks, which compiles fast; further ones would repeat these."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.file import check
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.source import zoo_options
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import Graph

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig

_LAYER = re.compile(r"(/layers-CellList/)(\d+)-")  # in an operator's full name


@dataclass(frozen=True)
class FewerBlocks:
    """`plan` for `graph`, which has the blocks `kept` (their numbers in a network of `layer_num`)."""

    plan: Plan
    graph: Graph
    kept: tuple[int, ...]
    layer_num: int


def fewer_blocks(plan: Plan, most: int, planned: Graph | None = None) -> FewerBlocks:
    """`plan`, which is for a network of the zoo, with at most `most` blocks of every run of equal ones.

    Blocks in a row are equal if they are of one kind, on one stage, with the same strategies and recomputed alike. With
    `most` 2 one block takes from its equal, as everywhere in the run. There remain as many micro-batches as stages, with
    virtual stages twice as many: the first stage keeps as many in flight as before.

    InputError: the network is not of the zoo, or not that of the plan (`planned`, its graph, makes a mismatch easier to
    explain), or `most` is below 1.
    """
    if most < 1:
        raise InputError(f"{most} blocks of every run of equal ones: give at least 1")
    if "model" not in plan.source:
        raise InputError(
            f"{plan.model} is no network of the zoo, so that it cannot be built with fewer blocks: verify it as it is"
        )
    from model_zoo import dimensions_of
    from model_zoo.builder import build_graph
    from model_zoo.described import text_of

    whole = dimensions_of(plan.source["model"], **zoo_options(plan.source))
    whole_graph = build_graph(whole)
    check(plan, whole_graph, planned)
    kept = _kept(plan, whole, whole_graph, most)
    small = whole.with_layers(kept)
    graph = build_graph(small)
    source = {**plan.source, "num_layers": str(len(kept)), "dense_layers": str(small.dense_layers)}
    if "dimensions" in source:
        source["dimensions"] = text_of(small)
    return FewerBlocks(replace(_carried(plan, whole_graph, graph, kept), source=source), graph, kept, whole.num_layers)


def carried(strategies: Mapping[str, OpStrategy], graph: Graph, kept: Sequence[int]) -> dict[str, OpStrategy]:
    """The strategies of the operators of `graph`, whose layer `i` stands for the layer `kept[i]` of `strategies`' network."""
    names = {op.name: _LAYER.sub(lambda found: f"{found[1]}{kept[int(found[2])]}-", op.name) for op in graph.ops}
    return {short: strategies[long] for short, long in names.items() if long in strategies}


def _kept(plan: Plan, config: "TransformerConfig", graph: Graph, most: int) -> tuple[int, ...]:
    names, recomputation, strategies = graph.blocks, plan.settings.recompute, plan.strategies
    own: dict[str | None, list[OpStrategy | None]] = {}
    for op in graph.ops:
        own.setdefault(op.block, []).append(strategies.get(op.name))

    def kind(n: int) -> tuple[object, ...]:
        run = 0 if plan.pipeline is None else plan.pipeline.run_of(n)
        return config.kind(n), run, recomputation.get(names[n]), own[names[n]]

    return tuple(n for _, run in groupby(range(len(names)), kind) for n in list(run)[:most])


def _carried(plan: Plan, whole: Graph, graph: Graph, kept: Sequence[int]) -> Plan:
    names, recomputation = whole.blocks, plan.settings.recompute
    recompute = {
        name: recomputation[names[n]] for name, n in zip(graph.blocks, kept, strict=True) if names[n] in recomputation
    }
    settings, strategies = replace(plan.settings, recompute=recompute), carried(plan.strategies, graph, kept)
    if plan.pipeline is None:
        return replace(plan, graph_hash=graph.hash, stages=(StagePlan(strategies, settings),))
    layers = [sum(n in run for n in kept) for run in plan.pipeline.runs]
    micro_batch_num = min(plan.micro_batch_num, _fewest_micro_batches(plan.pipeline))
    stages, pipeline = pipeline_stages(
        graph,
        layers,
        [strategies] * plan.pipeline_stages,
        settings,
        micro_batch_num,
        plan.pipeline.interleave,
        plan.pipeline.scheduler,
    )
    batch = plan.global_batch_size // plan.micro_batch_num * micro_batch_num
    return replace(plan, graph_hash=graph.hash, stages=stages, pipeline=pipeline, global_batch_size=batch)


def _fewest_micro_batches(pipeline: Pipeline) -> int:
    return max(2, pipeline.stage_num * (1 if pipeline.interleave == 1 else 2))
