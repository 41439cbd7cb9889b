"""A network as it is on chosen stages and micro-batches, against the search that chooses them."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.search.fixed_pipeline import fixed_pipeline
from ms_symtensor.search.stages.network import network

A2 = load("atlas_800t_a2")
CONFIG = dimensions_of("llama2_7b", num_layers=6, seq_length=2048, batch_size=2)
SHORT_OF_MEMORY_B = int(9 * GIB)
PINNED = {"pipeline_stages": 2, "micro_batch_num": 4, "pp_interleave_num": 1}


def request(**changes):
    return replace(Request(A2, 4, 8, 2048, int(A2.device.hbm_usable_B)), **changes)


def graph_at(batch, layers):
    return build_graph(replace(CONFIG, batch_size=batch, num_layers=layers or CONFIG.num_layers))


@pytest.mark.parametrize("limit_B", [int(A2.device.hbm_usable_B), SHORT_OF_MEMORY_B])
def test_it_is_as_fast_as_what_the_whole_search_finds(limit_B):
    question = request(limit_B=limit_B)
    found = fixed_pipeline(graph_at(2, None), question, 2, 4)
    of_all = best_plan(network(graph_at(8, None), graph_at), replace(question, limits=Limits(PINNED, PINNED)))
    assert found.prediction.step_time_s == pytest.approx(of_all.prediction.step_time_s, rel=0.01)
    assert found.prediction.step_time_s <= (1 + found.search.optimality_gap) * of_all.prediction.step_time_s
    assert found.pipeline.micro_batch_num == 4 and found.pipeline.layer_num == 6
    assert found.prediction.fits and found.graph_hash == build_graph(CONFIG).hash
    assert not found.fixed  # nothing but how the network is built


def test_blocks_are_recomputed_in_part():
    found = fixed_pipeline(graph_at(2, None), request(limit_B=SHORT_OF_MEMORY_B), 2, 4)
    assert any(way.in_part for way in found.settings.recompute.values())


def test_what_cannot_be_is_told():
    graph = build_graph(CONFIG)
    with pytest.raises(InputError, match="micro_batch_num = 4 is how .* is built and run: leave micro_batch_num out"):
        fixed_pipeline(graph, request(limits=Limits({"micro_batch_num": 8}, {})), 2, 4)
    parameters = (replace(p, requires_grad=not p.name.startswith("layers.3.")) for p in graph.parameters)
    unlike = replace(graph, parameters=tuple(parameters))
    with pytest.raises(
        InputError, match="1 blocks like no others, none of which repeats or which stand between equal ones"
    ):
        fixed_pipeline(unlike, request(), 2, 4)
    with pytest.raises(InputError, match="pipeline_stages = 3: 3 stages do not divide 4 devices"):
        fixed_pipeline(graph, request(), 3, 4)
    with pytest.raises(
        InfeasibleError,
        match=r"nothing found that fits 0\.1 GiB on 4 devices with .*a device of stage [01] needs .*the largest tensor: ",
    ):
        fixed_pipeline(graph, request(limit_B=1 << 27), 2, 4)


def test_level2_is_not_combined_with_gradients_that_add_up_on_one_stage():
    level2 = Limits({"optimizer_level": 2}, {"optimizer_level": 2})
    graph = build_graph(CONFIG)
    with pytest.raises(InputError, match="level2 is not for micro-batches on one stage"):
        fixed_pipeline(graph, request(limits=level2), 1, 4)
    assert fixed_pipeline(graph, request(limits=level2), 2, 4).settings.optimizer_level == 2
