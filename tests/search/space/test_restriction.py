"""Pins are obeyed whatever they are, cost nothing where the plan obeys them anyway, and leave the best of the rest."""

import math
import random
from dataclasses import replace

import pytest

from benchmarks.brute_force import all_priced, random_case
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.program.meanings import meanings
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import FREE, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.roles import major_products, weight_dims
from ms_symtensor.search.plan import plan
from ms_symtensor.search.stages.network import network
from ms_symtensor.tensor.names import is_called
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
GRAPH = small_graph("llama2_7b", num_layers=3)
REPORTED = ("data_parallel", "model_parallel", "sequence_parallel", "expert_parallel")


def planned(graph=GRAPH, device_num=8, limits=FREE, **more):
    more = {"memory_limit_B": int(A2.device.hbm_usable_B), **more}
    return plan(
        graph,
        A2,
        device_num=device_num,
        global_batch_size=8,
        seq_length=128,
        fix=limits.fixed,
        at_most=limits.at_most,
        **more,
    )


def reported(found):
    settings = found.stage.settings
    numbers = {name: int(getattr(found, name)) for name in REPORTED}
    return {**numbers, "recompute": len(settings.recompute), "optimizer_level": int(settings.optimizer_level)}


@pytest.mark.parametrize("seed", range(8))
def test_plans_obey_their_pins(seed):
    draw = random.Random(seed)
    numbers = {
        "data_parallel": (1, 2, 4), "model_parallel": (1, 2, 4, 8), "sequence_parallel": (0, 1),
        "recompute": (0, 1, 2, 3), "optimizer_level": (0, 1, 2, 3),
    }  # fmt: skip
    chosen = draw.sample(sorted(numbers), 2)
    fixed = {name: draw.choice(numbers[name]) for name in chosen[:1]}
    most = {name: draw.choice(numbers[name]) for name in chosen[1:]}
    found = planned(limits=limits_of(fixed.items(), most.items()))
    said = reported(found)
    assert {name: said[name] for name in fixed} == fixed
    assert limits_of(found.fixed.items(), found.at_most.items()) == limits_of(fixed.items(), most.items())
    assert all(said[name] <= number for name, number in most.items())
    assert found.prediction.step_time_s >= planned().prediction.step_time_s * (1 - 1e-9)


@pytest.mark.parametrize("model", ("llama2_7b", "mixtral_8x7b"))
def test_pins_of_what_is_best_anyway_cost_nothing(model):
    graph = small_graph(model, num_layers=2)
    free = planned(graph)
    pinned = planned(graph, limits=limits_of(reported(free).items()))
    assert pinned.prediction.step_time_s == pytest.approx(free.prediction.step_time_s)
    assert reported(pinned) == reported(free)


def degrees_of_products(graph, known, stage):
    """Rows and columns of every major product under a strategy."""
    for name in major_products(graph, known):
        cuts = cuts_of(*known[name], stage.strategies[name], stage.settings.device_num)
        columns = math.prod(cuts.get(d, 1) for d in weight_dims(known[name][1]))
        yield math.prod(cuts.values()) // columns, columns


@pytest.mark.parametrize("seed", range(6))
def test_no_combination_that_obeys_is_faster(seed):
    graph, device_num = random_case(random.Random(100 + seed), 150)
    known = meanings(graph)
    everything = [
        (one.time_s, set(degrees_of_products(graph, known, one.stage))) for one in all_priced(graph, A2, device_num)
    ]
    for number in (1, 2, device_num):
        best_s = min(
            (time_s for time_s, found in everything if {columns for _, columns in found} <= {number}), default=math.inf
        )
        limits = limits_of([("model_parallel", number)])
        if math.isinf(best_s):
            continue  # brute force leaves no device idle
        found = planned(graph, device_num, limits, memory_limit_B=1 << 60)
        assert found.prediction.step_time_s == pytest.approx(best_s)
        assert found.model_parallel == number


def test_recomputation_as_pinned():
    for count, pinned in ((0, "none"), (2, 2), (3, "full")):
        assert len(planned(limits=limits_of([("recompute", pinned)])).stage.settings.recompute) == count


def test_experts_as_pinned():
    graph = build_graph(dimensions_of("mixtral_8x7b", num_layers=2, batch_size=8, seq_length=512))
    for number in (1, 4):
        assert planned(graph, limits=limits_of([("expert_parallel", number)])).expert_parallel == number


@pytest.mark.parametrize(
    "pattern, text, cuts",
    (
        ("*.query.matmul", "(4,1)(2,1)", {"m": 4, "k": 1, "n": 2}),
        ("attention.query.matmul", "k/8", {"m": 1, "k": 8, "n": 1}),
        ("*/up/*", "2,tp", {"m": 2, "k": 1, "n": 4}),
        ("*.flash_attention", "n/8", {"b": 1, "n": 8, "s": 1}),
        ("*.down.matmul", "whole", {"m": 1, "k": 1, "n": 1}),
    ),
)
def test_operators_as_pinned(pattern, text, cuts):
    pins = [(pattern, text), ("model_parallel", 4)] if "tp" in text else [(pattern, text)]
    found, known = planned(limits=limits_of(pins)), meanings(GRAPH)
    names = [op.name for op in GRAPH.ops if is_called(op, pattern) and op.name in found.stage.strategies]
    assert len(names) == 3
    for name in names:
        assert cuts_of(*known[name], found.stage.strategies[name], 8) == cuts


def test_operators_pinned_in_pipeline_stages():
    """On a family of meshes the representative's slices stand for those of every member."""
    config = dimensions_of("llama2_7b", num_layers=4, batch_size=16, seq_length=512)

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or 4))

    limits = limits_of([("pipeline_stages", 2), ("recompute", 3), ("*.query.matmul", "m/2,n/4")])
    found = best_plan(network(graph_at(16, None), graph_at), Request(A2, 16, 16, 512, 1 << 60, limits=limits))
    graph = graph_at(16 // found.micro_batch_num, None)
    given = {found.strategies[op.name].inputs for op in graph.ops if is_called(op, "query.matmul")}
    assert found.pipeline_stages == 2 and len(found.settings.recompute) == 3
    assert given == {((2, 1), (4, 1))}


def test_context_parallelism_as_pinned():
    for number in (1, 4):
        found = planned(device_num=4, limits=limits_of([("context_parallel", number)]))
        assert found.context_parallel == number
