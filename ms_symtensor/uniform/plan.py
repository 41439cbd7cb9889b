"""From a network of the zoo and a uniform layout to the strategies, stages and settings that a plan is made of."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.megatron import megatron_strategy
from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.pipeline import Pipeline, runs_of, stages_of_ops
from ms_symtensor.program.recomputation import gathering_communication, name_in_block
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, Op
from ms_symtensor.uniform.layout import Degrees, Mark, Selection, UniformLayout


@dataclass(frozen=True)
class UniformPlan:
    """The graph of one micro-batch, what its operators mean, and its stages; `pipeline` None: one stage, the batch as a whole."""

    graph: Graph
    known: Meanings
    stages: tuple[StagePlan, ...]
    pipeline: Pipeline | None


def uniform_plan(config: TransformerConfig, layout: UniformLayout, is_lenient: bool = False) -> UniformPlan:
    """The plan of `layout` for the network `config`, whose `batch_size` is that of one micro-batch on all devices.

    `is_lenient`: for other run-times than MindSpore, which take fewer micro-batches than stages, and stages without a block.

    Raises:
        InputError: for degrees, stages or micro-batches that the network or MindSpore does not allow.
    """
    graph, known = graph_of(config)
    degrees, stages = layout.degrees, layout.stages
    strategies = strategies_of(graph, config, degrees)
    held = stages.of(len(graph.blocks))
    runs = runs_of(stages.in_order(len(graph.blocks)), stages.interleave)
    blocks = [[graph.blocks[position] for run in of_stage for position in run] for of_stage in runs]
    recomputed = [
        recompute_of(graph, dict(zip(names, layout.recompute.of(stage, len(names)), strict=True)))
        for stage, names in enumerate(blocks)
    ]
    if stages.number == stages.micro_batch_num == 1:
        return UniformPlan(graph, known, (StagePlan(strategies, settings_of(layout, recomputed[0])),), None)
    pipeline = pipeline_of(layout, held, is_lenient)
    of_ops = stages_of_ops(graph, pipeline)
    return UniformPlan(
        graph,
        known,
        tuple(
            StagePlan(
                {name: strategy for name, strategy in strategies.items() if stage in of_ops[name]},
                settings_of(layout, recomputed[stage]),
            )
            for stage in range(stages.number)
        ),
        pipeline,
    )


def strategies_of(graph: Graph, config: TransformerConfig, degrees: Degrees) -> dict[str, OpStrategy]:
    """How the operators of `graph`, which is that of `config`, are cut. Errors: those of `megatron_strategy`."""
    cuts = megatron_strategy(
        graph,
        config,
        degrees.data_parallel,
        degrees.model_parallel,
        degrees.sequence_parallel,
        degrees.expert_parallel or None,
        degrees.context_parallel,
        degrees.exchanges_heads,
        degrees.expert_model_parallel or None,
        degrees.cuts_embedding,
        degrees.gathers_logits,
    )
    return {name: OpStrategy(*cut) for name, cut in cuts.items()}


def settings_of(layout: UniformLayout, recompute: Mapping[str, Recompute]) -> Settings:
    """Those of a stage."""
    return Settings(
        layout.degrees.devices,
        enable_alltoall=True,
        optimizer_level=layout.optimizer_level,
        optimizer_weight_shard_size=layout.optimizer_weight_shard_size,
        parallel_optimizer_threshold_KB=layout.parallel_optimizer_threshold_KB,
        swap_optimizer=layout.swap_optimizer,
        recompute=recompute,
    )


def pipeline_of(layout: UniformLayout, held: tuple[int, ...], is_lenient: bool) -> Pipeline:
    """The pipeline whose stages hold so many blocks. Errors: those of `Pipeline`."""
    stages = layout.stages
    moves_head = stages.head_stage not in (-1, stages.number - 1) or not held[-1]
    head = stages.head_stage % stages.number if moves_head else None
    runs = runs_of(stages.in_order(sum(held)), stages.interleave)
    return Pipeline(runs, stages.micro_batch_num, is_lenient, head, stages.scheduler)


@lru_cache(maxsize=256)
def graph_of(config: TransformerConfig) -> tuple[Graph, Meanings]:
    """The graph of `config`, and what its operators mean."""
    graph = build_graph(config)
    return graph, meanings(graph)


def recompute_of(graph: Graph, of: Mapping[str, Mark]) -> dict[str, Recompute]:
    """What is recomputed of the blocks of `graph`, by their names; those of which nothing is are left out."""
    parts: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.block is not None and of.get(op.block):
            parts.setdefault(op.block, []).append(op)
    found = {
        block: Recompute() if mark is None else _selective(parts[block], mark)
        for block, mark in of.items()
        if mark != set()
    }
    return {block: recomputation for block, recomputation in found.items() if recomputation is not None}


def _selective(ops: Sequence[Op], chosen: frozenset[Selection]) -> Recompute | None:
    """Selective recomputation of a block with the operators `ops`; None: it has nothing of what is `chosen`."""
    chosen |= {Selection.NORM_INPUT} if Selection.NORM in chosen else set()
    selected = (
        op for op in ops if (part := _selection(op)) in chosen and (op.primitive or part is Selection.NORM_INPUT)
    )
    names = tuple(dict.fromkeys(map(name_in_block, selected)))
    if Selection.COMMUNICATION not in chosen:
        return Recompute(only=names) if names else None
    return gathering_communication(ops, names)


_NORM = re.compile(r"/[a-z_]*norm-Norm/[^/]*$")


def _selection(op: Op) -> Selection | None:
    """The part that an operator of the zoo's block belongs to."""
    cell = op.cell[-1] if op.cell else ""
    if cell == "core" and op.type != "Transpose":
        return Selection.ATTENTION_CORE
    if cell in ("attention_norm", "feed_forward_norm"):
        return Selection.NORM
    if (
        op.type == "Cast" and op.outputs[0].dtype == "float32" and _NORM.search(op.name)
    ):  # of a Cast, only the name says it
        return Selection.NORM_INPUT
    if (
        cell == "xielu"
        or op.primitive in ("silu", "gelu")
        or (op.primitive == "mul" and cell in ("feed_forward", "experts", "shared"))
    ):
        return Selection.ACTIVATION
    return None


def require_agreement(layout: UniformLayout, device_num: int) -> None:
    """InputError unless the degrees of `layout` make `device_num` devices."""
    if layout.device_num != device_num:
        d = layout.degrees
        raise InputError(
            f"data_parallel {d.data_parallel} x model_parallel {d.model_parallel} x context_parallel {d.context_parallel} x"
            f" pipeline_stages {layout.stages.number} = {layout.device_num} devices, not {device_num}"
        )
