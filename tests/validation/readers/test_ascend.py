import pytest

from ms_symtensor.cluster.load import known_clusters
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import (
    ALL,
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    AttentionKernel,
    Part,
    Recomputation,
)
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers import mindformers
from ms_symtensor.validation.readers.devices import cluster_of

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
    assert spread.recomputation.blocks == (6, 3, 2, 3)
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
        {"recompute": "partial"},
        {"device": "H100"},
    )
    assert found.reasons() == {
        "LoRA: most weights are frozen": 1,
        "config_check is mismatch": 1,
        "micro_batch is not given": 1,
        "no cluster file stands for 'H100'": 1,
        "no reader for framework 'DeepSpeed'": 1,
        "recomputation in words": 1,
        "swap-attention: activations move to the host": 1,
    }
    assert [case.device for case in found.cases] == ["ascend910a"]


def test_figures_of_another_configuration_are_left_out(read_rows) -> None:
    copied = {**MINDFORMERS, "tok_s_dev": 815.2059134}
    found = read_rows(copied, {}, {"seq_len": 4096, "global_batch": 64}, {"tok_s_dev": 815.2059135})
    assert found.reasons() == {"the same throughput stands beside another configuration": 2}
    assert len(found.cases) == 1


def test_a_source_that_contradicts_itself_is_left_out(read_rows) -> None:
    found = read_rows({**MINDFORMERS, "note": " seq in card 8192, yaml 4096"}, {}, {"note": ""})
    assert found.reasons() == {"the text and the file of the source differ": 1}


def test_recomputation_in_words(read_rows) -> None:
    found = read_rows(MEGATRON, {"recompute": "full"}, {"recompute": "selective"}, {"recompute": ""})
    full, selective, nothing = (case.configuration.recomputation for case in found.cases)
    assert (full, nothing) == (FULL_RECOMPUTATION, NO_RECOMPUTATION)
    assert dict(selective.parts) == {Part.ATTENTION_CORE: (ALL,)}


def test_widths_that_a_row_leaves_out_are_the_published_ones(read_rows) -> None:
    model = {
        "model": "finetune_llama2_70b_bf16_32p",
        "hidden": 8192,
        "layers": 80,
        "heads": 64,
        "kv_heads": 8,
        "ffn": "",
    }
    large, other = read_rows({**MEGATRON, **model}, {}, {"hidden": 4096}).cases
    assert large.configuration.model.intermediate_size == 28672
    assert other.configuration.model.intermediate_size == 11008  # 8/3 of its width: it is another model

    moe = {"model": "finetune_qwen2_57b", "hidden": 3584, "layers": 28, "heads": 28, "kv_heads": 4, "ffn": "", "experts": 64,
           "topk": 8}  # fmt: skip
    (known,) = read_rows({**MEGATRON, **moe}).cases
    (given,) = read_rows({**MEGATRON, **moe, "moe_ffn": 2560, "shared_experts": 0}).cases
    (first, second) = (case.configuration.model.experts for case in (known, given))
    assert (first.intermediate_size, first.shared_size, second.shared_size) == (2560, 8 * 2560, 0)


def test_tensor_ranks_that_cut_an_expert(read_rows) -> None:
    moe = {"model": "Mixtral-8x7B", "kv_heads": 8, "ffn": 14336, "experts": 8, "topk": 2, "dp": 4, "tp": 2, "ep": 4}
    found = read_rows(
        {**MEGATRON, **moe}, {}, {"other": "moe-tp-extend-ep"}, {"other": "expert-tensor-parallel-size=1"}, {"ep": 8}
    )
    assert [case.configuration.ranks_of_an_expert for case in found.cases] == [2, 1, 1, 1]
    assert [case.configuration.expert_parallel for case in found.cases] == [4, 8, 4, 8]
    (mindformers_,) = read_rows({**MINDFORMERS, **moe, "pp": 1, "other": "FA=True", "recompute": ""}).cases
    assert mindformers_.configuration.ranks_of_an_expert == 2


def settings(text: str, stages: int = 2) -> Recomputation:
    return mindformers.recomputation(mindformers.settings_of(text), stages)


def test_recomputation_of_mindformers() -> None:
    assert settings("recompute=True").blocks == (ALL,)
    assert settings("recompute=[3, 0]").blocks == (3, 0)
    assert settings("recompute=[[1, 0], [2, 1]]").blocks == (3, 1)  # two model chunks per stage
    selected = settings("recompute=[3, 0];select_recompute=[5, 1];select_comm_recompute=[4, 0]")
    # The first blocks of a stage: those that are recomputed as a whole are among them.
    assert dict(selected.parts) == {Part.ACTIVATION_FUNCTION: (2, 1), Part.GATHERS: (1, 0)}
    assert dict(settings("select_recompute=True").parts) == {Part.ACTIVATION_FUNCTION: (ALL,)}
    patterns = r"select_recompute={'feed_forward\.mul': [7, 0], 'feed_forward\.w1\.activation\.silu': [8, 0]}"
    assert dict(settings(patterns).parts) == {Part.ACTIVATION_FUNCTION: (8, 0)}
    listed = r"select_recompute=['input_layernorm\.cast', 'mlp\.activation_func\.mul']"
    assert dict(settings(listed).parts) == {Part.ACTIVATION_FUNCTION: (ALL,), Part.NORM: (ALL,)}
    assert settings("recompute=False") == NO_RECOMPUTATION == settings("")


@pytest.mark.parametrize(
    "text, message",
    [
        ("recompute=[1, x]", "recompute is neither yes, no nor a list"),
        ("recompute=[1, 2, 3]", "recompute is not a list of one number per stage"),
        ("recompute=8", "recompute is not a list of one number per stage"),
        ("select_recompute=['router']", "select_recompute of 'router'"),
        ("recompute=True;mp_comm_recompute=False", "without their collectives"),
        ("parallel_optimizer_comm_recompute=True", "weights are gathered again"),
    ],
)
def test_recomputation_that_is_not_priced(text, message) -> None:
    with pytest.raises(UnusableRowError, match=message):
        settings(text)


def test_settings_of_mindformers() -> None:
    found = mindformers.settings_of("offset=0;dtype=float16;FA=None;vocab_emb_dp=True;micro_batch_interleave_num=2")
    assert mindformers.layers_on_stage(found, 40, 2) == ()
    assert mindformers.attention(found) is AttentionKernel.PLAIN
    assert mindformers.precision(found) == "float16"
    assert mindformers.whole_embedding(found) and mindformers.copies(found) == 2
    offset = mindformers.settings_of("offset=[1, 0]")
    assert mindformers.layers_on_stage(offset, 41, 2) == (21, 20)
    assert mindformers.layers_on_stage(offset, 42, 2, interleave=2) == (22, 20)  # for every run of blocks
    assert mindformers.layers_on_stage(mindformers.settings_of("offset=[[1, 0], [0, 1]]"), 42, 2, 2) == (21, 21)
    with pytest.raises(UnusableRowError, match="one number per stage"):
        mindformers.layers_on_stage(mindformers.settings_of("offset=[1, 0, -1]"), 40, 2)


def test_copies_run_side_by_side(read_rows) -> None:
    (case,) = read_rows({**MINDFORMERS, "other": "micro_batch_interleave_num=4;FA=True"}).cases
    assert (case.configuration.micro_batch_size, case.configuration.micro_batch_num) == (4, 16)


@pytest.mark.parametrize(
    "words, name",
    [
        ("Ascend 910B 64GB class ('NPUs', 8/node)", "atlas_800t_a2"),
        ("Ascend (not stated)", "atlas_800t_a2"),
        ("Atlas 800T A3 (Ascend 910C)", "atlas_800t_a3"),
        ("CloudMatrix384 SuperPod (Ascend 910C)", "cloudmatrix384"),
        ("Ascend 910B3", "atlas_800t_a2_910b3"),
    ],
)
def test_words_for_devices(words, name) -> None:
    assert cluster_of(words) == name and name in known_clusters()
