import pytest

from ms_symtensor.validation.readers.dryrun import deepseek_v3

# github.com/mindspore-ai/hyper-parallel@fdd0a80842, fast-tuner/unit_tests/nd_search_test.py
ROW = {
    "model": "DeepSeek-V3 671B (61 layers + 1 MTP)", "n_devices": 1024, "dp": 32, "tp": 8, "pp": 4, "ep": 8,
    "micro_batch": 1, "seq_len": 4096, "dryrun_peak_MB": 148595,
}  # fmt: skip


def test_a_row(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    assert case.measured.stage == 3
    assert case.measured.peak_memory_B == pytest.approx(148595 * 2**20)
    assert case.measured.fits is None
    assert case.configuration.framework == "mindspore"


@pytest.mark.parametrize("stages, layers", [(2, 31), (4, 15), (8, 8), (16, 4), (32, 2)])
def test_blocks_and_multi_token_prediction_are_spread_evenly(read_rows, stages, layers) -> None:
    (case,) = read_rows({**ROW, "pp": stages, "dp": 1024 // 8 // stages}).cases
    on_stages, stage = case.configuration.layers_on_stage, case.measured.stage
    assert sum(on_stages) == 61
    assert on_stages[stage] + (stage == stages - 1) == layers  # the last stage has the prediction beside its blocks


def test_deepseek_v3_has_its_671e9_parameters() -> None:
    model = deepseek_v3()
    assert model.experts is not None and model.latent_attention is not None
    expert = 3 * model.hidden_size * model.experts.intermediate_size
    moe_blocks = model.num_layers - model.dense_layers
    experts = moe_blocks * (model.experts.number + 1) * expert
    dense = model.dense_layers * 3 * model.hidden_size * model.intermediate_size
    latent = model.latent_attention
    key = model.head_dim - latent.rotary_head_dim  # the part that is not rotated
    attention = (
        model.hidden_size * latent.query_rank
        + latent.query_rank * model.num_heads * model.head_dim
        + model.hidden_size * (latent.key_value_rank + latent.rotary_head_dim)
        + latent.key_value_rank * model.num_heads * (key + latent.value_head_dim)
        + model.num_heads * latent.value_head_dim * model.hidden_size
    )
    total = experts + dense + model.num_layers * attention + 2 * model.vocab_size * model.hidden_size
    assert total / 1e9 == pytest.approx(671, abs=1)


def test_other_models_are_excluded(read_rows) -> None:
    assert read_rows({**ROW, "model": "Other"}).reasons() == {"the dimensions of Other are not known": 1}
