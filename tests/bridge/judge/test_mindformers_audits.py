"""MindFormers' own networks under hand strategies, audited in an environment that has them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-mindformers-1.9.0" / "bin" / "python"


NEEDS = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="no MindFormers 1.9.0: python -m benchmarks.mindformers_files makes .venv-mindformers-1.9.0",
)


@NEEDS
@pytest.mark.matrix
def test_a_planned_file_is_compiled_as_predicted(tmp_path: Path) -> None:
    command = [
        str(PYTHON),
        "-m",
        "ms_symtensor",
        "mindformers",
        str(ROOT / "examples" / "train.yaml"),
        "--check",
        "--json",
    ]
    command += ["-o", str(tmp_path / "planned.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(done.stdout)["check"]
    assert found["collectives"]["equal"] and found["collectives"]["compiled"] > 0


@NEEDS
@pytest.mark.matrix
@pytest.mark.parametrize(
    "name",
    [
        "llama dp2 tp4 recompute=True",
        "qwen3 dp2 tp2 cp2 colossalai_cp level1",
        "qwen3_moe dp4 tp2 ep4 recompute=True level1",
        "qwen3 dp2 tp2 pp2 m2 level1 rank 4",
    ],
)
def test_hand_strategies_are_compiled_as_predicted(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.mindformers_audits", "--python", str(PYTHON), "--only", name]
    command += ["--out", str(tmp_path / "rows.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
