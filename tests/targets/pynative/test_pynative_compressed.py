"""DeepSeek-V4 in MindFormers' PyNative mode: figures as they were traced, plans, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.pynative import MODELS
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.calls import Call
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, Recompute
from ms_symtensor.targets.mindformers_pynative.kept import kept_B
from ms_symtensor.targets.mindformers_pynative.parameters import units_of
from ms_symtensor.targets.mindformers_pynative.planning import plan, priced, read_config
from ms_symtensor.targets.mindformers_pynative.predicted import calls_of
from ms_symtensor.targets.mindformers_pynative.price import price
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, shape_of
from tests.targets.pynative.test_pynative_audit import changed

FLASH = MODELS["deepseek_v4"]
A3 = load("atlas_800t_a3")
BATCH = {"training": {"global_batch_size": 512}}


def network(*ratios: int, **keys: Any) -> ModelShape:
    """DeepSeek-V4 Flash with so few layers and 64 experts, none of them of multi-token prediction."""
    model = yaml.safe_load(FLASH.read_text())["model"]
    few = {"compress_ratios": [*ratios], "num_hidden_layers": len(ratios), "num_nextn_predict_layers": 0}
    return shape_of(model | few | {"n_routed_experts": 64} | keys)


@pytest.mark.parametrize(
    ("ratio", "tensor", "traced_B"),
    [(0, 1, 10_553_357_892), (4, 1, 26_156_029_508), (128, 1, 11_309_430_468), (0, 2, 8_590_825_028), (4, 2, 24_193_496_644)],
)  # fmt: skip
def test_a_layer_keeps_what_was_traced(ratio: int, tensor: int, traced_B: int) -> None:
    degrees = Degrees(16, tensor=tensor, expert=8, global_batch=64)
    assert kept_B(network(ratio), degrees, 0) == pytest.approx(traced_B, rel=1e-6)


def test_layers_that_are_recomputed_keep_their_streams() -> None:
    degrees = Degrees(16, expert=8, global_batch=64, recompute=Recompute(((0, 1),)))
    shape = network(4, 128)
    less = replace(degrees, recompute=Recompute(((0, 0),)))
    streams_B = 4096 * 4 * 4096 * 2
    assert kept_B(shape, less, 0) - kept_B(shape, degrees, 0) > 10 * streams_B
    assert kept_B(network(4, 128, 4), replace(degrees, recompute=Recompute(((0, 2),))), 0) - kept_B(
        shape, degrees, 0
    ) == pytest.approx(streams_B, rel=1e-6)


def test_two_ranks_of_tensor_parallelism_send_as_they_were_traced() -> None:
    found = calls_of(network(4), Degrees(16, tensor=2, expert=8, global_batch=64), 0)
    assert found == {
        Call("forward", "all_gather", "bfloat16", 4_194_304, 2): 1,
        Call("forward", "all_gather", "bfloat16", 16_777_216, 2): 2,
        Call("forward", "all_gather", "bfloat16", 268_435_456, 2): 1,
        Call("forward", "all_reduce", "float32", 512, 2): 1,
        Call("forward", "all_reduce", "float32", 16_384, 2): 3,
        Call("forward", "all_to_all", "bfloat16", 103_809_024, 8): 2,
        Call("forward", "all_to_all", "float32", 256, 8): 1,
        Call("forward", "reduce_scatter", "float32", 67_108_864, 2): 1,
        Call("backward", "all_gather", "bfloat16", 4_194_304, 2): 1,
        Call("backward", "all_gather", "bfloat16", 16_777_216, 2): 1,
        Call("backward", "all_gather", "float32", 33_554_432, 2): 1,
        Call("backward", "all_reduce", "float32", 512, 2): 1,
        Call("backward", "all_to_all", "bfloat16", 103_809_024, 8): 2,
        Call("backward", "reduce_scatter", "bfloat16", 8_388_608, 2): 1,
        Call("backward", "reduce_scatter", "bfloat16", 33_554_432, 2): 1,
    }


def test_scales_and_biases_of_hyper_connections_stay_whole() -> None:
    (layer,) = (unit for unit in units_of(network(4), Degrees(16, expert=8), 0) if unit.name == "TransformerLayer")
    assert [p.elements for p in layer.parameters if p.whole and p.dtype == "float32"] == [1, 1, 1, 24] * 2
    assert sum(p.elements == 4 * 4096 * 24 and not p.whole for p in layer.parameters) == 2


def test_fused_attention_is_faster_and_keeps_less() -> None:
    degrees = Degrees(64, expert=8, global_batch=64)
    small, fused = network(4, 128), network(4, 128, apply_dsa_kernel_fusion=True)
    assert price(fused, degrees, A3).step_time_s < price(small, degrees, A3).step_time_s
    assert kept_B(fused, degrees, 0) < kept_B(small, degrees, 0) / 2


def test_a_plan_is_written_and_read_again_at_its_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = changed(FLASH, tmp_path, **BATCH), tmp_path / "plan"
    request = ["plan", file, "--device-num", "512", "--cluster", A3.name, "--target", "mindformers-pynative"]
    assert main([*request, "--out", str(out), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (written,) = out.glob("*pynative*.yaml")
    config = read_config(str(written))
    assert priced(config, 512, A3).step_time_s == pytest.approx(data["step_time_s"], rel=1e-9)
    assert data["peak_memory_B"] <= A3.device.hbm_usable_B
    assert config["model"] == yaml.safe_load(FLASH.read_text())["model"]


def test_tensor_parallelism_is_for_those_who_fix_it() -> None:
    config = yaml.safe_load(FLASH.read_text()) | BATCH
    assert plan("flash", config, 512, A3, A3.device.hbm_usable_B).found.degrees.tensor == 1
    assert plan("flash", config, 512, A3, A3.device.hbm_usable_B, {"tensor": 2}).found.degrees.tensor == 2


def test_a_sum_that_mindformers_lacks_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = changed(FLASH, tmp_path, **BATCH, parallelism={"tensor_parallel": 2, "sequence_parallel": True})
    size = ["--target", "mindformers-pynative", "--device-num", "512", "--cluster", A3.name]
    assert main(["mindformers", file, *size, "-o", str(tmp_path / "planned.yaml")]) == 0
    assert "does not sum the gradients of decoder.hc_head" in capsys.readouterr().err
    assert main(["plan", file, *size, "--out", str(tmp_path / "plan")]) == 0
    assert "hc_head" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"compress_ratios": [4, 128]}, "compress_ratios has 2 numbers for 44 layers"),
        ({"compress_ratios": [8] * 44}, "each is 0, 4 or 128"),
        ({"compress_ratios": "4"}, "compress_ratios"),
    ],
)
def test_ratios_that_cannot_be_are_told(keys: dict[str, Any], words: str, tmp_path: Path, capsys: Any) -> None:
    file = changed(FLASH, tmp_path, **BATCH, model=keys)
    request = ["mindformers", file, "--target", "mindformers-pynative", "--device-num", "512", "--cluster", A3.name]
    assert main([*request, "-o", str(tmp_path / "planned.yaml")]) == 2
    assert words in capsys.readouterr().err


def test_a_file_with_context_parallelism_is_planned_without(tmp_path: Path, capsys: Any) -> None:
    file = changed(FLASH, tmp_path, **BATCH, parallelism={"context_parallel": 2})
    request = ["mindformers", file, "--target", "mindformers-pynative", "--device-num", "512", "--cluster", A3.name]
    assert main([*request, "-o", str(tmp_path / "planned.yaml")]) == 0
    assert "as it is: context parallelism of DeepSeek-V4 has no price" in capsys.readouterr().out


def test_fixed_context_parallelism_is_told() -> None:
    config = yaml.safe_load(FLASH.read_text()) | BATCH
    with pytest.raises(InputError, match="context parallelism of DeepSeek-V4"):
        plan("flash", config, 512, A3, A3.device.hbm_usable_B, {"context": 2})
