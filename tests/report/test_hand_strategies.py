"""The price of strategies that people write by hand."""

from pathlib import Path

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.plan_price import price_plan
from ms_symtensor.cost.runtime import runtime_of
from ms_symtensor.cost.step import price
from ms_symtensor.models import Model, resolve
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings
from ms_symtensor.report.alternatives import priced

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("model", ["llama2_7b", "deepseek_v3"])
def test_few_blocks_have_the_price_of_all(model):
    graph = build_graph(dimensions_of(model, num_layers=11, batch_size=8))
    recompute = dict.fromkeys(graph.blocks[:5], Recompute())
    settings = Settings(8, optimizer_level=OptimizerLevel.LEVEL1, recompute=recompute, enable_alltoall=True)
    by_hand = Model(model, graph, 8, 4096, {"model": model, "num_layers": "11", "batch_size": "8"}).by_hand(settings)
    found = priced(graph, by_hand, A2)
    assert found
    for one in found:
        stage = by_hand[one.name]
        whole = price(graph, stage, partition(graph, stage), A2)
        assert one.step_time_s == pytest.approx(whole.step_time_s, rel=1e-12)
        assert one.peak_memory_B == whole.peak_memory_B


@pytest.mark.parametrize(("runtime", "hide"), [("mindspore_graph", "gradients,weights"), ("megatron", "")])
def test_they_are_priced_as_the_plan_beside_them_is(runtime: str, hide: str) -> None:
    graph = build_graph(dimensions_of("llama2_7b", num_layers=5, batch_size=8))
    model = Model("llama2_7b", graph, 8, 4096, {"model": "llama2_7b", "num_layers": "5", "batch_size": "8"})
    by_hand = model.by_hand(Settings(8, optimizer_level=OptimizerLevel.LEVEL1))
    found = priced(graph, by_hand, A2, runtime_of(runtime, hide))
    assert {one.name: one.step_time_s for one in found} == pytest.approx(
        {
            name: price_plan(graph, [stage], None, A2, runtime_of(runtime, hide)).step_time_s
            for name, stage in by_hand.items()
        }
    )
    assert found[0].step_time_s < priced(graph, by_hand, A2)[0].step_time_s


@pytest.mark.parametrize("recomputes", [False, True])
def test_few_periods_of_blocks_have_the_price_of_all(recomputes: bool) -> None:
    model = resolve(str(Path(__file__).parents[1] / "data/configs/gpt_oss_20b.json"), 8, 256)
    recompute = dict.fromkeys(model.graph.blocks if recomputes else (), Recompute())
    by_hand = model.by_hand(Settings(8, optimizer_level=OptimizerLevel.LEVEL1, recompute=recompute))
    fastest = priced(model.graph, by_hand, A2)[0]
    stage = by_hand[fastest.name]
    whole = price(model.graph, stage, partition(model.graph, stage), A2)
    assert fastest.step_time_s == pytest.approx(whole.step_time_s, rel=1e-12)
    assert fastest.peak_memory_B == whole.peak_memory_B
