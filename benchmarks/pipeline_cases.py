"""The cases of benchmarks/pipelines.py: networks on pipeline stages with planned, Megatron-style and random strategies.

A case is a network, a number and a kind; everything else follows from these by a seeded generator, so that a case that
differs can be run again alone.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.exactness_cases import CLUSTER, KINDS, Kind, config_of, random_strategies, small_config_of
from model_zoo.dimensions import TransformerConfig
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import Graph

MODELS = (
    "llama2_7b", "llama2_7b-self", "llama3_8b", "gpt2_xl", "bert_large", "qwen3_32b", "mixtral_8x7b", "deepseek_v3",
)  # fmt: skip
LAYERS, SAMPLES = 4, 8
"""Blocks of every network, and samples of a micro-batch."""

SIZES = ((2, 2), (2, 4), (4, 1), (4, 2))
"""Stages, and devices of each."""

ACCUMULATING, DEVICES = 20, ((1, 2), (1, 4), (1, 8))
"""Cases from this number on have one stage, which takes its micro-batches one after the other."""

SAMPLE: dict[str, tuple[int, ...]] = {"llama2_7b": (1, 5, 6, 8, 11), "gpt2_xl": (4, 22)}
"""The seven cases of the test suite, on networks of SAMPLE_LAYERS blocks."""
SAMPLE_LAYERS = 2

_ATTEMPTS = 200


@dataclass(frozen=True)
class PipelineCase:
    """Stages of one network: their strategies and settings, blocks and micro-batches."""

    model: str
    kind: Kind
    number: int
    stages: tuple[StagePlan, ...]
    pipeline: Pipeline

    @property
    def name(self) -> str:
        return f"{self.model}/{self.kind}/{self.number}"

    def __str__(self) -> str:
        settings = self.stages[0].settings
        layers = "+".join(str(sum(map(len, runs))) for runs in self.pipeline.layers)
        recomputation = sum(len(stage.settings.recompute) for stage in self.stages)
        level = int(settings.optimizer_level)
        shard = f" shard {settings.optimizer_weight_shard_size}" if level else ""
        return (
            f"{self.name} layers {layers} x {settings.device_num} devices, {self.pipeline.micro_batch_num} micro-batches,"
            f" level {level}{shard}{f' recompute {recomputation}' if recomputation else ''}"
            f"{' alltoall' if settings.enable_alltoall else ''}"
        )


def micro_config(model: str, small: bool = False, num_layers: int = LAYERS) -> TransformerConfig:
    """The network `model` with so many blocks at the size of one micro-batch, `small` with small dims."""
    config = small_config_of(model) if small else config_of(model)
    return replace(config, num_layers=num_layers, batch_size=SAMPLES)


def cases(model: str, graph: Graph, config: TransformerConfig, numbers: tuple[int, ...]) -> Iterator[PipelineCase]:
    """The cases `numbers` of `graph`, the network `config`: number n is of kind n mod 3."""
    for number in numbers:
        yield case(model, graph, config, number)


def case(model: str, graph: Graph, config: TransformerConfig, number: int) -> PipelineCase:
    """One case; the first seeded attempt that MindSpore is predicted to accept."""
    kind = KINDS[number % len(KINDS)]
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"pipeline/{model}/{kind}/{number}/{attempt}")
        try:
            found = _case(model, graph, config, kind, number, rng)
            partition_stages(graph, found.stages, found.pipeline)
        except (InvalidStrategyError, InputError, InfeasibleError):
            continue
        return found
    raise InputError(f"{model}: no valid {kind} pipeline in {_ATTEMPTS} attempts")


def _case(
    model: str, graph: Graph, config: TransformerConfig, kind: Kind, number: int, rng: random.Random
) -> PipelineCase:
    allowed = SIZES if number < ACCUMULATING else DEVICES
    stage_num, devices = rng.choice([sizes for sizes in allowed if sizes[0] <= config.num_layers])
    layers = [1] * stage_num
    for _ in range(config.num_layers - stage_num):
        layers[rng.randrange(stage_num)] += 1
    settings = _settings(graph, devices, rng)
    strategies = [_strategies(graph, config, kind, devices, rng) for _ in range(stage_num)]
    shared = strategies[0]  # operators of several stages, and users of one parameter on several, need one strategy
    tied = {op.name for op in graph.ops if op.block is None}
    strategies = [{**s, **{n: shared[n] for n in tied if n in shared}} for s in strategies]
    micro_batch_num = stage_num + rng.choice((0, 1)) + (number >= ACCUMULATING)
    stages, pipeline = pipeline_stages(graph, layers, strategies, settings, micro_batch_num)
    return PipelineCase(model, kind, number, stages, pipeline)


def _strategies(
    graph: Graph, config: TransformerConfig, kind: Kind, devices: int, rng: random.Random
) -> Mapping[str, OpStrategy]:
    if kind == "planned":
        from ms_symtensor.search.plan import plan

        cluster = load(CLUSTER)
        limit_B = int(cluster.device.hbm_usable_B * rng.choice((1.0, 0.35)))
        found = plan(
            graph, cluster, device_num=devices, global_batch_size=config.batch_size, seq_length=config.seq_length,
            memory_limit_B=limit_B,
        )  # fmt: skip
        return found.stage.strategies
    if kind == "megatron":
        data = rng.choice([d for d in range(1, devices + 1) if devices % d == 0])
        cuts = megatron_strategy(graph, config, data, devices // data, rng.random() < 0.5)
        return {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    return random_strategies(graph, devices, rng)


def _settings(graph: Graph, devices: int, rng: random.Random) -> Settings:
    blocks = list(dict.fromkeys(op.block for op in graph.ops if op.block is not None))
    communication = rng.random() < 0.6
    recomputation = [b for b in blocks if rng.random() < 0.6] if rng.random() < 0.4 else []
    sizes = [-1, -1, *(d for d in range(2, devices + 1) if devices % d == 0)]
    return Settings(
        devices,
        enable_alltoall=rng.random() < 0.3,
        optimizer_level=rng.choice((OptimizerLevel.NONE, OptimizerLevel.LEVEL1, OptimizerLevel.LEVEL2)),
        optimizer_weight_shard_size=rng.choice(sizes),
        parallel_optimizer_threshold_KB=rng.choice((64, 0)),
        gradient_fp32_sync=rng.random() < 0.8,
        recompute={block: Recompute(communication) for block in recomputation},
    )
