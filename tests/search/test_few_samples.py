"""Few samples for many devices: in stages too, what a copy of the model is cut by besides has two axes."""

import math
from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.stages.network import network

A2 = load("atlas_800t_a2")
SEQUENCE = 32768


def planned(name, device_num, batch, *pins):
    config = dimensions_of(name, batch_size=batch, seq_length=SEQUENCE)

    def graph_at(size, layers):
        return build_graph(replace(config, batch_size=size, num_layers=layers or config.num_layers))

    limit_B = int(A2.device.hbm_usable_B)
    request = Request(A2, device_num, batch, SEQUENCE, limit_B, name, limits=limits_of(pins))
    return best_plan(network(graph_at(batch, None), graph_at), request)


@pytest.mark.matrix
def test_sequences_and_weights_are_cut_within_stages():
    found = planned("llama3_70b", 512, 32)
    assert found.pipeline_stages > 1 and min(found.context_parallel, found.model_parallel) > 1
    every = (found.data_parallel, found.model_parallel, found.context_parallel, found.pipeline_stages)
    assert math.prod(every) == 512
    assert found.search.optimality_gap < 0.2
    for name, times in (("model_parallel", 1.02), ("context_parallel", 1.2)):
        pinned = planned("llama3_70b", 512, 32, (name, 1))
        assert pinned.prediction.step_time_s > times * found.prediction.step_time_s


@pytest.mark.parametrize("context, model", ((4, 8), (8, 4)))
def test_all_degrees_may_be_pinned(context, model):
    pins = ("pipeline_stages", 4), ("context_parallel", context), ("model_parallel", model)
    found = planned("llama3_8b", 256, 16, *pins)
    assert (found.pipeline_stages, found.context_parallel, found.model_parallel) == (4, context, model)
    assert found.data_parallel == 2


def test_attention_leaves_devices_idle_where_a_sample_has_more_of_them_than_heads():
    found = planned("llama3_8b", 64, 4, ("context_parallel", 1))
    assert found.context_parallel == 1 and found.model_parallel > 8
