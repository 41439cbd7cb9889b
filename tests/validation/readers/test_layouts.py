import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import FULL_RECOMPUTATION, AttentionKernel

# github.com/Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts@e13c2cb5
ROW = {
    "model": "llama-13B", "hidden": 5120, "layers": 40, "heads": 40, "ffn": 13824, "device": "A100-SXM-80GB",
    "n_devices": 32, "dp": 16, "tp": 2, "pp": 1, "micro_batch": 1, "global_batch": 2048, "seq_len": 2048,
    "sequence_parallel": 1, "recompute": "disabled", "kernel": "flash_attention2 + RMS kernel", "zero": "ZeRO-1",
    "status": "ok", "step_s": 53.8062, "tflops_megatron": 266.4906, "mfu": 0.6966, "trial": 1, "source": "github",
}  # fmt: skip


def test_a_timed_row(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    assert case.group == "llama-13B|32|2048|2048"
    assert (case.measured.step_time_s, case.measured.fits) == (53.8062, True)
    spread = case.configuration
    assert spread.micro_batch_num == 128
    assert spread.sequence_parallel and spread.fused_norm
    assert spread.optimizer_level is OptimizerLevel.LEVEL1
    assert spread.attention is AttentionKernel.FLASH


def test_the_vocabulary_is_what_the_published_utilisation_counts(read_rows) -> None:
    (case,) = read_rows(ROW).cases
    model = case.configuration.model
    block = 4 * model.hidden_size**2 + 3 * model.hidden_size * model.intermediate_size
    weights = model.num_layers * block + 2 * model.vocab_size * model.hidden_size
    flops = 6 * weights + 12 * model.num_layers * model.hidden_size * case.configuration.seq_length
    assert flops * case.configuration.tokens / (53.8062 * 32 * 312e12) == pytest.approx(0.6966, rel=0.01)


def test_kernels_and_recomputation(read_rows) -> None:
    found = read_rows(
        ROW,
        {"kernel": "torch", "recompute": "every_layer", "sequence_parallel": ""},
        {"kernel": "flash_attentionv1.0.8"},
        {"kernel": "fused"},
    )
    assert [case.configuration.attention for case in found.cases] == [
        AttentionKernel.PLAIN,
        AttentionKernel.FLASH1,
        AttentionKernel.FUSED_SOFTMAX,
    ]
    first = found.cases[0].configuration
    assert (first.recomputation, first.fused_norm, first.sequence_parallel) == (FULL_RECOMPUTATION, False, False)


def test_out_of_memory_is_not_the_same_as_no_kernel(read_rows) -> None:
    found = read_rows(ROW, {"status": "OOM Error", "step_s": ""}, {"status": "Kernel not available", "step_s": ""})
    (case,) = found.cases
    assert (case.measured.fits, case.measured.step_time_s) == (False, None)
    assert found.reasons() == {"status 'Kernel not available': neither timed nor out of memory": 1}


def test_what_is_unknown_is_not_guessed(read_rows) -> None:
    found = read_rows(ROW, {"kernel": "flash_attention9"}, {"recompute": "some"}, {"zero": "ZeRO-9"})
    assert found.reasons() == {
        "unknown kernel 'flash_attention9'": 1,
        "unknown recompute 'some'": 1,
        "unknown zero 'ZeRO-9'": 1,
    }


def test_a_timed_row_without_its_time_is_malformed(read_rows) -> None:
    with pytest.raises(InputError, match=r"data.csv: row 2, column step_s: '' is empty"):
        read_rows({**ROW, "step_s": ""})
