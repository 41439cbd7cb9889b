"""A network as it is on chosen stages and micro-batches, against the search that chooses them."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.asked.limits import Limits
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.fixed_pipeline import fixed_pipeline
from ms_symtensor.search.pipelined import pipelined_plan, plan_of
from ms_symtensor.search.stages.network import network

A2 = load("atlas_800t_a2")
CONFIG = dimensions_of("llama2_7b", num_layers=6, seq_length=512, batch_size=2)
PINNED = {"pipeline_stages": 2, "micro_batch_num": 4, "pp_interleave_num": 1}


def request(**changes):
    return replace(Request(A2, 4, 8, 512, int(A2.device.hbm_usable_B)), **changes)


def test_it_is_as_fast_as_what_the_whole_search_finds():
    def graph_at(batch, layers):
        return build_graph(replace(CONFIG, batch_size=batch, num_layers=layers or CONFIG.num_layers))

    found = fixed_pipeline(graph_at(2, None), request(), 2, 4)
    of, pinned = network(graph_at(8, None), graph_at), request(limits=Limits(PINNED, PINNED))
    whole = pipelined_plan(of, pinned)
    of_all = plan_of(of, pinned, whole.whole, whole, 0.0)
    assert found.prediction.step_time_s == pytest.approx(of_all.prediction.step_time_s, rel=0.01)
    assert found.pipeline.micro_batch_num == 4 and found.pipeline.layer_num == 6
    assert found.prediction.fits and found.graph_hash == build_graph(CONFIG).hash


def test_what_cannot_be_is_told():
    graph = build_graph(CONFIG)
    with pytest.raises(InputError, match="3 pipeline stages for 4 devices"):
        fixed_pipeline(graph, request(), 3, 4)
    with pytest.raises(
        InfeasibleError,
        match=r"nothing found that fits 0\.1 GiB on 4 devices: .*a device of stage [01] needs .*the largest tensor: ",
    ):
        fixed_pipeline(graph, request(limit_B=1 << 27), 2, 4)


def test_level2_is_not_combined_with_gradients_that_add_up_on_one_stage():
    level2 = Limits({"optimizer_level": 2}, {"optimizer_level": 2})
    graph = build_graph(CONFIG)
    with pytest.raises(InputError, match="level 1 it does"):
        fixed_pipeline(graph, request(limits=level2), 1, 4)
    assert fixed_pipeline(graph, request(limits=level2), 2, 4).settings.optimizer_level == 2
