import pytest

from ms_symtensor.cost.configuration import ALL, AttentionKernel, Part
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers import mindformers

# github.com/Ascend/MindSpeed-LLM@96f103fcda, examples/aquila/pretrain_aquila_7B.sh
MEGATRON = {
    "group": "MG|aquila-7b|8|2048", "model": "Aquila-7B", "framework": "ModelLink/MindSpeed-LLM(Megatron)",
    "phase": "pretrain", "device": "Atlas 900 A2 PODc", "n_devices": 8, "dp": 8, "tp": 1, "pp": 1, "vpp": "", "ep": 1,
    "cp": 1, "sp": "N", "micro_batch": 2, "num_micro": 4, "global_batch": 64, "seq_len": 2048, "recompute": "none",
    "zero": "ZeRO-2", "other": "use-flash-attn fp16=| use-fused-rmsnorm", "hidden": 4096, "layers": 32, "heads": 32,
    "kv_heads": 32, "ffn": 11008, "vocab": 100008, "experts": "", "topk": "", "tok_s_dev": 3644.92, "step_s": 4.4949,
    "mfu_pct": "", "peak_mem_MB": "", "status": "ok", "date": "2024-06-01", "config_check": "verified(tok*n*step=gbs*seq)",
}  # fmt: skip
MINDFORMERS = {
    **MEGATRON, "group": "MS|glm4-9b|8|8192", "model": "finetune_glm4_9b", "framework": "MindFormers(MindSpore)", "dp": 2,
    "pp": 4, "sp": "Y", "micro_batch": 1, "global_batch": 128, "seq_len": 8192, "layers": 40, "kv_heads": 2,
    "recompute": "recompute=[6, 3, 2, 3];recompute_slice_activation=True", "zero": "ZeRO1/2-like (enable_parallel_optimizer)",
    "other": "micro_batch_interleave_num=1;offset=[-1, 0, 1, 0];dtype=bfloat16;FA=True;max_mem=58GB",
    "tok_s_dev": 2339.0, "step_s": "", "config_check": "yaml linked by card at same commit",
}  # fmt: skip


def test_a_row_of_mindspeed(read_rows) -> None:
    (case,) = read_rows(MEGATRON).cases
    assert case.measured.step_time_s == pytest.approx(64 * 2048 / (3644.92 * 8))
    spread = case.configuration
    assert (spread.framework, spread.optimizer_level, spread.precision) == (
        "mindspeed",
        OptimizerLevel.LEVEL2,
        "float16",
    )
    assert spread.micro_batch_num == 4 and spread.fused_norm
    assert case.device == "atlas_800t_a2"


def test_a_row_of_mindformers(read_rows) -> None:
    (case,) = read_rows(MINDFORMERS).cases
    spread = case.configuration
    assert (spread.framework, spread.optimizer_level) == ("mindspore", OptimizerLevel.LEVEL1)
    assert spread.layers_on_stage == (9, 10, 11, 10)
    assert spread.recomputation.blocks == (6, 3, 2, 3) and spread.recomputation.shard_kept
    assert spread.attention is AttentionKernel.FLASH


def test_the_slide_is_read_under_assumptions(read_rows) -> None:
    slide = {"framework": "MindSpore", "model": "DeepSeek-V3 671B", "n_devices": 64, "config_check": "slide", "hidden": "",
             "layers": "", "heads": "", "micro_batch": "", "seq_len": "", "tok_s_dev": "", "step_s": ""}  # fmt: skip
    found = read_rows({**MEGATRON, **slide}, {"dp": 8, "tp": 8, "mfu_pct": 26.84}, {"dp": 64, "tp": 1, "status": "OOM"})
    first, second = found.cases
    assert first.measured.mfu == pytest.approx(0.2684) and first.measured.step_time_s is None
    assert second.measured.fits is False
    assert {case.configuration.device_num for case in found.cases} == {64}
    assert {case.configuration.global_batch_size for case in found.cases} == {512}


def test_reasons(read_rows) -> None:
    found = read_rows(
        MEGATRON,
        {"config_check": "mismatch"},
        {"phase": "lora"},
        {"micro_batch": ""},
        {"framework": "DeepSpeed"},
        {"other": "swap-attention"},
        {"device": "Ascend 910A 32GB class"},
    )
    assert found.reasons() == {
        "LoRA: most weights are frozen": 1,
        "config_check is mismatch": 1,
        "micro_batch is not given": 1,
        "no reader for framework 'DeepSpeed'": 1,
        "swap-attention: activations move to the host": 1,
    }
    assert [case.device for case in found.cases] == ["ascend910a"]


def test_settings_of_mindformers() -> None:
    settings = mindformers.settings_of("recompute=True;select_recompute=[1, 0]", "offset=0;dtype=float16;FA=None")
    found = mindformers.recomputation(settings, stages=2)
    assert found.blocks == (ALL,) and found.parts == {Part.ACTIVATION_FUNCTION}
    assert mindformers.layers_on_stage(settings, 40, 2) == ()
    assert mindformers.attention(settings) is AttentionKernel.PLAIN
    assert mindformers.precision(settings) == "float16"
    with pytest.raises(UnusableRowError, match="one number per stage"):
        mindformers.layers_on_stage(mindformers.settings_of("offset=[1, 0, -1]"), 40, 2)
    with pytest.raises(UnusableRowError, match="a list of layers that is none"):
        mindformers.recomputation(mindformers.settings_of("recompute=[1, x]"), 2)
