import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.validation.configuration import FULL_RECOMPUTATION, NO_RECOMPUTATION, AttentionKernel

# github.com/VIA-Research/vTrain@f8dda8473a, data/ground_truth_single.csv
ROW = {
    "group": "h1024-L24-a16-s1024-gbs32|n8", "n_configs_in_group": 20, "params_B": "", "hidden": 1024, "layers": 24,
    "heads": 16, "seq_len": 1024, "device": "A100 (Megatron-DeepSpeed)", "n_devices": 8, "dp": 2, "tp": 2, "pp": 2,
    "micro_batch": 4, "global_batch": 32, "step_ms": 219.732754, "consistent": "Y", "file": "ground_truth_single.csv",
    "source": "github",
}  # fmt: skip


def test_a_row(read_rows) -> None:
    found = read_rows(ROW)
    assert (found.name, found.rows, found.excluded) == ("vtrain_a100", 1, ())
    (case,) = found.cases
    assert (case.line, case.group, case.part) == (2, "h1024-L24-a16-s1024-gbs32|n8", "2-8 devices")
    assert case.measured.step_time_s == pytest.approx(0.219732754)
    spread = case.configuration
    assert (spread.device_num, spread.data_parallel, spread.model_parallel, spread.pipeline_stages) == (8, 2, 2, 2)
    assert (spread.micro_batch_size, spread.micro_batch_num, spread.global_batch_size) == (4, 4, 32)
    assert spread.recomputation is NO_RECOMPUTATION
    assert not spread.padded_vocabulary
    assert spread.attention is AttentionKernel.FUSED_SOFTMAX
    assert (spread.model.intermediate_size, spread.model.activation, spread.model.tied_embeddings) == (
        4096,
        "gelu",
        True,
    )


def test_on_several_servers_blocks_are_recomputed(read_rows) -> None:
    (case,) = read_rows({**ROW, "n_devices": 64, "dp": 16, "global_batch": 512}).cases
    assert case.part == "64-512 devices"
    assert case.configuration.recomputation is FULL_RECOMPUTATION
    assert case.configuration.padded_vocabulary


def test_what_cannot_be_used_is_counted_with_its_reason(read_rows) -> None:
    found = read_rows(
        ROW, {"consistent": "N"}, {"dp": 4}, {"global_batch": 31}, {"layers": 1}, {"n_devices": 48, "tp": 12}, {}
    )
    assert found.reasons() == {
        "dp x tp x pp is not n_devices": 1,
        "global_batch is no multiple of dp x micro-batch": 1,
        "1 blocks are too few for 2 pipeline stages": 1,
        "16 heads do not divide by model_parallel 12": 1,
        "the source is inconsistent (column consistent)": 1,
    }
    assert [(e.line) for e in found.excluded] == [2, 3, 4, 5, 6]
    assert [case.line for case in found.cases] == [7]
    assert found.rows == 6


@pytest.mark.parametrize(
    "change, message",
    [
        ({"step_ms": "fast"}, "data.csv: row 2, column step_ms: 'fast' is not a number"),
        ({"tp": ""}, "data.csv: row 2, column tp: '' is empty; give a whole number"),
        ({"layers": "24.5"}, "data.csv: row 2, column layers: '24.5' is not a whole number of at least 1"),
    ],
)
def test_a_malformed_cell_is_an_error(read_rows, change, message) -> None:
    with pytest.raises(InputError) as error:
        read_rows({**ROW, **change})
    assert str(error.value) == message


def test_a_missing_column_is_named(read_rows) -> None:
    with pytest.raises(InputError) as error:
        read_rows({column: cell for column, cell in ROW.items() if column != "micro_batch"})
    assert str(error.value) == (
        "data.csv: row 1 is not the header of a known form; the nearest is vtrain_a100, and column micro_batch is missing"
    )
