import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.validation.readers.dryrun import deepseek_v3

# github.com/mindspore-ai/hyper-parallel@fdd0a80842, fast-tuner/unit_tests/nd_search_test.py
ROW = {
    "model": "DeepSeek-V3 671B (61 layers + 1 MTP)", "n_devices": 1024, "dp": 32, "tp": 8, "pp": 4, "ep": 8,
    "micro_batch": 1, "seq_len": 4096, "dryrun_peak_MB": 148595, "stage_simulated": 2, "layers_on_stage_upper": 16,
}  # fmt: skip


def test_a_row(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    assert case.measured.stage == 2
    assert case.measured.peak_memory_B == pytest.approx(148595 * 2**20)
    assert case.measured.fits is None
    assert case.configuration.framework == "mindspore"


@pytest.mark.parametrize("stages, layers", [(2, 31), (4, 15), (8, 8), (16, 4), (32, 2)])
def test_blocks_and_multi_token_prediction_are_spread_evenly(read_rows, stages, layers) -> None:
    simulated = 1 if stages == 2 else 2
    row = {
        **ROW,
        "pp": stages,
        "dp": 1024 // 8 // stages,
        "stage_simulated": simulated,
        "layers_on_stage_upper": layers,
    }
    (case,) = read_rows(row).cases
    on_stages = case.configuration.stage_layers
    assert sum(on_stages) == 61
    # The longer stages come first; with two stages the simulated one is that with the prediction block.
    assert on_stages[simulated] + (1 if simulated == stages - 1 else 0) == layers


def test_deepseek_v3_has_its_671e9_parameters() -> None:
    model = deepseek_v3()
    assert model.experts is not None and model.latent_attention is not None
    expert = 3 * model.hidden_size * model.experts.intermediate_size
    moe_blocks = model.num_layers - model.experts.dense_blocks
    experts = moe_blocks * (model.experts.num_experts + model.experts.shared_experts) * expert
    dense = model.experts.dense_blocks * 3 * model.hidden_size * model.intermediate_size
    latent = model.latent_attention
    head = latent.rope_head_dim + latent.nope_head_dim
    attention = (
        model.hidden_size * latent.query_rank
        + latent.query_rank * model.num_heads * head
        + model.hidden_size * (latent.kv_rank + latent.rope_head_dim)
        + latent.kv_rank * model.num_heads * (latent.nope_head_dim + latent.value_head_dim)
        + model.num_heads * latent.value_head_dim * model.hidden_size
    )
    total = experts + dense + model.num_layers * attention + 2 * model.vocab_size * model.hidden_size
    assert total / 1e9 == pytest.approx(671, abs=1)


def test_a_stage_that_does_not_exist(read_rows) -> None:
    with pytest.raises(InputError, match=r"data.csv: row 2, column stage_simulated: '4' is no stage of 4"):
        read_rows({**ROW, "stage_simulated": 4})


def test_other_models_are_excluded(read_rows) -> None:
    assert read_rows({**ROW, "model": "Other"}).reasons() == {"the dimensions of Other are not known": 1}


def test_without_a_stage_the_largest_counts(read_rows) -> None:
    (case,) = read_rows({**ROW, "stage_simulated": ""}).cases
    assert case.measured.stage is None
