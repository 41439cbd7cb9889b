"""Reduced networks have the program of the whole ones; nothing is compiled here."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.megatron import megatron_strategy
from ms_symtensor.bridge.judge.fewer_blocks import fewer_blocks
from ms_symtensor.bridge.proof.reduction import changed, collectives_of, reduce_plan, reduced_dimensions
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.models import planned, resolve
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.strategy.stages import pipeline_stages


def some_plan(model: str, config: TransformerConfig) -> Plan:
    """A plan without strategies."""
    source = {"model": model, "batch_size": str(config.batch_size), "num_layers": str(config.num_layers)}
    return Plan(
        model, "", "", (StagePlan({}, Settings(1)),), config.batch_size, config.seq_length, 1, 1, False,
        Prediction({}, {}, True, 0), SearchReport(0, 0.0, 0.0, "none"), source=source,
    )  # fmt: skip


@pytest.mark.parametrize("device_num", [2, 4, 8])
@pytest.mark.parametrize("model", PUBLISHED)
def test_what_divides_and_what_does_not_stays(model: str, device_num: int) -> None:
    whole = replace(dimensions_of(model), num_layers=2, dense_layers=0)
    small = next(reduced_dimensions(whole, device_num))
    for size, (before, after) in changed(whole, small).items():
        assert after < before, size
        assert before % after == 0 or size == "hidden_size", size
        assert math.gcd(before, device_num) == math.gcd(after, device_num), size
    parameters = sum(p.type.size_B for p in build_graph(small).parameters)
    assert parameters < 64 << 20


@pytest.mark.parametrize(("model", "device_num"), [("llama2_7b", 8), ("gpt2_xl", 4), ("llama3_8b", 8)])
def test_a_reduced_plan_has_the_collectives_of_the_plan(model: str, device_num: int) -> None:
    config = dimensions_of(model, num_layers=2, batch_size=16)
    found = plan(
        build_graph(config), load("atlas_800t_a2"), device_num=device_num, global_batch_size=16,
        seq_length=config.seq_length, model=model,
        source={"model": model, "num_layers": "2", "batch_size": "16", "seq_length": str(config.seq_length)},
    )  # fmt: skip
    small = reduce_plan(found)
    graph = build_graph(small.config)
    assert small.plan.graph_hash == graph.hash
    assert collectives_of(graph, small.plan.stages, None) == collectives_of(build_graph(config), found.stages, None)
    assert small.sizes["hidden_size"] == (config.hidden_size, small.config.hidden_size)


def test_one_layer_of_each_kind_stays() -> None:
    """DeepSeek-V3: three dense layers, then mixtures of experts."""
    config = dimensions_of("deepseek_v3", batch_size=16)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 8, 1, False)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    by_hand = replace(some_plan("deepseek_v3", config), stages=(StagePlan(given, Settings(8)),))
    small = reduce_plan(by_hand)
    assert small.sizes["num_layers"] == (61, 2)
    assert small.sizes["dense_layers"] == (3, 1)
    assert len(small.plan.strategies) == sum(op.name in small.plan.strategies for op in build_graph(small.config).ops)
    assert any("/1-" in name and "experts" in name for name in small.plan.strategies)


def test_the_optimizer_shards_the_same_parameters_of_a_reduced_network() -> None:
    config = dimensions_of("bert_large", num_layers=1, batch_size=16)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 4, 1, False)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    stage = StagePlan(given, Settings(4, optimizer_level=OptimizerLevel.LEVEL2))
    small = reduce_plan(replace(some_plan("bert_large", config), stages=(stage,)))
    before, after = small.sizes["parallel_optimizer_threshold_KB"]
    assert before == 64
    assert 0 < after < 64


def test_a_network_that_cannot_be_made_small_is_refused() -> None:
    """The optimizer shards the two tables alone: small tables are no larger than the other weights."""
    config = dimensions_of("llama2_7b", num_layers=1, batch_size=2, seq_length=2)
    found = plan(
        build_graph(config), load("atlas_800t_a2"), device_num=2, global_batch_size=2, seq_length=2,
        source={"model": "llama2_7b", "num_layers": "1", "batch_size": "2", "seq_length": "2"},
    )  # fmt: skip
    odd = Settings(2, optimizer_level=OptimizerLevel.LEVEL1, parallel_optimizer_threshold_KB=300 * 1024)
    stage = StagePlan(found.stage.strategies, odd)
    with pytest.raises(InfeasibleError, match="no smaller"):
        reduce_plan(replace(found, stages=(stage,)))


def test_stages_keep_a_layer_each_and_the_collectives_between_them() -> None:
    """Uneven stages of Llama-2 by hand: 20 and 12 layers become one each, seven micro-batches three."""
    config = dimensions_of("llama2_7b", batch_size=4)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 1, 2, True)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    settings = Settings(2, recompute={"layers.3": Recompute()})
    stages, pipeline = pipeline_stages(graph, [20, 12], [given, given], settings, 7)
    by_hand = replace(some_plan("llama2_7b", config), stages=stages, pipeline=pipeline, global_batch_size=28)
    small = reduce_plan(by_hand)
    assert small.plan.pipeline is not None
    assert [list(map(len, runs)) for runs in small.plan.pipeline.layers] == [[1], [1]]
    assert small.sizes["num_layers"] == (32, 2)
    assert small.sizes["micro_batch_num"] == (7, 3)
    assert small.plan.global_batch_size == 3 * small.config.batch_size
    assert [list(stage.settings.recompute) for stage in small.plan.stages] == [["layers.0"], []]
    kinds = {key[2] for key in collectives_of(build_graph(small.config), small.plan.stages, small.plan.pipeline)}
    assert {"Send", "Receive", "AllGather", "ReduceScatter"} <= kinds
    with pytest.raises(InputError, match="3 ranks cannot be dealt to 2 pipeline stages"):
        reduce_plan(by_hand, 3)


@pytest.mark.parametrize(("stages", "kept"), [(1, (0, 3, 4, 7)), (2, (0, 3, 4, 5, 7))])
def test_a_block_of_every_kind_stays_and_windows_shrink_with_the_sequence(stages: int, kept: tuple[int, ...]) -> None:
    file = Path(__file__).parents[2] / "data" / "configs" / "olmo_3_7b.json"
    model = resolve(str(file), 8, 8192, {"num_layers": 8}, dims=["hidden_size=512", "head_dim=16"])
    limits = limits_of([("pipeline_stages", stages), ("pp_interleave_num", 1)])
    found, graph = planned(model, Request(load("atlas_800t_a2"), 4, 8, 8192, 1 << 36, "olmo", model.source, limits))
    assert fewer_blocks(found, 1, graph).kept == kept
    small = reduce_plan(found)
    windows = [kind.window for kind in small.config.kinds]
    assert windows == [small.config.seq_length // 2, 0] * stages
