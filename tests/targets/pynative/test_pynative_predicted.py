"""Collectives, units and activations of MindFormers' PyNative mode, predicted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.pynative import MODELS, disagreements, traced
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.calls import Call
from ms_symtensor.targets.mindformers_pynative.checks import refusal
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, Recompute, degrees_of
from ms_symtensor.targets.mindformers_pynative.kept import kept_B
from ms_symtensor.targets.mindformers_pynative.parameters import units_of
from ms_symtensor.targets.mindformers_pynative.predicted import calls_of, context_calls_of
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, shape_of
from tests.targets.pynative.test_pynative_audit import needs_mindformers


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


QWEN: ModelShape = shape_of(read(MODELS["qwen3"])["model"])
DEEPSEEK: ModelShape = shape_of(read(MODELS["deepseek_v3"])["model"])


def test_qwen3_on_four_ranks_of_tensor_parallelism_as_it_was_traced() -> None:
    found = calls_of(QWEN, Degrees(32, tensor=4, global_batch=8), 0)
    assert found == {
        Call("forward", "all_gather", "bfloat16", 10_485_760, 4): 129,
        Call("forward", "reduce_scatter", "bfloat16", 41_943_040, 4): 128,
        Call("forward", "reduce_scatter", "float32", 83_886_080, 4): 1,
        Call("forward", "all_reduce", "float32", 16_384, 4): 3,
        Call("backward", "all_gather", "bfloat16", 10_485_760, 4): 128,
        Call("backward", "all_gather", "float32", 20_971_520, 4): 1,
        Call("backward", "reduce_scatter", "bfloat16", 41_943_040, 4): 129,
    }


def test_experts_get_a_safe_row_each_and_every_token_as_often_as_it_is_routed() -> None:
    degrees = Degrees(1024, tensor=4, expert=64, global_batch=1024)
    rows = (4096 // 4 + 256) * 8
    found = calls_of(DEEPSEEK, degrees, 0)
    assert (
        found[Call("forward", "all_to_all", "bfloat16", rows * 7168 * 2, 64)] == 2 * 59
    )  # 58 layers and the predicted one
    without = calls_of(DEEPSEEK, replace(degrees, safe_tokens=False), 0)
    assert without[Call("forward", "all_to_all", "bfloat16", 4096 // 4 * 8 * 7168 * 2, 64)] == 2 * 59


def test_a_whole_layer_repeats_its_forward_calls_and_a_module_all_but_its_last() -> None:
    degrees = Degrees(32, tensor=4, global_batch=8)
    layer = replace(degrees, recompute=Recompute(((0, 0),)))
    module = replace(degrees, recompute=Recompute((), (("mlp", ((0, 0),)),)))
    assert {call.kind: n for call, n in calls_of(QWEN, layer, 0).items() if call.phase == "recompute"} == {
        "all_gather": 2,
        "reduce_scatter": 2,
    }
    assert {call.kind: n for call, n in calls_of(QWEN, module, 0).items() if call.phase == "recompute"} == {
        "all_gather": 1
    }


def test_what_experts_received_is_kept_where_it_is_not_sent_again() -> None:
    again = {"recompute": {"mode": "full", "full_recompute_layer": ["0-61"]}}
    slots = {"mlp.experts.input.alltoallsingle": ["0-9"], "mlp.experts.output.alltoallsingle": ["5-9"]}
    degrees = replace(Degrees(1024, expert=64, global_batch=1024), recompute=degrees_of(again, 1024).recompute)
    again["recompute"]["exclude_op"] = slots
    keeping = replace(degrees, recompute=degrees_of(again, 1024).recompute)
    sent = Call("recompute", "all_to_all", "bfloat16", (4096 + 256) * 8 * 7168 * 2, 64)
    before, after = (calls_of(DEEPSEEK, one, 0) for one in (degrees, keeping))
    dense = DEEPSEEK.experts.first_dense if DEEPSEEK.experts else 0
    spared = (10 - dense) + 5
    assert before - after == {sent: spared}
    assert kept_B(DEEPSEEK, keeping, 0) - kept_B(DEEPSEEK, degrees, 0) == spared * sent.size_B


@pytest.mark.parametrize("given", [["mlp"], {"mlp": ["a-b"]}])
def test_what_are_no_layers_is_told(given: Any) -> None:
    with pytest.raises(InputError, match="layers"):
        degrees_of({"recompute": {"mode": "full", "full_recompute_layer": ["0"], "exclude_op": given}}, 8)


def test_units_hold_all_parameters_once() -> None:
    degrees = Degrees(1024, tensor=4, expert=64, global_batch=1024)
    (dense, experts) = (
        [unit for unit in units_of(DEEPSEEK, degrees, 0) if (unit.name == "GroupedMLP") == routed]
        for routed in (False, True)
    )
    assert {unit.shards for unit in dense} == {256}
    assert {unit.shards for unit in experts} == {16}
    everywhere = sum(unit.gathered_B() for unit in experts) * 64
    assert everywhere == 59 * 256 * 3 * 7168 * 2048 * 2


def test_recomputation_keeps_the_input_of_a_layer() -> None:
    degrees = Degrees(32, tensor=4, global_batch=8)
    less = kept_B(QWEN, degrees, 0) - kept_B(QWEN, replace(degrees, recompute=Recompute(((0, 0),))), 0)
    assert less == pytest.approx((1 - 1024 * 5120 * 2 / 2**29) * 2**29 * 0.66, rel=0.1)


@pytest.mark.parametrize(
    ("shape", "changes", "words"),
    [
        (QWEN, {"tensor": 16}, "8 groups of keys do not divide"),
        (QWEN, {"pipeline": 2}, "takes no stages"),
        (QWEN, {"expert": 2}, "without experts"),
        (QWEN, {"context": 2}, "use_attn_mask_compression"),
        (QWEN, {"global_batch": 7}, "global batch 7"),
        (QWEN, {"dense_shard": 3}, "dense_fsdp_shard_size 3"),
        (DEEPSEEK, {"pipeline": 8}, "61 layers do not divide by 8 stages"),
        (DEEPSEEK, {"expert": 48}, "expert_parallel 48"),
        (DEEPSEEK, {"shard": 3}, "is not 64 ranks"),
        (DEEPSEEK, {"pipeline": 2, "schedule": "interleaved_1f1b", "stage_layers": (((0, 30),), ((31, 60),))}, "above 1"),
    ],
)  # fmt: skip
def test_what_mindformers_refuses_is_refused(shape: ModelShape, changes: dict[str, Any], words: str) -> None:
    degrees = replace(Degrees(64, global_batch=64), **changes)
    assert words in refusal(shape, degrees)
    assert not refusal(shape, Degrees(64, global_batch=64))


def test_hybrid_context_parallelism_exchanges_and_gathers() -> None:
    shape = replace(QWEN, compressed_mask=True)
    degrees = Degrees(64, tensor=2, context=4, context_method="hybrid", ulysses=2, global_batch=8)
    forward = {call.kind: n for call, n in context_calls_of(shape, degrees, 0).items() if call.phase == "forward"}
    assert forward == {
        "all_to_all": 2 * 64,
        "all_gather": 2 * 64,
    }  # keys and values are alike in bytes; so are query and output


def test_another_family_is_named() -> None:
    with pytest.raises(InputError, match="model_type 'glm4'"):
        shape_of({"model_type": "glm4"})


def test_a_file_is_read_with_mindformers_defaults() -> None:
    degrees = degrees_of({"parallelism": {"pipeline_parallel_layers_per_stage": ["0-1,4", "2-3,5"]}}, 8)
    assert degrees.stage_layers == (((0, 1), (4, 4)), ((2, 3), (5, 5)))
    assert (degrees.data, degrees.shard, degrees.safe_tokens) == (8, -1, True)


@pytest.mark.matrix
@needs_mindformers
@pytest.mark.parametrize("model", MODELS)
def test_predicted_is_what_is_traced(model: str) -> None:
    for row in traced(model, 8, seed=3):
        assert row.equal, row
        assert row.kept_ratio == pytest.approx(1, abs=0.05), row


@pytest.mark.pynative
@needs_mindformers
def test_the_mirror_of_the_checks_says_what_the_classes_say() -> None:
    checked, wrong = disagreements()
    assert checked >= 2800
    assert not wrong
