"""Tables of serving: a layer's operators by model, and static batches of a whole network."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.validation.calibrate_timings import leave_one_model_out
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers import operators, static_batches
from ms_symtensor.validation.table import Row, Table
from ms_symtensor.validation.timings import validate_timings

A100 = load("a100_80g")
BATCH = {
    "device": "A100 FP16", "model": "LLaMA 7B", "batch": "64", "tp": "1", "input_len": "128", "output_len": "128",
    "metric": "out_tokens_per_s_per_gpu", "value": "3000",
}  # fmt: skip
LAYER = {
    "device": "a100", "model": "seven", "tp": "1", "num_tokens": "4096", "hidden": "4096", "heads": "32", "kv_heads": "32",
    "ffn": "11008", "gated": "True", "input_layernorm_ms": "0.1", "attn_pre_proj_ms": "1.9", "attn_rope_ms": "0.15",
    "attn_post_proj_ms": "0.6", "post_attention_layernorm_ms": "0.1", "mlp_up_proj_ms": "3.3", "mlp_act_ms": "0.27",
    "mlp_down_proj_ms": "1.6", "add_ms": "0.05",
}  # fmt: skip


def row(of, **changes):
    return Row("data.csv", 2, {**of, **{name: str(value) for name, value in changes.items()}})


def test_a_static_batch_takes_a_prefill_and_a_step_for_every_further_token():
    one, two = (static_batches.timing(row(BATCH, output_len=n)).run.seconds(A100) for n in (1, 2))
    many = static_batches.timing(row(BATCH, output_len=101)).run.seconds(A100)
    assert many - one == pytest.approx(100 * (two - one), rel=0.1)  # further tokens see more keys
    first = static_batches.timing(row(BATCH, metric="first_token_ms", output_len=1, value=20))
    assert first.kind == "first token" and first.time_s == 0.02 and first.run.seconds(A100) == pytest.approx(one)


def test_the_time_of_a_rate():
    """64 requests of 128 tokens at 3,000 tokens a second and GPU on two GPUs."""
    assert static_batches.timing(row(BATCH, tp=2)).time_s == pytest.approx(64 * 128 / 6000)


def test_eight_bits_are_faster():
    half, whole = (
        static_batches.timing(row(BATCH, device=f"H100 {kind}")).run.seconds(A100) for kind in ("FP8", "FP16")
    )
    assert half < 0.8 * whole


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "910B"}, "no cluster"),
        ({"model": "Nobody"}, "not known"),
        ({"tp": 5}, "divide"),
        ({"metric": "x"}, "metric"),
    ],
)
def test_rows_that_are_left_out(changes, words):
    with pytest.raises(UnusableRowError, match=words):
        static_batches.timing(row(BATCH, **changes))


def test_operators_of_a_layer():
    found = operators.timings(row(LAYER))
    assert [one.kind for one in found][:2] == ["attn_pre_proj", "attn_post_proj"] and len(found) == 5
    assert found[-1].time_s == pytest.approx(0.67e-3) and len(found[-1].run) == 5
    assert {"elements": 4096.0 * 12288, "depth": 4096.0}.items() <= dict(found[0].run[0].arguments).items()
    assert len(operators.timings(row(LAYER, add_ms=""))) == 4  # the passes have no time together
    with pytest.raises(InputError, match="does not divide"):
        operators.timings(row(LAYER, tp=3))


def measured_on(true, *models):
    """A table as if `true` had been measured."""
    lines = []
    for number, (name, hidden) in enumerate(models):
        for tokens in (64, 512, 4096):
            cells = row(LAYER, model=name, num_tokens=tokens, hidden=hidden, add_ms="").cells
            for one in operators.timings(Row("data.csv", 2, cells)):
                if f"{one.kind}_ms" in cells:
                    cells = {**cells, f"{one.kind}_ms": str(1e3 * sum(k.seconds(true) for k in one.run))}
            lines.append(Row("data.csv", len(lines) + 2 + number, cells))
    return Table("data.csv", tuple(LAYER), tuple(lines))


def test_a_calibration_on_other_models_finds_what_they_have_in_common():
    from dataclasses import replace

    device = replace(A100.device, step_efficiency=1.0, op_overhead_s=3e-6, wave_elements=4e5)
    table = measured_on(replace(A100, device=device), ("one", 4096), ("two", 8192), ("three", 2048))
    products = [
        validate_timings(table, operators.FORM, A100, fit)
        for fit in (None, lambda rows: leave_one_model_out(rows, 40, 0))
    ]
    before, after = (max(one.mape for one in found.judged if "proj" in one.kind) for found in products)
    assert after < 0.5 * before


def test_one_model_cannot_be_calibrated_on_others():
    table = measured_on(A100, ("one", 4096))
    with pytest.raises(InputError, match="the only one"):
        validate_timings(table, operators.FORM, A100, lambda rows: leave_one_model_out(rows, 8, 0))
