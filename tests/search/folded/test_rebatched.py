"""A deep network at another batch is what its builder makes of it."""

from dataclasses import replace

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.search.folded.batches import rebatched
from ms_symtensor.search.folded.folding import fold, shorten
from ms_symtensor.search.stages.network import network


@pytest.mark.parametrize("model", PUBLISHED)
def test_equals_the_network_built_at_that_batch(model):
    dense = 3 if model == "deepseek_v3" else 0
    config = dimensions_of(model, batch_size=8, num_layers=dense + 5)

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    of = network(graph_at(8, None), graph_at)
    assert of.graph_at(8) == graph_at(8, None)
    assert of.graph_at(2) == graph_at(2, None)
    assert of.graph_at(2).hash == graph_at(2, None).hash
    few = graph_at(2, dense + 4)
    assert of.short(2, 4) == shorten(few, fold(few), 4)


def test_a_kind_of_blocks_that_the_short_network_lacks():
    config = dimensions_of("deepseek_v3", batch_size=2, num_layers=6)
    whole, dense = build_graph(config), build_graph(replace(config, num_layers=3))
    assert rebatched(whole, fold(whole), dense) is None
