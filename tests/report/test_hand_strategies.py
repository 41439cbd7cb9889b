"""The price of strategies that people write by hand."""

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.models import Model
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
