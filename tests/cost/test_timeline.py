"""The step's timeline: the published formula of a pipeline, and what gradients add."""

from dataclasses import replace

import numpy as np
import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.configuration import Bytes, Configuration, Transformer
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.prediction import predict
from ms_symtensor.cost.shapes import shapes_of
from ms_symtensor.cost.training_memory import in_flight
from ms_symtensor.program.settings import OptimizerLevel

A100 = load("a100_80g")
MODEL = Transformer(4096, 32, 32, 32, 11008, 32000)
BASE = Configuration(MODEL, 4096, micro_batch_num=32)


@pytest.mark.parametrize("stages, chunks", [(2, 1), (4, 1), (4, 2), (8, 4)])
def test_the_pipeline_waits_as_long_as_it_is_deep(stages, chunks):
    # Narayanan et al., arXiv 2104.04473, section 2.2: (p - 1) / (v m) of the work, here with the head on the last stage.
    few, many = (
        predict([replace(BASE, pipeline_stages=stages, interleave=chunks, micro_batch_num=m)], A100).seconds
        for m in (32, 64)
    )
    each = (many.step_time_s - few.step_time_s)[0] / 32
    first = few.step_time_s[0] - 32 * each - few.optimizer_s[0]
    assert first < (stages - 1) / chunks * each
    assert first == pytest.approx((stages - 1) / chunks * each, rel=0.35)


def test_a_last_stage_that_is_never_idle_begins_when_one_chunk_of_each_stage_before_it_has_gone_forward():
    # Its many blocks make it the slowest stage, and the one whose gradients are summed last.
    spread = replace(BASE, data_parallel=64, pipeline_stages=4, layers_on_stage=(4, 4, 4, 20), overlap_gradients=False)
    whole, chunk = predict([replace(spread, interleave=v) for v in (1, 4)], A100).seconds.bubble_s
    assert chunk == pytest.approx(whole / 4, rel=0.2)  # but what a chunk sends is as large as what a stage does


def test_hidden_sums_cost_less_than_those_behind_the_backward_pass():
    spread = replace(BASE, data_parallel=64, micro_batch_num=4)
    hidden, behind = predict([spread, replace(spread, overlap_gradients=False)], A100).seconds.gradient_s
    assert 0 < hidden < behind


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_tensor_ranks_wait_less_where_sums_run_under_products(sequence_parallel):
    # Megatron's and nanotron's linear layers: only those of the backward pass, only beside products, never for nothing.
    rows = [replace(BASE, model_parallel=8, sequence_parallel=sequence_parallel)]
    waits, runs = predict([*rows, replace(rows[0], overlap_tensors=True)], A100).seconds.communication_s
    assert 0.4 * waits < runs < 0.9 * waits
    alone = predict([BASE, replace(BASE, overlap_tensors=True)], A100).step_time_s
    assert alone[0] == alone[1]


def test_mindspore_gathers_weights_in_the_type_that_products_read():
    waits = {"overlap_gradients": False, "overlap_weights": False}
    spread = replace(BASE, data_parallel=8, optimizer_level=OptimizerLevel.LEVEL1, **waits)
    rows = [
        replace(spread, framework=framework, bytes_per_parameter=Bytes(weight, 0, 4, 8))
        for framework in ("mindspore", "megatron")
        for weight in (2, 4)
    ]
    narrow, wide, as_they_are, twice = predict(rows, A100).seconds.gradient_s
    assert narrow == wide == as_they_are < twice


def test_sharded_states_make_the_update_shorter():
    spread = replace(BASE, data_parallel=8)
    rows = [replace(spread, optimizer_level=OptimizerLevel(level)) for level in (0, 1)]
    whole, shared = predict(rows, A100).seconds.optimizer_s
    assert whole == pytest.approx(8 * shared)


def test_a_device_that_is_full_of_fragments_takes_longer():
    fits = replace(BASE, data_parallel=8, micro_batch_size=4, micro_batch_num=4)
    found = predict([fits], A100)
    used_B, fragments_B = found.bytes.total_B[0, 0], found.bytes.fragments_B[0, 0]
    roomy, tight = (
        replace(A100, device=replace(A100.device, hbm_usable_B=usable_B, hbm_capacity_B=1.1 * usable_B))
        for usable_B in (2 * used_B, used_B + fragments_B / 4)
    )
    assert predict([fits], tight).step_time_s[0] > predict([fits], roomy).step_time_s[0]


def test_micro_batches_in_flight():
    rows = [replace(BASE, pipeline_stages=4), replace(BASE, pipeline_stages=4, interleave=2)]
    found = in_flight(Network(shapes_of(rows)))
    np.testing.assert_allclose(found[0], [4, 3, 2, 1])
    np.testing.assert_allclose(found[1], [5.5, 4.5, 3.5, 2.5])  # (2 (P - i - 1) + (v - 1) P + 1) / v chunks
