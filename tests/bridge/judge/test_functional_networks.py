"""Networks of functions are planned such that MindSpore compiles what was predicted."""

import re
from pathlib import Path

import pytest

from ms_symtensor.cli import main

NETWORKS = Path(__file__).parents[1] / "functional_networks.py"


@pytest.mark.parametrize("name", ["vision", "unet", "decoder", "shared"])
def test_plans_compile_as_predicted(name, tmp_path, capsys):
    out = str(tmp_path / name)
    assert main(["plan", f"{NETWORKS}:{name}", "--device-num", "8", "--out", out]) == 0
    assert ("made on the fly" in capsys.readouterr().out) == (name != "shared")
    assert main(["verify", out]) == 0
    assert "equal in kind, ranks and bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"),
    [("stranger", "Generator.*use nn.Dropout"), ("spoilt", "TransposeExtView.*gives another result")],
)
def test_what_mindspore_cannot_cut_rightly_is_refused_in_a_line(name, said, tmp_path, capsys):
    out = tmp_path / name
    assert main(["plan", f"{NETWORKS}:{name}", "--device-num", "8", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("symtensor: error: ")
    assert re.search(said, line)
    assert not out.exists()
