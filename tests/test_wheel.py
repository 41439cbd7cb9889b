"""The wheel: one name at the top level, the zoo inside it, and planning without MindSpore."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAN = """
import sys
sys.modules["mindspore"] = sys.modules["model_zoo"] = None
import ms_symtensor
from ms_symtensor.cli import main
assert ms_symtensor.__file__.startswith(sys.argv[1])
sys.exit(main(["plan", "llama2_7b", "--num-layers", "2", "--device-num", "2", "--out", sys.argv[2]]))
"""


@pytest.mark.matrix
def test_a_wheel_plans_without_mindspore_and_takes_no_name_of_others(tmp_path: Path) -> None:
    source, unpacked = tmp_path / "source", tmp_path / "unpacked"
    for name in ("ms_symtensor", "model_zoo"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run([sys.executable, "-m", *build], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    assert {path.name.partition("-")[0] for path in unpacked.iterdir()} == {"ms_symtensor"}
    assert list(unpacked.rglob("LICENSE"))
    command = [sys.executable, "-c", PLAN, str(unpacked), str(tmp_path / "plan")]
    there = os.environ | {"PYTHONPATH": str(unpacked)}
    done = subprocess.run(command, env=there, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
