import pytest

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import Part, in_parts

# github.com/pytorch/torchtitan@b5bcd76c66, benchmarks
ROW = {
    "group": "TT|8B|8", "model": "Llama3.1-8B", "hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336,
    "vocab": 128256, "experts": "", "topk": "", "device": "H100", "n_devices": 8, "dp": 8, "tp": 1, "pp": 1, "vpp": "",
    "ep": "", "cp": "", "fsdp": 8, "micro_batch": 2, "num_micro": "", "global_batch": 16, "seq_len": 8192, "precision": "",
    "recompute": "selective", "zero": "ZeRO3", "other": "FSDP+compile", "tok_s_dev": 6667, "step_ms": "",
    "peak_mem_GB": 77.0, "status": "ok",
}  # fmt: skip


def test_torchtitan(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    spread = case.configuration
    assert (spread.framework, spread.optimizer_level, spread.compiled) == ("fsdp", OptimizerLevel.LEVEL3, True)
    assert spread.recomputation.blocks == (16,)  # every second block
    assert case.device == "h100_80g"
    assert case.measured.step_time_s == pytest.approx(16 * 8192 / (6667 * 8))
    assert case.measured.peak_memory_B == pytest.approx(77 * 2**30)


def test_other_sources(read_rows) -> None:
    found = read_rows(
        ROW,
        {"group": "KOR|x", "device": "A100-80GB", "zero": "none", "other": "sequence parallel", "step_ms": 1100},
        {"group": "IE|7B", "zero": "ZeRO1 over 8 ranks", "recompute": "none"},
        {"zero": "dist-opt per script", "status": "OOM", "tok_s_dev": "", "peak_mem_GB": ""},
    )  # fmt: skip
    megatron, internevo, failed = (case.configuration for case in found.cases)
    assert megatron.recomputation.parts == in_parts(Part.ATTENTION_CORE) and megatron.sequence_parallel
    assert found.cases[0].measured.step_time_s == pytest.approx(1.1)
    assert found.cases[0].device == "a100_80g"
    assert internevo.optimizer_weight_shard_size == 8
    assert failed.optimizer_level is OptimizerLevel.LEVEL1 and found.cases[2].measured.fits is False


def test_small_models_of_llm_foundry_have_their_published_dimensions(read_rows) -> None:
    small = {"model": "MPT-350m", "hidden": "", "layers": "", "heads": "", "kv_heads": "", "ffn": "", "vocab": 50368}
    model = read_rows(ROW, small).cases[0].configuration.model
    assert (model.hidden_size, model.num_layers, model.num_heads, model.intermediate_size) == (1024, 24, 16, 4096)


def test_llm_foundry_runs_fsdp_at_every_level(read_rows) -> None:
    (case,) = read_rows(ROW | {"group": "LF|1b|8", "zero": "ZeRO2", "other": "act_cpu_offload=False"}).cases
    assert (case.configuration.framework, case.configuration.optimizer_level) == ("fsdp", OptimizerLevel.LEVEL2)


def test_reasons(read_rows) -> None:
    found = read_rows(
        ROW,
        {"hidden": ""},
        {"group": "KOR-mem|x"},
        {"device": "abacus"},
        {"zero": "ZeRO9"},
        {"precision": "fp64"},
        {"recompute": "odd"},
        {"global_batch": ""},
        {"tok_s_dev": "", "peak_mem_GB": ""},
    )
    assert found.reasons() == {
        "memory that was computed, not measured": 1,
        "neither step time nor memory was measured": 1,
        "the batch is not given": 1,
        "the model's dimensions are not given": 1,
        "unknown device 'abacus'": 1,
        "unknown precision 'fp64'": 1,
        "unknown recompute 'odd'": 1,
        "unknown zero 'ZeRO9'": 1,
    }


def test_what_a_note_says_of_launches(read_rows) -> None:
    found = read_rows(ROW | {"note": ""}, {}, {"note": "ran with CUDA_LAUNCH_BLOCKING=1"})
    assert [case.configuration.blocking_launches for case in found.cases] == [False, True]
