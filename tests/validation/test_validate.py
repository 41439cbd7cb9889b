import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from estimate import CLUSTER, cases, estimate

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.report.validation_report import calibration_json, calibration_text, validation_json, validation_text
from ms_symtensor.validation.calibrate import fit
from ms_symtensor.validation.cluster_file import calibrated_yaml
from ms_symtensor.validation.constants import with_constants
from ms_symtensor.validation.validate import validate

A100 = load("a100_80g")
KEYS = {
    "dataset", "cluster", "calibration", "rows", "excluded", "groups", "mape", "spearman_mean", "kendall_mean",
    "regret_mean", "regret_max", "pairs_correct", "pairs_total", "oom_accuracy", "oom_precision", "oom_recall", "memory_mape",
}  # fmt: skip
HEADER = "group,hidden,layers,heads,seq_len,n_devices,dp,tp,pp,micro_batch,global_batch,step_ms,consistent"
ROWS = (
    "g1,1024,24,16,1024,8,8,1,1,1,32,150,Y",
    "g1,1024,24,16,1024,8,4,2,1,1,32,200,Y",
    "g1,1024,24,16,1024,8,2,4,1,1,32,260,Y",
    "g2,2048,24,16,1024,8,8,1,1,1,32,700,Y",
    "g2,2048,24,16,1024,8,4,2,1,1,32,750,Y",
    "g2,2048,24,16,1024,8,2,4,1,1,32,900,Y",
    "g2,2048,24,16,1024,8,2,4,2,1,32,900,Y",
)


def table(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text("\n".join((HEADER, *rows)), encoding="utf-8")
    return path


def test_json_has_the_promised_keys(tmp_path) -> None:
    found = validation_json(validate(table(tmp_path, *ROWS), CLUSTER, estimate))
    assert set(found) >= KEYS
    assert (found["dataset"], found["cluster"], found["calibration"]) == ("vtrain_a100", "a100_80g", None)
    assert (found["rows"], found["excluded"], len(found["groups"])) == (6, 1, 2)
    assert found["exclusions"] == [{"row": 8, "reason": "dp x tp x pp is not n_devices"}]
    assert found["oom_accuracy"] is None  # nothing failed
    assert 0 < found["mape"] < 10


def test_the_page_names_what_was_left_out(tmp_path) -> None:
    text = validation_text(validate(table(tmp_path, *ROWS), CLUSTER, estimate))
    assert text.startswith("vtrain_a100 on a100_80g, data sheets only: 6 of 7 rows")
    assert "1  dp x tp x pp is not n_devices  row 8" in text
    assert "g1" in text and "g2" in text and "\n  all " in text


def test_calibration_lowers_the_error_of_groups_that_were_left_out(tmp_path) -> None:
    path = table(tmp_path, *ROWS[:6])
    plain = validate(path, CLUSTER, estimate)
    calibrated = validate(path, CLUSTER, estimate, calibrate=3, seed=1)
    assert calibrated.score.total.mape < plain.score.total.mape
    assert validation_json(calibrated)["calibration"] == {"steps": 3, "seed": 1, "fits": 2, "measured": 6}
    assert "each group calibrated on 3 steps of others (seed 1, 6 different steps in all)" in validation_text(
        calibrated
    )


@pytest.mark.parametrize("rows", [ROWS[:1], ROWS[:2], ROWS[2:5], ROWS[:1] * 3, ROWS[:6]])
def test_however_few_rows_there_are_the_figures_are_numbers_or_nothing(tmp_path, rows) -> None:
    found = validation_json(validate(table(tmp_path, *rows), A100))
    json.dumps(found, allow_nan=False)
    assert found["rows"] == len(rows)


def test_the_order_of_rows_says_nothing(tmp_path) -> None:
    there, back = (validation_json(validate(table(tmp_path, *rows), A100)) for rows in (ROWS[:6], ROWS[5::-1]))
    by_name = sorted(back["groups"], key=lambda group: group["group"])
    assert all(group == pytest.approx(other) for group, other in zip(there["groups"], by_name, strict=True))


def test_a_table_without_a_usable_row(tmp_path) -> None:
    with pytest.raises(InputError) as error:
        validate(table(tmp_path, ROWS[6]), CLUSTER, estimate)
    assert str(error.value) == ("steps.csv: no row can be evaluated on a100_80g (1 x dp x tp x pp is not n_devices)")


def test_a_calibrated_cluster_is_a_file_that_says_what_it_was_fitted_on(tmp_path) -> None:
    found = fit(cases(with_constants(CLUSTER, {"device.cube_efficiency": 0.78})), CLUSTER, estimate)
    text = calibrated_yaml("a100_80g", found, "steps.csv")
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    cluster = load(str(path))
    assert cluster.name == "a100_80g_calibrated"
    assert "calibrated on 24 steps of steps.csv" in cluster.description
    assert cluster.device.cube_efficiency == pytest.approx(found.cluster.device.cube_efficiency, rel=1e-3)
    assert cluster.levels[1].bandwidth_Bps == CLUSTER.levels[1].bandwidth_Bps
    source = dict(cluster.sources)["device.cube_efficiency"]
    assert source.text.startswith("fitted on 24 steps of steps.csv, from 0.85: ")
    assert dict(cluster.sources)["device.cube_peak_FLOPs"] == dict(load("a100_80g").sources)["device.cube_peak_FLOPs"]
    again = yaml.safe_load(calibrated_yaml(str(path), found, "steps.csv"))
    assert again["name"] == "a100_80g_calibrated_calibrated"


def test_a_calibration_for_people_and_programs() -> None:
    found = fit(cases(CLUSTER), CLUSTER, estimate)
    text = calibration_text(found, "a100_80g", "mine.yaml")
    assert text.startswith("a100_80g calibrated on 24 steps: mean absolute percentage error 0.0 % before")
    assert text.endswith("Written to mine.yaml; give it to --cluster")
    data = calibration_json(found, "a100_80g", "mine.yaml")
    assert data["constants"]["device.cube_efficiency"]["before"] == CLUSTER.device.cube_efficiency


def test_more_devices_than_the_cluster_has_are_told(tmp_path) -> None:
    node = replace(A100, levels=(replace(A100.levels[0], ranks=4),))
    with pytest.raises(InputError, match="cluster a100_80g has 4 devices, and 8 were measured"):
        validate(table(tmp_path, *ROWS), node)
