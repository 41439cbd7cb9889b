"""A plan for a deep network, carried over to one with few blocks, which compiles fast; further blocks would repeat these."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import block_names
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import Graph

BLOCKS = 2
"""Blocks of every run of equal ones on a stage: one takes from another, as everywhere in the run."""

_BLOCK = re.compile(r"(?<=CellList/)\d+(?=-)")


@dataclass(frozen=True)
class ShortPlan:
    """`plan` for the network `config`, whose graph is `graph`; at the size of one micro-batch."""

    config: TransformerConfig
    graph: Graph
    plan: Plan


def shortened(plan: Plan, config: TransformerConfig, blocks: int = BLOCKS) -> ShortPlan:
    """`plan`, which is for `config`, with at most so many blocks of every run of equal ones, and as many micro-batches as stages.

    Blocks are equal if they are of one kind, on one stage, and all recomputed or none.
    """
    batch = plan.global_batch_size // plan.micro_batch_num
    whole = block_names(build_graph(replace(config, batch_size=batch)))
    stage_of = {n: 0 if plan.pipeline is None else plan.pipeline.stage_of(n) for n in range(len(whole))}
    again = plan.settings.recompute
    runs = groupby(range(len(whole)), lambda n: (stage_of[n], config.has_experts(n), whole[n] in again))
    chosen = [n for _, run in runs for n in list(run)[:blocks]]
    dense = sum(not config.has_experts(n) for n in chosen) if config.experts is not None else config.dense_layers
    small = replace(config, batch_size=batch, num_layers=len(chosen), dense_layers=dense)
    graph = build_graph(small)
    strategies = _carried(plan.strategies, graph, chosen)
    recompute = {name: again[whole[n]] for name, n in zip(block_names(graph), chosen, strict=True) if whole[n] in again}
    return ShortPlan(small, graph, _plan(plan, graph, strategies, recompute, [stage_of[n] for n in chosen], batch))


def _carried(strategies: Mapping[str, OpStrategy], graph: Graph, chosen: Sequence[int]) -> dict[str, OpStrategy]:
    """The strategies of the operators of `graph`, whose blocks stand for the blocks `chosen`."""
    named = {op.name: _BLOCK.sub(lambda m: str(chosen[int(m.group())]), op.name, count=1) for op in graph.ops}
    return {short: strategies[long] for short, long in named.items() if long in strategies}


def _plan(
    plan: Plan,
    graph: Graph,
    strategies: Mapping[str, OpStrategy],
    recompute: Mapping[str, Recompute],
    stage_of: Sequence[int],
    batch: int,
) -> Plan:
    settings = replace(plan.settings, recompute=recompute)
    if plan.pipeline is None:
        return replace(plan, graph_hash=graph.hash, stages=(StagePlan(strategies, settings),))
    stages, pipeline = pipeline_stages(
        graph,
        [stage_of.count(number) for number in range(plan.pipeline_stages)],
        [strategies] * plan.pipeline_stages,
        settings,
        plan.pipeline_stages,
    )
    return replace(
        plan,
        graph_hash=graph.hash,
        stages=stages,
        pipeline=pipeline,
        global_batch_size=batch * pipeline.micro_batch_num,
    )


def verdicts(short: ShortPlan, stages: Sequence[int] | None = None) -> tuple[Any, ...]:
    """What MindSpore's compiler says of one rank of every stage, or of `stages`: `Verdict`s."""
    from model_zoo.network import build
    from ms_symtensor.bridge.apply import apply, parallel_config
    from ms_symtensor.bridge.verify import judge
    from ms_symtensor.bridge.verify_stages import judge_rank

    cell, inputs = build(short.config)
    plan = short.plan
    apply(cell, short.graph, plan)
    if plan.pipeline is None:
        verdict, _ = judge(cell, inputs, short.graph, plan.stage, parallel_config(plan), plan.device_num // 2)
        return (verdict,)
    programs = partition_stages(short.graph, plan.stages, plan.pipeline)
    ranks = [p.ranks[p.stage % len(p.ranks)] for p in programs if stages is None or p.stage in stages]
    return tuple(judge_rank(cell, inputs, short.graph, plan, programs, rank) for rank in ranks)
