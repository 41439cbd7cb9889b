import pytest
from estimate import estimate

from benchmarks.validation import BARS
from ms_symtensor.cluster.load import load
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


def test_reaching_a_bar() -> None:
    least, most = next(b for b in BARS if not b.at_most), next(b for b in BARS if b.at_most)
    assert least.reached(least.bar) and not least.reached(least.bar - 0.01)
    assert most.reached(most.bar) and not most.reached(most.bar + 0.01)
