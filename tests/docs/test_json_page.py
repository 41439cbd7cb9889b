"""The page of JSON keys names what `plan --json` prints and plan.json holds."""

import json
import re
from pathlib import Path

import pytest

from ms_symtensor.cli import main
from ms_symtensor.strategy.folder import PLAN_FILE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"


def test_every_key_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--num-layers", "4", "--seq-length", "1024", "--global-batch-size", "8", "--device-num", "4"]
    pins = ["--fix", "pipeline_stages=2", "--fix", "micro_batch_num=4", "--pareto"]
    assert main(["plan", "llama2_7b", *size, *pins, "--json", "--out", str(tmp_path / "plan")]) == 0
    printed = json.loads(capsys.readouterr().out)
    held = json.loads((tmp_path / "plan" / PLAN_FILE).read_text(encoding="utf-8"))
    named = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    assert {*printed, *held} - named == set()
