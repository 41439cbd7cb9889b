"""Published times of kernels and collectives: the same formulas as plans', each row on its own chip."""

import json
import random

import pytest

from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.validation.reading import TIMING_FORMS, read_rows, reader_of
from ms_symtensor.validation.table import Row, Table
from ms_symtensor.validation.timings import LAUNCH_BOUND, form_of, validate_timings

A2 = load("atlas_800t_a2")
KERNELS, COLLECTIVES = TIMING_FORMS[:2]
PRODUCT = {
    "device": "910B2", "operator": "MatMul", "kind": "matmul", "shape": "words", "dtype": "float16", "direction": "forward",
    "time_us": "400", "floor_us": "0", "method": "loop", "dims": {"b": 1, "m": 4096, "k": 4096, "n": 4096},
}  # fmt: skip
REDUCED = {
    "device": "Atlas A2", "software": "HCCL", "collective": "AllReduce", "message_B": "65536", "ranks": "8", "level": "",
    "time_us": "22", "note": "",
}  # fmt: skip


def validated(form, first, *changes):
    rows = [{**first, **change} for change in changes or ({},)]
    cells = [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows]
    lines = tuple(Row("data.csv", line, row) for line, row in enumerate(cells, start=2))
    return validate_timings(Table("data.csv", tuple(first), lines), form, A2)


def test_a_kernel_is_priced_by_itself_on_its_own_chip():
    found = validated(KERNELS, PRODUCT, {}, {"device": "910B3"}, {"device": "unknown (910B1/910C)"})
    assert [row.cluster for row in found.total.rows] == ["atlas_800t_a2", "atlas_800t_a2_910b3", "atlas_800t_a2"]
    for row, cores, peak in zip(found.total.rows, (24, 20, 24), (353.9e12, 294.9e12, 353.9e12)):
        paid = 2 * (4096**2 + cores * 128 * 256) * (4096 + 128)
        assert row.predicted_s == pytest.approx(paid / (0.885 * peak) + 5e-6)
    (judged,) = found.judged
    errors = [abs(row.predicted_s / 400e-6 - 1) for row in found.total.rows]
    assert judged.kind == "product, 16 bit, 10 GFLOP and more" and judged.mape == pytest.approx(sum(errors) / 3)


def test_without_a_cluster_rows_that_name_no_chip_are_excluded():
    line = {**PRODUCT, "dims": json.dumps(PRODUCT["dims"])}
    rows = tuple(Row("data.csv", n, {**line, "device": name}) for n, name in enumerate(("910B3", "unknown"), start=2))
    found = validate_timings(Table("data.csv", tuple(PRODUCT), rows), KERNELS, None)
    assert [row.cluster for row in found.total.rows] == ["atlas_800t_a2_910b3"]
    assert [(one.line, one.reason) for one in found.excluded] == [(3, "the row names no chip: give --cluster")]


def test_the_launch_is_taken_off_unless_it_is_most_of_the_time():
    small = {"time_us": "60", "floor_us": "50", "dims": {"b": 1, "m": 64, "k": 64, "n": 64}}
    found = validated(
        KERNELS, PRODUCT, {"floor_us": "100"}, small, {**small, "method": "host clock, synchronised per call"}
    )
    taken_off, beside, after = found.total.rows
    assert (taken_off.measured_s, beside.measured_s) == (pytest.approx(300e-6), pytest.approx(60e-6))
    assert beside.predicted_s == pytest.approx(50e-6) and after.predicted_s > 55e-6
    assert [one.kind for one in found.judged] == ["product, 16 bit, 10 GFLOP and more", LAUNCH_BOUND]


def test_kinds_of_kernels():
    head = {"b": 1, "h": 8, "kvh": 2, "sq": 4096, "sk": 4096, "d": 128}
    changes = (
        {"dtype": "float32", "dims": {"m": 8, "k": 8, "n": 8}},
        {"kind": "batch_matmul", "dims": {"b": 32, "m": 2048, "k": 128, "n": 2048}},
        {"kind": "grouped_matmul", "dims": {"m": 1024, "k": 4096, "n": 2048, "experts": 32}},
        {"kind": "attention", "dims": head},
        {"kind": "attention", "dims": {**head, "causal": True}},
        {"kind": "vector", "operator": "Softmax", "shape": "32,2048,2048", "dims": {"bytes": 536870912}},
        {"kind": "vector", "operator": "RmsNorm", "shape": "32,1152", "dims": {"bytes": 149760}},
    )
    found = validated(KERNELS, PRODUCT, *changes)
    assert [row.timing.group for row in found.total.rows] == [
        "product, float32, below 10 GFLOP", "product of heads, 16 bit, 10 GFLOP and more", "grouped product", "attention",
        "attention", "pass over memory, 90 MB and more", "pass over memory, below 90 MB",
    ]  # fmt: skip
    whole, causal = (row.predicted_s - 5e-6 for row in found.total.rows if row.timing.kind == "attention")
    assert whole / causal == pytest.approx(
        ((8 * 4096 + 1536) * 4096 + 3072 * 768) / ((8 * 4096 + 1536) * 2048 + 3072 * 768)
    )
    weights_s = (1024 * 4096 + 32 * 4096 * 2048 + 1024 * 2048) * 2 / (0.85 * 1.76e12)
    assert found.total.rows[2].predicted_s == pytest.approx(weights_s + 5e-6, rel=1e-6)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"device": "950"}, "no cluster file describes the 950"),
        ({"device": "A100"}, "no cluster file stands for 'A100'"),
        ({"dims": {}}, "no shape and time"),
        ({"time_us": "nan"}, "no shape and time"),
        ({"direction": "backward"}, "only forward passes"),
        ({"dtype": "int8"}, "element type int8 has no formula"),
        ({"kind": "attention_decode"}, "kind attention_decode has no formula"),
    ],
)
def test_rows_that_cannot_be_used_are_named(change, reason):
    found = validated(KERNELS, PRODUCT, {}, change)
    assert len(found.total.rows) == 1
    ((line, why),) = [(one.line, one.reason) for one in found.excluded]
    assert line == 3 and reason in why


def test_collectives_have_a_fixed_cost():
    found = validated(
        COLLECTIVES, REDUCED, {}, {"note": "host-synchronised"}, {"note": "illustrative"}, {"collective": "Sum"}
    )
    assert [one.kind for one in found.judged] == ["AllReduce, below 1 MB", "AllReduce, the host waits"]
    assert [one.line for one in found.excluded] == [4, 5]
    transfer_s = 2 * (65536 / 8) / 18.2e9
    assert found.total.rows[0].predicted_s == pytest.approx(15e-6 + 2 * 2.5e-6 + transfer_s)


@pytest.mark.parametrize("form, first", ((KERNELS, PRODUCT), (COLLECTIVES, REDUCED)))
def test_any_cells_are_read_or_refused_in_one_line(form, first):
    generator = random.Random(7)
    cells = (
        "",
        "x",
        "-1",
        "nan",
        "0",
        "1e30",
        "8",
        "forward",
        "matmul",
        "vector",
        "910B2",
        "float16",
        "{}",
        "[1]",
        '{"m": 0}',
    )
    for _ in range(300):
        change = {column: generator.choice(cells) for column in form.columns if generator.random() < 0.3}
        try:
            found = validated(form, first, {}, change)
        except InputError as error:
            assert str(error).startswith("data.csv: row 3, column ") and "\n" not in str(error)
        else:
            assert len(found.total.rows) + len(found.excluded) == 2


def test_a_table_of_timings_is_no_table_of_steps():
    table = Table("mine.csv", KERNELS.columns, ())
    assert form_of(table, TIMING_FORMS) is KERNELS
    with pytest.raises(InputError, match="mine.csv has times of kernels or collectives, and no steps"):
        read_rows(table)
    with pytest.raises(InputError, match="the nearest is ascend_kernels, and column dims is missing"):
        reader_of(Table("mine.csv", KERNELS.columns[:-1], ()))
    with pytest.raises(InputError, match="no row can be evaluated"):
        validated(KERNELS, PRODUCT, {"device": "950"})


def test_the_command(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    row = {**REDUCED, "level": "one node"}
    path.write_text("\n".join(",".join(cells) for cells in (row, row.values())), encoding="utf-8")
    assert main(["validate", str(path), "--cluster", "atlas_800t_a2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["rows"], data["excluded"], data["spearman_mean"]) == (1, 0, None)
    assert data["kinds"][0]["mape"] == data["mape"] < 0.2
    assert main(["validate", str(path), "--cluster", "atlas_800t_a2"]) == 0
    assert "AllReduce, below 1 MB" in capsys.readouterr().out
    assert main(["validate", str(path), "--cluster", "atlas_800t_a2", "--calibrate", "2"]) == 2
    assert "--calibrate fits measured steps" in capsys.readouterr().err
