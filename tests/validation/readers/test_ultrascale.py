import pytest

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.ultrascale import as_run, counted_flops, model_of, stages_of

# Hugging Face, Ultra-Scale Playbook, benchmarks_interactive.html
ROW = {
    "model": "llama-like-8B", "device": "H100-SXM-80GB(8/node)", "n_devices": 64, "nodes": 8, "dp": 8, "tp": 4, "pp": 2,
    "zero": 1, "mbs": 2, "grad_acc": 16, "gbs": 256, "status": "ok", "mfu": 42.2, "tok_s_gpu": 7000, "mem_gb": 50.2,
    "seq_len": 4096, "source": "github",
}  # fmt: skip
CRASHED = {"status": "crashed_or_oom", "mfu": "", "tok_s_gpu": "", "mem_gb": ""}


def test_a_timed_row(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    assert case.group == "llama-like-8B|n64"
    assert case.measured.step_time_s == pytest.approx(256 * 4096 / (7000 * 64))
    assert case.measured.peak_memory_B == pytest.approx(50.2 * 2**30)
    assert case.measured.fits and case.measured.mfu == pytest.approx(0.422)
    assert case.configuration.framework == "nanotron"
    assert case.configuration.optimizer_level is OptimizerLevel.LEVEL1


def test_a_failed_row_says_only_that_it_does_not_fit(read_rows) -> None:
    (case,) = read_rows({**ROW, **CRASHED}).cases
    assert case.measured.fits is False
    assert case.measured.step_time_s is None and case.measured.peak_memory_B is None


def test_what_cannot_be_used_is_counted_with_its_reason(read_rows) -> None:
    found = read_rows(
        ROW,
        {"mfu": 0.0},
        {"mfu": ""},
        {"gbs": 128},
        {"dp": 16, "gbs": 512},
        {"model": "llama-like-17B"},
        {"zero": 4},
        {"status": "running"},
        {"n_devices": 2048, "pp": 64, **CRASHED},
    )
    assert found.reasons() == {
        "MFU below 5 %": 1,
        "mfu is not given": 1,
        "dp x mbs x grad_acc is not gbs": 1,
        "dp x tp x pp is not n_devices": 1,
        "status 'running': neither timed nor out of memory": 1,
        "nanotron leaves a pipeline stage empty and fails": 1,
        "the dimensions of llama-like-17B are not published": 1,
        "unknown zero '4'": 1,
    }


@pytest.mark.parametrize("name, billions", [("1B", 1.34), ("3B", 3.57), ("8B", 8.86), ("80B", 80.0)])
def test_parameters_are_those_of_the_published_runs(name, billions) -> None:
    model = model_of(f"llama-like-{name}")
    block = 4 * model.hidden_size**2 + 3 * model.hidden_size * model.intermediate_size
    embeddings = (1 if model.tied_embeddings else 2) * model.vocab_size * model.hidden_size
    assert (model.num_layers * block + embeddings) / 1e9 == pytest.approx(billions, abs=0.01)


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_the_head_takes_the_place_of_blocks_on_the_last_stage(stages) -> None:
    model = model_of("llama-like-8B")
    blocks, head = stages_of(model, stages)
    assert sum(blocks) == model.num_layers and len(blocks) == stages
    assert blocks[-1] == min(blocks)
    assert head == stages - 1
    if stages == 2:
        assert blocks == (18, 14)


def test_stages_without_blocks_run_where_the_head_or_the_loss_is_on_them() -> None:
    # Of the published runs, those of 1B on 8 stages were timed and none of those on 16 ended.
    blocks, head = stages_of(model_of("llama-like-1B"), 8)
    assert (blocks, head) == ((3, 3, 2, 3, 2, 3, 0, 0), 6)
    with pytest.raises(UnusableRowError):
        stages_of(model_of("llama-like-1B"), 16)


def test_a_timed_row_may_lack_its_memory(read_rows) -> None:
    (case,) = read_rows({**ROW, "mem_gb": ""}).cases
    assert case.measured.peak_memory_B is None and case.measured.step_time_s is not None


def test_the_key_value_heads_are_those_of_the_utilisation(read_rows) -> None:
    of_80b = {"model": "llama-like-80B", "tp": 8, "dp": 4, "pp": 2, "grad_acc": 32}
    many, few = read_rows({**ROW, **of_80b}, {"mfu": 12.1, "tok_s_gpu": 234}, {"mfu": 11.8, "tok_s_gpu": 256}).cases[
        -2:
    ]
    assert (many.configuration.model.n_kv_heads, few.configuration.model.n_kv_heads) == (64, 8)


def test_stages_do_not_share_a_tied_embedding() -> None:
    model = model_of("llama-like-1B")
    table = 6 * model.vocab_size * model.hidden_size
    assert counted_flops(model, 4096, 2) - counted_flops(model, 4096, 1) == table
    assert as_run(model, counted_flops(model, 4096, 2), 4096, 2) == model
