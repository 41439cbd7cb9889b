import pytest

from ms_symtensor.cost.runtime import Stored
from ms_symtensor.program.settings import OptimizerLevel

# github.com/Ascend/MindSpeed-LLM@6c32be1f6d, tests/pipeline
ROW = {
    "model_key": "h4096-L32-a32-f11008-e|n8|s4096", "name": "llama2_tp2_pp4_vpp2_ptd", "n_devices": 8, "dp": 1, "tp": 2,
    "pp": 4, "vpp": "4.0", "ep": 1, "cp": 1, "mbs": 1, "num_micro": "32.0", "gbs": 32, "seq": 4096, "hidden": 4096,
    "layers": 32, "heads": 32, "kv": "", "ffn": 11008, "experts": "", "topk": "", "moe_ffn": "", "vocab": "",
    "recompute": "recompute-granularity=full recompute-method=block recompute-num-layers=1 enable-recompute-layers-per-pp-rank",
    "zero": "use-distributed-optimizer reuse-fp32-param",
    "features": "sequence-parallel use-flash-attn overlap-grad-reduce bf16 use-fused-rmsnorm", "step_ms": 5634.05,
    "tok_s_dev": 2908.0, "max_alloc_MB": 17654.7, "check": "ok", "date": "2026-06-18",
}  # fmt: skip


def test_a_row(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    spread = case.configuration
    assert (spread.device_num, spread.interleave, spread.micro_batch_num) == (8, 4, 32)
    assert (spread.model.n_kv_heads, spread.model.vocab_size) == (32, 32000)
    assert spread.optimizer_level is OptimizerLevel.LEVEL1
    assert spread.bytes_per_parameter == Stored(weight=2, master=2)
    assert spread.recomputation.blocks == (1,)
    assert spread.framework == "mindspeed"
    assert spread.sequence_parallel and spread.overlap_gradients and not spread.overlap_weights
    assert case.measured.step_time_s == pytest.approx(5.63405)
    assert case.measured.peak_memory_B == pytest.approx(17654.7 * 2**20)


def test_the_loss_of_older_versions_copies_the_logits(read_rows) -> None:
    cases = read_rows(ROW, {"date": "2026-06-18"}, {"date": "2025-06-12"}, {"date": ""}).cases
    assert [case.configuration.loss for case in cases] == ["in_place", "copied", "in_place"]


def test_options_of_context_and_expert_parallelism(read_rows) -> None:
    ulysses = {"features": "moe-grouped-gemm context-parallel-algo=ulysses_cp_algo"}
    plain, special = (case.configuration for case in read_rows(ROW, {}, ulysses).cases)
    assert not plain.exchanged_heads
    assert special.exchanged_heads


def test_linear_layers_wait_for_their_collectives_only_where_told_to(read_rows) -> None:
    waiting = {"features": "sequence-parallel no-async-tensor-model-parallel-allreduce"}
    plain, told = (case.configuration.overlap_tensors for case in read_rows(ROW, {}, waiting).cases)
    assert plain and not told


def test_products_add_gradients_up_unless_told_not_to(read_rows) -> None:
    apart = {"features": "sequence-parallel no-gradient-accumulation-fusion"}
    plain, told = (case.configuration.fused_gradient_sums for case in read_rows(ROW, {}, apart).cases)
    assert plain and not told


def test_gemma_2_has_further_norms_and_capped_logits(read_rows) -> None:
    gemma = {"name": "gemma2_tp8_pp1_ptd", "hidden": 3584, "heads": 16, "kv": 8, "ffn": 14336, "recompute": ""}
    (case,) = read_rows({**ROW, **gemma}).cases
    model = case.configuration.model
    assert (model.vocab_size, model.head_dim) == (256000, 256)
    assert (model.activation, model.branch_norm, model.logit_cap) == ("geglu", "both", 30)
    assert [kind.window for kind in model.kinds[:4]] == [4096, 0, 4096, 0]


def test_a_row_without_time_still_has_its_throughput_or_its_memory(read_rows) -> None:
    found = read_rows(
        ROW, {"step_ms": ""}, {"step_ms": "", "tok_s_dev": ""}, {"step_ms": "", "tok_s_dev": "", "max_alloc_MB": ""}
    )
    first, second = found.cases
    assert first.measured.step_time_s == pytest.approx(32 * 4096 / (2908.0 * 8))
    assert second.measured.step_time_s is None and second.measured.peak_memory_B is not None
    assert found.reasons() == {"neither step time nor memory was measured": 1}


def test_experts_and_what_a_name_says(read_rows) -> None:
    moe = {"name": "deepseek2_tp1_pp1", "tp": 1, "dp": 8, "pp": 1, "vpp": "", "ep": 8, "hidden": 5120, "layers": 2, "heads": 128,
           "ffn": 12288, "experts": 160, "topk": 6, "moe_ffn": 1536, "vocab": 102400, "recompute": ""}  # fmt: skip
    (case,) = read_rows({**ROW, **moe}).cases
    model = case.configuration.model
    assert model.experts is not None and model.latent_attention is not None
    assert (model.experts.number, model.experts.intermediate_size, model.experts.shared_size) == (160, 1536, 3072)
    assert model.dense_layers == 1


def test_reasons(read_rows) -> None:
    found = read_rows(
        ROW,
        {"check": "n_devices not parsed"},
        {"hidden": ""},
        {"mbs": ""},
        {"experts": 8},
        {"features": "lora-target-modules=linear_qkv"},
        {"features": "num-layer-list=8,8,8,9"},
        {"features": "stage=sft prompt-type=llama2"},
        {"features": "stage=sft prompt-type=llama2", "name": "llama2_pack"},
    )
    assert found.reasons() == {
        "(8, 8, 8, 9) does not put 32 blocks on 4 stages": 1,
        "LoRA: most weights are frozen": 1,
        "mbs is not given": 1,
        "topk is not given": 1,
        "n_devices not parsed": 1,
        "stage=sft: samples of unknown length, unless packed": 1,
        "the model's dimensions are not given": 1,
    }
