"""A large network made small, so that its partitioned program can be run here: the same operators, cut the same way.

Every size is divided such that it has the same common divisors with the number of devices: what could be cut evenly still
can, by the same degrees, and what could not still cannot. That nothing else changed is checked: the reduced program must
have the very collectives of the whole one, operator by operator.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from ms_symtensor.bridge.load_network import zoo_options
from ms_symtensor.bridge.proof.fewer_ranks import on_first_ranks
from ms_symtensor.errors import InfeasibleError, InvalidStrategyError
from ms_symtensor.program.parameters import KIB, may_be_shared
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig

LAYERS = 2
_LAYER = re.compile(r"(/layers-CellList/)(\d+)-")  # in an operator's full name
_SCALES = (1, 2, 4, 8)
_HEAD_DIM, _WIDTH, _SEQ_LENGTH = 8, 64, 16
"""Smallest sizes that are tried, multiplied by _SCALES in turn; empirical."""


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
    kept = _kept_layers(whole)
    shallow = replace(whole, num_layers=len(kept), dense_layers=sum(not whole.has_experts(n) for n in kept))
    full_graph = build_graph(shallow)
    full_stage = _for_graph(plan.stage, full_graph, kept, whole.num_layers, plan.stage.settings)
    ranks = plan.device_num if ranks is None else ranks
    if ranks != plan.device_num:
        full_stage = on_first_ranks(full_graph, full_stage, ranks)
    expected = collectives_of(full_graph, full_stage)
    for config in reduced_dimensions(shallow, ranks):
        graph = build_graph(config)
        threshold = _threshold_KB(full_graph, graph, plan.stage.settings)
        if threshold is None:
            continue
        stage = StagePlan(
            full_stage.strategies, replace(full_stage.settings, parallel_optimizer_threshold_KB=threshold)
        )
        try:
            if collectives_of(graph, stage) != expected:
                continue
        except InvalidStrategyError:
            continue
        small = replace(
            plan, graph_hash=graph.hash, stages=(stage,), global_batch_size=config.batch_size,
            seq_length=config.seq_length,
        )  # fmt: skip
        sizes = changed(whole, config)
        before = plan.stage.settings.parallel_optimizer_threshold_KB
        if threshold != before:
            sizes["parallel_optimizer_threshold_KB"] = before, threshold
        if ranks != plan.device_num:
            sizes["device_num"] = plan.device_num, ranks
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

    for scale in _SCALES:
        several = 2 * device_num * scale  # more than one on a device, where there was more than one
        kv_heads = divided(config.n_kv_heads, several)
        group = config.num_heads // config.n_kv_heads
        heads = kv_heads * divided(group, 2)
        latent = config.latent_attention
        if latent is not None:
            latent = replace(
                latent,
                query_rank=divided(latent.query_rank, _WIDTH * scale),
                key_value_rank=divided(latent.key_value_rank, _WIDTH * scale),
                rotary_head_dim=divided(latent.rotary_head_dim, _HEAD_DIM * scale),
                value_head_dim=divided(latent.value_head_dim, _HEAD_DIM * scale),
            )
        rotated = latent.rotary_head_dim if latent is not None else 0  # a part of a head
        head_dim = divided(config.head_dim, rotated + _HEAD_DIM * scale)
        square = config.num_heads * config.head_dim == config.hidden_size
        seq_length = divided(config.seq_length, max(several, _SEQ_LENGTH * scale))
        learned = config.position == "learned"
        yield replace(
            config,
            num_heads=heads,
            n_kv_heads=kv_heads,
            head_dim=head_dim,
            hidden_size=heads * head_dim if square else divided(config.hidden_size, _WIDTH * scale),
            intermediate_size=divided(config.intermediate_size, _WIDTH * scale),
            vocab_size=divided(config.vocab_size, _WIDTH * scale),
            seq_length=seq_length,
            max_position_embeddings=divided(config.max_position_embeddings, seq_length)
            if learned
            else config.max_position_embeddings,
            batch_size=divided(config.batch_size, several),
            latent_attention=latent,
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


def collectives_of(graph: Graph, stage: StagePlan) -> Counter[tuple[str, str, str, tuple[int, ...], str | None]]:
    """The predicted collectives of rank 0, without their sizes."""
    found = partition(graph, stage).collectives()
    return Counter((c.op, c.phase.value, c.kind, c.ranks, c.parameter) for c in found)


def _kept_layers(config: "TransformerConfig") -> tuple[int, ...]:
    """Which layers stay: the first two, or the first of each kind."""
    layers = range(config.num_layers)
    dense = [n for n in layers if not config.has_experts(n)]
    mixed = [n for n in layers if config.has_experts(n)]
    return (dense[0], mixed[0]) if dense and mixed else tuple(layers[:LAYERS])


def _for_graph(stage: StagePlan, graph: Graph, kept: tuple[int, ...], layers: int, settings: Settings) -> StagePlan:
    """`stage`, found for a network of `layers` blocks, for `graph`, whose blocks are those with the numbers `kept`.

    The first block is recomputed if any was, the others if all were.
    """
    blocks = list(dict.fromkeys(op.block for op in graph.ops if op.block is not None))
    kinds = list(settings.recompute.values())
    recompute: dict[str, Recompute] = {}
    if kinds:
        recompute = dict.fromkeys(blocks if len(kinds) >= layers else blocks[:1], kinds[0])
    strategies = {}
    for op in graph.ops:
        name = _LAYER.sub(lambda found: f"{found[1]}{kept[int(found[2])]}-", op.name)
        if name in stage.strategies:
            strategies[op.name] = stage.strategies[name]
    return StagePlan(strategies, replace(settings, recompute=recompute))


def _threshold_KB(full: Graph, reduced: Graph, settings: Settings) -> int | None:
    """From which size on the optimizer shards parameters of `reduced`, such that it shards the same ones as in `full`."""
    shared = {p.name for p in full.parameters if may_be_shared(p, settings)}
    if not shared:
        return settings.parallel_optimizer_threshold_KB
    threshold = min(p.type.size_B for p in reduced.parameters if p.name in shared) // KIB
    small = replace(settings, parallel_optimizer_threshold_KB=threshold)
    return threshold if {p.name for p in reduced.parameters if may_be_shared(p, small)} == shared else None
