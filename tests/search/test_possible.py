"""What numbers alone refuse the search does not find either; what they recommend it finds."""

from dataclasses import replace
from functools import cache

import pytest

from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.search.best import _searched, best_plan
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.possible import require_devices, require_numbers, require_possible
from ms_symtensor.search.stages.network import Network, network
from tests.strategy.plans import small

A2 = load("atlas_800t_a2")
BATCH = 8


@cache
def net(name: str) -> Network:
    config = small(name, num_layers=4, batch_size=BATCH)

    def at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    return network(at(BATCH, None), at)


def question(name: str, pins: str, device_num: int) -> Request:
    pairs = [tuple(one.split("=")) for one in pins.split()]
    return Request(A2, device_num, BATCH, 128, 1 << 60, name, limits=limits_of(pairs))


@pytest.mark.parametrize(
    "name, device_num, pins",
    (
        ("llama2_7b", 8, "pipeline_stages=8"), ("llama2_7b", 8, "pipeline_stages=3"), ("llama2_7b", 24, "pipeline_stages=2"),
        ("llama2_7b", 4, "micro_batch_num=3"), ("llama2_7b", 4, "pipeline_stages=4 micro_batch_num=2"),
        ("llama2_7b", 4, "model_parallel=3"), ("llama2_7b", 4, "data_parallel=4 model_parallel=2"),
        ("llama2_7b", 4, "pipeline_stages=2 model_parallel=4"), ("llama2_7b", 4, "pipeline_stages=2 context_parallel=4"),
        ("llama2_7b", 4, "data_parallel=4 micro_batch_num=4"), ("llama2_7b", 8, "pipeline_stages=4 data_parallel=4"),
        ("llama2_7b", 4, "pipeline_stages=4 pp_interleave_num=2"), ("gpt2_xl", 4, "pp_interleave_num=8"),
        ("llama2_7b", 4, "pipeline_stages=2 optimizer_level=3"), ("llama2_7b", 4, "sequence_parallel=yes model_parallel=1"),
        ("qwen3_30b_a3b", 4, "expert_parallel=3"), ("qwen3_30b_a3b", 4, "pipeline_stages=2 expert_parallel=4"),
    ),
)  # fmt: skip
def test_what_is_refused_is_found_by_no_search(name, device_num, pins):
    of, request = net(name), question(name, pins, device_num)
    with pytest.raises(InputError, match="nearest that work"):
        require_possible(of.graph_at(BATCH), request)
    try:
        found = _searched(of, request, float("inf"), lambda _: None).whole
    except SymTensorError:  # an operator has no layout
        found = None
    assert found is None


@pytest.mark.parametrize(
    "name, device_num, pins",
    (
        ("llama2_7b", 8, "pipeline_stages=4"), ("llama2_7b", 4, "data_parallel=2 model_parallel=2"),
        ("llama2_7b", 4, "pipeline_stages=2 pp_interleave_num=2 micro_batch_num=4"), ("qwen3_30b_a3b", 4, "expert_parallel=2"),
        ("llama2_7b", 4, "data_parallel=2 micro_batch_num=4"), ("llama2_7b", 8, "context_parallel=8"),
        ("llama2_7b", 4, "optimizer_level=2 pipeline_stages=2 sequence_parallel=yes"),
    ),
)  # fmt: skip
def test_what_is_recommended_is_found(name, device_num, pins):
    found = best_plan(net(name), question(name, pins, device_num))
    for one in pins.split():
        degree, _, number = one.partition("=")
        if degree not in ("optimizer_level", "sequence_parallel"):
            assert getattr(found, degree) == int(number)


def test_what_is_known_before_the_network_is_told_before_it():
    with pytest.raises(InputError, match="4 × 4 = 16 devices, not 8"):
        require_numbers(A2, 8, limits_of([("data_parallel", 4), ("model_parallel", 4)]))
    with pytest.raises(InputError, match="3 micro-batches do not divide a global batch of 16 samples"):
        require_numbers(A2, 8, limits_of([("micro_batch_num", 3)]), 16)
    require_numbers(A2, 8, limits_of([("micro_batch_num", 3), ("pipeline_stages", 2)]))
    with pytest.raises(InputError, match="global_batch_size is -1: give a positive whole number"):
        require_numbers(A2, 8, limits_of([("model_parallel", 8)]), -1)
    with pytest.raises(
        InputError, match="global_batch_size is 100000000000000000000: a step has at most 17179869184 samples"
    ):
        require_numbers(A2, 8, limits_of([("model_parallel", 8)]), 10**20)


@pytest.mark.parametrize("device_num, near", ((3, "2 or 4"), (6, "4 or 8"), (12, "8 or 16"), (100, "96 or 104")))
def test_devices_of_which_mindspore_forms_no_groups(device_num, near):
    with pytest.raises(InputError, match=f"on 1, 2, 4 or a multiple of 8 devices: give {near}$"):
        require_devices(A2, device_num)
