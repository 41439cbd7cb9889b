"""The price of a step: known totals, and what must not get cheaper."""

import math
from dataclasses import replace

import pytest

from model_zoo.builder import build_graph
from model_zoo.dimensions import dimensions_of
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.explain import explain_step
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.step import MEMORIES, TIMES, price
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.program.stage_program import partition_stages
from tests.strategy.plans import data_times_tensor, hand_written

A2 = load("atlas_800t_a2")


def priced(graph, stage):
    return price(graph, stage, partition(graph, stage), A2)


def test_forward_flops_of_llama2_7b_are_two_per_parameter_and_token():
    config = dimensions_of("llama2_7b", num_layers=2, batch_size=8)
    graph = build_graph(config)
    stage = StagePlan(data_times_tensor(graph, 8, 1), Settings(8))
    flops = 8 * explain_step(graph, stage, A2).total("work")
    tokens = 8 * config.seq_length
    weights = sum(math.prod(p.type.shape) for p in graph.parameters if "embedding" not in p.name)
    attention = 2 * 4 * tokens * config.seq_length * config.hidden_size
    products = 2 * weights * tokens
    assert products < flops <= (products + attention) * 1.01
    assert flops >= (products + attention / 2) * 0.999  # causal attention does half of it; norms have weights, too


@pytest.mark.parametrize("level", (0, 1, 3))
def test_the_breakdown_is_complete(level):
    cost = priced(*_case(level))
    assert tuple(cost.time_s) == TIMES and tuple(cost.memory_B) == MEMORIES
    assert cost.step_time_s == pytest.approx(sum(cost.time_s.values()), rel=1e-15)
    assert cost.peak_memory_B == sum(cost.memory_B.values())
    assert all(isinstance(size, int) for size in cost.memory_B.values())


def _case(level=0, **more):
    graph, plan = hand_written("llama2_7b", 4, 2, level=level, **more)
    return graph, plan.stage


def test_optimizer_sharding_saves_states_and_not_time():
    none, first, third = (priced(*_case(level)) for level in (0, 1, 3))
    assert first.memory_B["optimizer_states"] < none.memory_B["optimizer_states"]
    assert third.memory_B["activations"] < first.memory_B["activations"]
    assert none.time_s["communication"] < first.time_s["communication"] < third.time_s["communication"]


def test_recomputation_saves_memory_and_costs_time():
    plain, recomputation = priced(*_case()), priced(*_case(recompute=True))
    assert recomputation.memory_B["activations"] < plain.memory_B["activations"]
    assert recomputation.time_s["compute"] > plain.time_s["compute"]
    assert recomputation.memory_B["parameters"] == plain.memory_B["parameters"]


def test_a_longer_batch_costs_more():
    times = [priced(*_case(batch_size=n)).step_time_s for n in (8, 16, 32)]
    assert times == sorted(set(times))


def test_slower_links_cost_more():
    graph, stage = _case()
    slow = replace(A2, levels=tuple(replace(x, bandwidth_Bps=x.bandwidth_Bps / 2) for x in A2.levels))
    program = partition(graph, stage)
    fast_s, slow_s = (price(graph, stage, program, cluster).time_s for cluster in (A2, slow))
    assert slow_s["communication"] > fast_s["communication"]
    assert slow_s["optimizer"] == fast_s["optimizer"]


def test_states_are_two_moments_in_float32():
    graph, stage = _case()
    cost = priced(graph, replace(stage, settings=Settings(8, optimizer_level=OptimizerLevel.NONE)))
    assert cost.memory_B["optimizer_states"] == 2 * cost.memory_B["parameters"]  # weights are float32 too


def test_a_weight_of_another_stage_is_updated_there():
    """The tied table of GPT-2 on its last stage: read, and updated on the first one."""
    graph, plan = hand_written("gpt2_xl", 2, 2, level=1)
    first, last = partition_stages(graph, (plan.stage,) * 2, Pipeline(runs_of((1, 1)), 2))
    (received,) = [name for name, one in last.micro.parameters.items() if one.owner is not None]
    here, there = (price(one.graph, plan.stage, one.micro, A2) for one in (last, first))
    states_B = stage_memory_B(last.micro, 2, False, 0, {}, {})["optimizer_states"]
    assert here.memory_B["optimizer_states"] == states_B
    shared = replace(last.micro.parameters[received], owner=None)
    own = replace(last.micro, parameters={**last.micro.parameters, received: shared})
    assert price(last.graph, plan.stage, own, A2).time_s["optimizer"] > here.time_s["optimizer"] > 0
    assert first.micro.parameters[received].owner is None and there.time_s["optimizer"] > 0
