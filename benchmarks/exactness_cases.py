"""The cases of benchmarks/exactness.py: networks of the zoo with planned, Megatron-style and random strategies and settings.

A case is a network, a number and a kind; everything else follows from these by a seeded generator, so that a case that
differs can be run again alone.
"""

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from model_zoo.config import LatentSizes, TransformerConfig
from model_zoo.dimensions import dimensions_of
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, Placement, place, strategy_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import OpView, Signature, view
from ms_symtensor.program.partition import partition
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, OpOutput, ParameterRef, Source
from ms_symtensor.tensor.layout import Layout

Kind = Literal["planned", "megatron", "random"]
KINDS: tuple[Kind, ...] = ("planned", "megatron", "random")
SELECTED = 1000
"""Cases from this number on have random selections of what blocks recompute."""

ALONE = 2000
"""Cases from this number on have some operators that are recomputed alone, by themselves and not with their block."""

MODELS = (
    "llama2_7b", "llama2_7b-self", "llama2_13b", "llama2_13b-self", "llama3_8b", "gpt2_xl", "gpt2_xl-self", "bert_large",
    "qwen3_32b", "qwen_7b_lora", "mixtral_8x7b", "deepseek_v3",
)  # fmt: skip
"""Networks of the zoo; `-self` ones with plain self-attention instead of FlashAttention."""

SAMPLE: dict[str, tuple[int, ...]] = {
    "llama2_7b": (0, 4, 5, 8), "llama2_7b-self": (3, 7, 2, 13), "llama3_8b": (6, 10, 5, 16, ALONE + 2),
    "gpt2_xl": (9, 1, 5, 11, ALONE + 4),
    "bert_large": (12, 13, 2, 8),
}  # fmt: skip
"""The 22 cases of the test suite and of benchmarks/versions.py, on networks of small dims."""

DEVICE_NUMS = (2, 4, 8, 16, 32, 64)
LAYERS, BATCH = 2, 64
CLUSTER = "atlas_800t_a2"
_ATTEMPTS = 200


@dataclass(frozen=True)
class Case:
    """One program to compare: strategies and settings of `stage`, as rank `rank` sees them."""

    model: str
    kind: Kind
    number: int
    stage: StagePlan
    rank: int

    @property
    def name(self) -> str:
        return name_of(self.model, self.number)

    def __str__(self) -> str:
        s = self.stage.settings
        sharded = f" shard {s.optimizer_weight_shard_size}" if s.optimizer_level else ""
        recomputation = "".join(_mark(recomputation) for recomputation in s.recompute.values())
        return (
            f"{self.name} rank {self.rank}/{s.device_num} level {int(s.optimizer_level)}{sharded}"
            f"{f' recompute {recomputation}' if recomputation else ''}{' alltoall' if s.enable_alltoall else ''}"
        )


def _mark(recomputation: Recompute) -> str:
    return "o" if recomputation.only else ("c" if recomputation.communication else "r") + "k" * bool(recomputation.kept)


def config_of(model: str, num_layers: int = LAYERS) -> TransformerConfig:
    """The dimensions of `model`, a zoo name with `-self` behind it for plain self-attention, at its published width."""
    name, _, attention = model.partition("-")
    return dimensions_of(name, num_layers=num_layers, batch_size=BATCH, attention="self" if attention else "flash")


def small_config_of(model: str) -> TransformerConfig:
    """The structure of `model` with small dims: two layers of the Llamas, one of the others."""
    config = config_of(model, LAYERS if model in ("llama2_7b", "llama3_8b", "deepseek_v3") else 1)
    kv_heads = 8 if config.n_kv_heads == config.num_heads else 4
    experts = config.experts and replace(
        config.experts, number=8, intermediate_size=128, shared_size=min(128, config.experts.shared_size),
        groups=min(4, config.experts.groups), groups_per_token=min(2, config.experts.groups_per_token),
    )  # fmt: skip
    latent = config.latent_attention and LatentSizes(64, 64, rotary_head_dim=16, value_head_dim=16)
    return replace(
        config, experts=experts, latent_attention=latent, dense_layers=min(1, config.dense_layers), hidden_size=256,
        num_heads=8, n_kv_heads=kv_heads, head_dim=32, intermediate_size=512, vocab_size=1024, seq_length=128,
    )  # fmt: skip


def name_of(model: str, number: int) -> str:
    """The name of case `number` of `model`."""
    return f"{model}/{KINDS[number % len(KINDS)]}/{number}"


def cases(model: str, graph: Graph, config: TransformerConfig, numbers: Iterable[int]) -> Iterator[Case]:
    """The cases of `graph`, the network `config` called `model`: number n is of kind n mod 3."""
    for number in numbers:
        yield case(model, graph, config, number)


def case(model: str, graph: Graph, config: TransformerConfig, number: int) -> Case:
    """One case; the first seeded attempt that MindSpore is predicted to accept."""
    kind = KINDS[number % len(KINDS)]
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{model}/{kind}/{number}/{attempt}")
        device_num = DEVICE_NUMS[(number // len(KINDS) + attempt) % len(DEVICE_NUMS)]
        try:
            stage = _stage(graph, config, kind, device_num, rng)
            if number >= SELECTED:
                stage = (_selecting if number < ALONE else _selecting_alone)(graph, stage, rng)
            partition(graph, stage)
        except (InvalidStrategyError, InputError, InfeasibleError):
            continue
        return Case(model, kind, number, stage, rng.randrange(device_num))
    raise InputError(f"{model}: no valid {kind} strategy in {_ATTEMPTS} attempts")


def _stage(graph: Graph, config: TransformerConfig, kind: Kind, device_num: int, rng: random.Random) -> StagePlan:
    settings = _settings(graph, device_num, rng)
    if kind == "planned":
        from ms_symtensor.search.plan import plan

        cluster = load(CLUSTER)
        limit_B = int(cluster.device.hbm_usable_B * rng.choice((1.0, 0.6, 0.35, 0.2)))
        found = plan(
            graph, cluster, device_num=device_num, global_batch_size=config.batch_size, seq_length=config.seq_length,
            memory_limit_B=limit_B,
        ).stage  # fmt: skip
        return found if rng.random() < 0.5 else StagePlan(found.strategies, settings)
    if kind == "megatron":
        data = rng.choice([d for d in _divisors(device_num) if config.batch_size % d == 0])
        cuts = megatron_strategy(graph, config, data, device_num // data, rng.random() < 0.5)
        given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
        return StagePlan(given, settings)
    return StagePlan(random_strategies(graph, device_num, rng), settings)


def _settings(graph: Graph, device_num: int, rng: random.Random) -> Settings:
    """Random settings: half of the cases shard the optimizer, half recompute some blocks."""
    blocks = [b for b in dict.fromkeys(op.block for op in graph.ops) if b is not None]
    recomputation: Mapping[str, Recompute] = {}
    if rng.random() < 0.5:
        communication = rng.random() < 0.6
        chosen = blocks if rng.random() < 0.6 else rng.sample(blocks, rng.randint(1, len(blocks)))
        recomputation = {name: Recompute(communication) for name in blocks if name in chosen}
    return Settings(
        device_num,
        enable_alltoall=rng.random() < 0.3,
        optimizer_level=rng.choice((OptimizerLevel.NONE, *OptimizerLevel)),
        optimizer_weight_shard_size=rng.choice([-1, -1, *[d for d in _divisors(device_num) if d > 1]]),
        parallel_optimizer_threshold_KB=rng.choice((64, 64, 0, 1024)),
        gradient_fp32_sync=rng.random() < 0.8,
        recompute=recomputation,
    )


def _selecting(graph: Graph, stage: StagePlan, rng: random.Random) -> StagePlan:
    """`stage` with some blocks recomputed but for some of their operators."""
    recomputation = {}
    for block, inside in _selectable(graph).items():
        share, communication = rng.choice((0.0, 0.2, 0.5, 0.8)), rng.random() < 0.7
        kept, still = (
            tuple(n for n in dict.fromkeys(inside) if rng.random() < part) for part in (share, share * communication)
        )
        if rng.random() < 0.8:
            recomputation[block] = Recompute(communication, kept, _marked_alike(graph, block, still))
    return StagePlan(stage.strategies, replace(stage.settings, recompute=recomputation))


def _selecting_alone(graph: Graph, stage: StagePlan, rng: random.Random) -> StagePlan:
    """`stage` with some operators of most blocks recomputed alone."""
    recomputation = {}
    for block, inside in _selectable(graph).items():
        share = rng.choice((0.0, 0.2, 0.5, 0.8))
        if only := tuple(name for name in dict.fromkeys(inside) if rng.random() < share):
            recomputation[block] = Recompute(only=only)
    return StagePlan(stage.strategies, replace(stage.settings, recompute=recomputation))


def _selectable(graph: Graph) -> dict[str, list[str]]:
    """The operators of every block that a plan can choose for, as it names them."""
    names: dict[str, list[str]] = {}
    for op in graph.ops:
        if op.block is not None and is_selectable(op):
            names.setdefault(op.block, []).append(name_in_block(op))
    return names


def _marked_alike(graph: Graph, block: str, still: Sequence[str]) -> tuple[str, ...]:
    """Those of `still` that share the tensors they read with others of them alone.

    MindSpore merges the moves of one tensor and takes the mark of one reader, so plans mark its readers alike too
    (`search.selections.selection`).
    """
    readers: dict[Source, set[str]] = {}
    for op in graph.ops:
        if op.block == block:
            for source in graph.tensor_inputs(op):
                readers.setdefault(source, set()).add(name_in_block(op))
    left = set(still)
    while unlike := [names for names in readers.values() if names & left and not names <= left]:
        left.difference_update(*unlike)
    return tuple(name for name in still if name in left)


# -- random strategies -----------------------------------------------------------------------------------------------------


def random_strategies(graph: Graph, device_num: int, rng: random.Random) -> dict[str, OpStrategy]:
    """A random strategy for every operator that can be given one, alike for operators that share a parameter."""
    stored: dict[str, Layout] = {}
    found = {}
    for op in graph.ops:
        seen = view(graph, op)
        sig = signature(seen)
        if not sig.shardable or not op.primitive:
            continue
        sources = [_root(graph, s) for s in graph.tensor_inputs(op)]
        for _ in range(_ATTEMPTS):
            drawn = _random_strategy(seen, sig, device_num, rng)
            if drawn is None:
                continue
            weights = {s.name: x for s, x in zip(sources, drawn[1].inputs, strict=True) if isinstance(s, ParameterRef)}
            if all(name not in stored or _alike(stored[name], x) for name, x in weights.items()):
                stored.update(weights)
                found[op.name] = drawn[0]
                break
        else:
            raise InvalidStrategyError(f"no random strategy found for {op.name}")
    return found


def _random_strategy(
    seen: OpView, sig: Signature, device_num: int, rng: random.Random
) -> tuple[OpStrategy, Placement] | None:
    cuts: dict[str, int] = {}
    left = device_num
    dims = list(sig.cuttable)
    rng.shuffle(dims)
    for dim in dims:
        degree = rng.choice([d for d in _divisors(left) if sig.sizes[dim] % d == 0])
        if degree > 1:
            cuts[dim] = degree
            left //= degree
    try:
        strategy = strategy_of(sig, cuts, scatter=sig.scatter is not None and rng.random() < 0.4)
        return strategy, place(seen, sig, strategy, device_num)
    except InvalidStrategyError:
        return None


def _alike(first: Layout, second: Layout) -> bool:
    return first.slice_shape == second.slice_shape and first.copies.ranks() == second.copies.ranks()


def _root(graph: Graph, source: Source) -> Source:
    while isinstance(source, OpOutput):
        op = graph.op_by_name[source.op]
        if op.type == "Reshape" or signature(view(graph, op)).shardable:
            break
        source = graph.tensor_inputs(op)[0]
    return source


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def tolerance(predicted_B: int, compiled_B: int) -> float:
    """How far the predicted peak is from the compiled one, as a fraction of the latter."""
    return abs(predicted_B - compiled_B) / compiled_B if compiled_B else math.inf if predicted_B else 0.0
