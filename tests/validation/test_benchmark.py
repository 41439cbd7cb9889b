from dataclasses import replace

import pytest
from estimate import estimate

from benchmarks.validation import BARS, expert_figures
from ms_symtensor.cluster.load import load
from ms_symtensor.validation.configuration import Experts
from ms_symtensor.validation.reading import READERS
from ms_symtensor.validation.validate import validate

HEADER = "group,hidden,layers,heads,seq_len,n_devices,dp,tp,pp,micro_batch,global_batch,step_ms,consistent"


def test_every_bar_is_about_a_known_table_and_cluster() -> None:
    known = {reader.name for reader in READERS} | {"reports_measured"}  # of the form of nvidia_misc
    assert {bar.file for bar in BARS} <= known
    for bar in BARS:
        assert load(bar.cluster).name == bar.cluster


@pytest.mark.parametrize("bar", [bar for bar in BARS if bar.file == "vtrain_a100"], ids=lambda bar: bar.what)
def test_bars_of_parts_find_their_part(bar, tmp_path) -> None:
    rows = [
        f"g{devices},1024,24,16,1024,{devices},{devices // tp},{tp},1,1,{4 * devices},{tp * 100},Y"
        for devices in (8, 64)
        for tp in (1, 2, 4)
    ]
    path = tmp_path / "steps.csv"
    path.write_text("\n".join((HEADER, *rows)), encoding="utf-8")
    assert bar.figure(validate(path, load("a100_80g"), estimate)) is not None


def test_experts_are_judged_over_all_tables(tmp_path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("\n".join((HEADER, "g8,1024,24,16,1024,8,8,1,1,1,32,100,Y")), encoding="utf-8")
    without = validate(path, load("a100_80g"), estimate)
    (case,) = without.dataset.cases
    experts = Experts(8, 2, 4096)
    model = replace(case.configuration.model, experts=experts)
    having = replace(case, configuration=replace(case.configuration, model=model))
    found = replace(without, dataset=replace(without.dataset, cases=(having,)))
    figures = {what: value for what, value, _, _ in expert_figures([without, found, found])}
    assert figures["rows"] == 2 and figures["memory MAPE"] is None
    assert figures["ratio at least"] == pytest.approx(without.outcome.step_time_s[0] / 0.1)
