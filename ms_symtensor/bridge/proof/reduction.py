"""A large network made small, so that its partitioned program can be run here: the same operators, cut the same way.

Every size is divided such that it has the same common divisors with the number of devices: what could be cut evenly still
can, by the same degrees, and what could not still cannot. That nothing else changed is checked: the reduced program must
have the very collectives of the whole one, operator by operator.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from ms_symtensor.bridge.judge.fewer_blocks import carried
from ms_symtensor.bridge.proof.fewer_ranks import on_first_ranks
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.program.parameters import KIB, may_be_shared
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.program import Collective
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.source import zoo_options
from ms_symtensor.tensor.graph import Graph

if TYPE_CHECKING:
    from model_zoo.config import BlockKind, TransformerConfig

LAYERS = 2
_SCALES = (1, 2, 4, 8)
_HEAD_DIM, _WIDTH, _SEQ_LENGTH = 8, 64, 16
"""Smallest sizes that are tried, multiplied by _SCALES in turn; empirical."""
_WIDER = (1, 4)
"""How much wider than that a feed-forward is: as wide as the rest, or where biases of it alone are shared by the optimizer."""

_CHUNKS = 4
"""Chunks of linear attention, or of a state-space layer, that are enough to join their steps, and to spread states."""


@dataclass(frozen=True)
class ReducedPlan:
    """`plan` for the network of `config`; `sizes` maps each size that changed to the one before and after."""

    plan: Plan
    config: "TransformerConfig"
    sizes: Mapping[str, tuple[int, int]]


def reduce_plan(plan: Plan, ranks: int | None = None) -> ReducedPlan:
    """`plan`, which is for a network of the zoo, for the same network with small sizes, on its first `ranks` devices.

    InfeasibleError if no smaller network has the same program.
    """
    from model_zoo.builder import build_graph
    from model_zoo.dimensions import dimensions_of

    options = zoo_options(plan.source)
    whole = dimensions_of(plan.source["model"], **options | {"lazy_inline": False})
    kept = kept_layers(whole, plan.pipeline)
    shallow = whole.with_layers(kept)
    full_graph = build_graph(shallow)
    pipeline = None if plan.pipeline is None else reduced_pipeline(plan.pipeline, kept, full_graph)
    full_stages = _stages(plan, pipeline, full_graph, kept, whole.num_layers)
    ranks = plan.device_num if ranks is None else ranks
    if ranks % plan.pipeline_stages:
        raise InputError(f"{ranks} ranks cannot be dealt to {plan.pipeline_stages} pipeline stages: give a multiple")
    if ranks != plan.device_num:
        full_stages = tuple(on_first_ranks(full_graph, s, ranks // plan.pipeline_stages) for s in full_stages)
    expected = collectives_of(full_graph, full_stages, pipeline)
    for config in reduced_dimensions(shallow, ranks // plan.pipeline_stages):
        graph = build_graph(config)
        threshold = _threshold_KB(full_graph, graph, plan.settings)
        if threshold is None:
            continue
        stages = tuple(
            StagePlan(stage.strategies, replace(stage.settings, parallel_optimizer_threshold_KB=threshold))
            for stage in full_stages
        )
        try:
            if collectives_of(graph, stages, pipeline) != expected:
                continue
        except InvalidStrategyError:
            continue
        small = replace(
            plan, graph_hash=graph.hash, stages=stages, pipeline=pipeline, seq_length=config.seq_length,
            global_batch_size=config.batch_size * (1 if pipeline is None else pipeline.micro_batch_num),
        )  # fmt: skip
        settings = {
            "parallel_optimizer_threshold_KB": (plan.settings.parallel_optimizer_threshold_KB, threshold),
            "device_num": (plan.device_num, ranks),
            "micro_batch_num": (plan.micro_batch_num, small.micro_batch_num),
        }
        sizes = changed(whole, config) | {name: pair for name, pair in settings.items() if pair[0] != pair[1]}
        return ReducedPlan(small, config, sizes)
    raise InfeasibleError(
        f"no smaller {plan.model} has the program of this plan, so that it cannot be run here: plan a factory of a small network"
    )


def reduced_dimensions(config: "TransformerConfig", device_num: int) -> Iterator["TransformerConfig"]:
    """`config` with divided sizes, the smallest first."""

    def divided(size: int, least: int) -> int:
        return next(
            d for d in range(min(least, size), size + 1)
            if size % d == 0 and math.gcd(d, device_num) == math.gcd(size, device_num)
        )  # fmt: skip

    for wide, scale in itertools.product(_WIDER, _SCALES):
        several = 2 * device_num * scale  # more than one on a device, where there was more than one
        kv_heads = divided(config.n_kv_heads, several)
        group = config.num_heads // config.n_kv_heads
        heads = kv_heads * divided(group, 2)
        latent = config.latent_attention
        if latent is not None:
            latent = replace(
                latent,
                query_rank=latent.query_rank and divided(latent.query_rank, _WIDTH * scale),
                key_value_rank=divided(latent.key_value_rank, _WIDTH * scale),
                rotary_head_dim=divided(latent.rotary_head_dim, _HEAD_DIM * scale),
                value_head_dim=divided(latent.value_head_dim, _HEAD_DIM * scale),
            )
        rotated = latent.rotary_head_dim if latent is not None else 0  # a part of a head
        head_dim = divided(config.head_dim, rotated + _HEAD_DIM * scale)
        square = config.num_heads * config.head_dim == config.hidden_size
        seq_length = divided(config.seq_length, max(several, _SEQ_LENGTH * scale))
        learned = config.position == "learned"
        chunk = seq_length // min(_CHUNKS, config.seq_length // config.chunk_tokens)
        delta, state_space = config.delta, config.state_space
        if state_space is not None:
            groups = divided(state_space.groups, several)
            of_group = divided(state_space.heads // state_space.groups, several if state_space.groups == 1 else 2)
            state_space = replace(
                state_space,
                heads=groups * of_group,
                groups=groups,
                head_size=divided(state_space.head_size, _HEAD_DIM * scale),
                state_size=divided(state_space.state_size, _HEAD_DIM * scale),
                chunk=chunk,
            )
        if delta is not None:
            key_heads = divided(delta.key_heads, several)
            delta = replace(
                delta,
                key_heads=key_heads,
                value_heads=key_heads * divided(delta.value_heads // delta.key_heads, 2),
                key_size=divided(delta.key_size, _HEAD_DIM * scale),
                value_size=divided(delta.value_size, _HEAD_DIM * scale),
                chunk=chunk,
            )
        yield replace(
            config,
            delta=delta,
            state_space=state_space,
            num_heads=heads,
            n_kv_heads=kv_heads,
            head_dim=head_dim,
            rotated_size=config.rotated_size and head_dim * config.rotated_size // config.head_dim // 2 * 2,
            kinds=tuple(
                replace(k, window=k.window and max(1, k.window * seq_length // config.seq_length)) for k in config.kinds
            ),
            hidden_size=heads * head_dim if square else divided(config.hidden_size, _WIDTH * scale),
            intermediate_size=divided(config.intermediate_size, wide * _WIDTH * scale),
            vocab_size=divided(config.vocab_size, _WIDTH * scale),
            seq_length=seq_length,
            max_position_embeddings=divided(config.max_position_embeddings, seq_length)
            if learned
            else config.max_position_embeddings,
            batch_size=divided(config.batch_size, several),
            latent_attention=latent,
            indexer=config.indexer
            and replace(
                config.indexer,
                heads=divided(config.indexer.heads, several),
                head_dim=divided(config.indexer.head_dim, rotated),
                keys=max(1, config.indexer.keys * seq_length // config.seq_length),
            ),
            experts=config.experts
            and replace(
                config.experts,
                intermediate_size=divided(config.experts.intermediate_size, _WIDTH * scale),
                shared_size=config.experts.shared_size and divided(config.experts.shared_size, _WIDTH * scale),
            ),
        )


def changed(before: Any, after: Any, prefix: str = "") -> dict[str, tuple[int, int]]:
    """The sizes in which two networks differ, those of their parts as `experts.intermediate_size`."""
    found: dict[str, tuple[int, int]] = {}
    for field in fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if is_dataclass(old):
            found |= changed(old, new, f"{prefix}{field.name}.")
        elif isinstance(old, int) and old != new:
            found[prefix + field.name] = old, new
    return found


def collectives_of(graph: Graph, stages: Sequence[StagePlan], pipeline: Pipeline | None) -> Counter[tuple[object, ...]]:
    """The predicted collectives of the first rank of every stage, without their sizes."""
    found: Sequence[Collective]
    if pipeline is None:
        found = partition(graph, stages[0]).collectives()
    else:
        found = [c for p in partition_stages(graph, stages, pipeline) for c in p.collectives(p.ranks.start)]
    return Counter((c.op, c.phase.value, c.kind, c.ranks, c.parameter) for c in found)


def kept_layers(config: "TransformerConfig", pipeline: Pipeline | None) -> tuple[int, ...]:
    """Which layers stay: the first two, or the first of each kind; with pipeline stages the first of every run of layers, or of
    each kind in it where the network says the kind of every layer.
    """
    layers = range(config.num_layers)
    if pipeline is not None and not config.kinds:
        return tuple(run.start for run in pipeline.runs if run.start in layers)
    if pipeline is not None:
        return tuple(n for run in pipeline.runs for n in _first_of_kinds(config, run))
    found = _first_of_kinds(config, layers)
    return tuple(found if len(found) > 1 else layers[:LAYERS])


def _first_of_kinds(config: "TransformerConfig", run: range) -> list[int]:
    first: dict[BlockKind, int] = {}
    for n in run:
        if n < config.num_layers:
            first.setdefault(config.kind(n), n)
    return sorted(first.values())


def reduced_pipeline(pipeline: Pipeline, kept: tuple[int, ...], graph: Graph) -> Pipeline:
    """`pipeline` with the layers `kept` alone, in `graph`, and few micro-batches.

    Blocks of `graph` behind these, which are no layers, stay in the last run. There remain more micro-batches than stages where
    there were: some wait for others then.
    """
    lengths = [sum(n in run for n in kept) for run in pipeline.runs]
    lengths[-1] += len(graph.blocks) - len(kept)
    fewest = pipeline.stage_num + 1 if pipeline.interleave == 1 else 2 * pipeline.stage_num
    layers, number = runs_of(tuple(lengths), pipeline.interleave), min(pipeline.micro_batch_num, fewest)
    return Pipeline(layers, number, scheduler=pipeline.scheduler)


def _stages(
    plan: Plan, pipeline: Pipeline | None, graph: Graph, kept: tuple[int, ...], layers: int
) -> tuple[StagePlan, ...]:
    """The stages of `plan`, found for a network of `layers` blocks, for `graph`, whose blocks are those with the numbers `kept`.

    The first block of a stage is recomputed if any was, like the first one that was; the others if all were, like the last.
    """
    blocks = graph.blocks
    found = []
    for number, stage in enumerate(plan.stages):
        own = [b for n, b in enumerate(blocks) if pipeline is None or pipeline.stage_of(n) == number]
        there = layers if plan.pipeline is None else sum(map(len, plan.pipeline.layers[number]))
        kinds = list(stage.settings.recompute.values())
        recompute = dict.fromkeys(own[:1], kinds[0]) if kinds else {}
        if kinds and len(kinds) >= there:
            recompute |= dict.fromkeys(own[1:], kinds[-1])
        found.append(StagePlan(carried(stage.strategies, graph, kept), replace(stage.settings, recompute=recompute)))
    return tuple(found)


def _threshold_KB(full: Graph, reduced: Graph, settings: Settings) -> int | None:
    """From which size on the optimizer shards parameters of `reduced`, such that it shards the same ones as in `full`."""
    shared = {p.name for p in full.parameters if may_be_shared(p, settings)}
    if not shared:
        return settings.parallel_optimizer_threshold_KB
    threshold = min(p.type.size_B for p in reduced.parameters if p.name in shared) // KIB
    small = replace(settings, parallel_optimizer_threshold_KB=threshold)
    return threshold if {p.name for p in reduced.parameters if may_be_shared(p, small)} == shared else None
