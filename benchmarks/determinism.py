"""Whether the same input gives the same bytes: plans in processes with different hash seeds, and under several Pythons.

    python -m benchmarks.determinism [--runs 20] [--python python3.10 --python python3.12] [--models llama2_7b …]

Every run is `symtensor plan` in a process of its own with another PYTHONHASHSEED; what it writes is compared byte by byte, but
for timing.json, which says how long the search took. Exit code 1 if anything differs.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = {"llama2_7b": (8, 16), "mixtral_8x7b": (64, 128), "qwen1_5_72b": (64, 64)}
"""Devices and batch."""

ROOT = Path(__file__).parents[1]
TIMED = "timing.json"


def written(python: str, model: str, seed: int) -> dict[str, str]:
    """The files of a plan for `model`, each with the digest of its bytes."""
    device_num, batch = CASES[model]
    with tempfile.TemporaryDirectory() as directory:
        command = [
            python, "-m", "ms_symtensor", "plan", model, "--device-num", str(device_num), "--global-batch-size", str(batch),
            "--out", directory,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, capture_output=True, env=environment, cwd=ROOT)
        files = sorted(file for file in Path(directory).rglob("*") if file.is_file() and file.name != TIMED)
        return {str(f.relative_to(directory)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="per Python")
    parser.add_argument(
        "--python", action="append", help="an interpreter with the requirements installed (default: this one)"
    )
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    chosen = parser.parse_args()
    same = True
    for model in chosen.models:
        first: dict[str, str] = {}
        for python in chosen.python or [sys.executable]:
            different: dict[str, None] = {}
            for seed in range(chosen.runs):
                found = written(python, model, seed)
                first = first or found
                different |= {name: None for name in {*first, *found} if first.get(name) != found.get(name)}
            same = same and not different
            state = (
                f"{len(first)} files, the same bytes" if not different else f"DIFFERENT: {', '.join(sorted(different))}"
            )
            print(f"{model:13s} {python}: {chosen.runs} runs, {state}", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
