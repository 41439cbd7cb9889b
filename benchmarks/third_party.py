"""What becomes of the networks that people have: captured, planned, verified and proved, in a table.

    python -m benchmarks.third_party [--networks resnet50 bert …] [--device-num 8] [--prove-on 2] [--python ENV/bin/python]

Without `--python` a virtual environment is made and mindcv, mindone and MindSpore are installed in it from PyPI (some 2 GB). Each
network is that of `third_party_networks`, at reduced sizes. What stops one stands in its row; docs/limits/networks.md has the
reasons. Exit code 1 if one of them is not proved.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
NETWORKS = ROOT / "benchmarks" / "third_party_networks.py"
REQUIRED = ("mindspore==2.10.0", "numpy<2", "scipy", "sympy", "pyyaml", "tqdm", "mindcv==0.3.0", "mindone==0.5.0")
NAMES = (
    "resnet50", "efficientnet", "convnext", "swin", "inception", "alexnet", "lstm", "transformer", "bert", "gpt2", "t5", "clip",
    "unet", "dit", "flux", "video", "mamba2",
)  # fmt: skip
STEPS = ("captured", "planned", "verified", "proved")
DIFFERENCES = ("rejected", "WRONG", "NOT ", "not predicted", " differences", ": predicted ")
"""What the lines of `verify` and `prove` have in them that say what is wrong."""
MOST_LINES = 4
"""Of them are shown."""
STEP_S = 900.0
"""Seconds that one step may take (empirical: the slowest takes a third of it on two cores)."""


def installed(folder: Path) -> Path:
    """The Python of a new environment in `folder` that has everything."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", *REQUIRED], check=True)
    return python


def run(python: Path, *arguments: str) -> str:
    """What stopped `symtensor` with these arguments; empty where nothing did."""
    command = [str(python), "-m", "ms_symtensor", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=STEP_S)
    except subprocess.TimeoutExpired:
        return f"not ready after {STEP_S:g} s"
    return "" if done.returncode == 0 else reason(done.returncode, done.stdout, done.stderr)


def reason(code: int, output: str, errors: str) -> str:
    """The lines that say why: the refusal, or what was found to differ, or where the process broke off."""
    if code == 2:
        return "\n".join(line for line in errors.splitlines() if line.startswith("symtensor: error: "))
    wrong = [line.strip() for line in output.splitlines() if any(word in line for word in DIFFERENCES)]
    return "\n".join(wrong[:MOST_LINES] or errors.strip().splitlines()[-MOST_LINES:] or [f"exit code {code}"])


def steps(python: Path, name: str, device_num: int, prove_on: int, folder: Path) -> list[str]:
    """What stopped the network at each of STEPS, "" for those that were done; none behind the first that was not."""
    place, plan, few = f"{NETWORKS}:{name}", str(folder / name), str(folder / f"{name}_few")
    found = [run(python, "capture", place, "--out", str(folder / f"{name}.json"))]
    found += [] if found[-1] else [run(python, "plan", place, "--device-num", str(device_num), "--out", plan)]
    found += [] if found[-1] else [run(python, "verify", plan)]
    if not found[-1]:
        stopped = run(python, "plan", place, "--device-num", str(prove_on), "--out", few)
        found.append(stopped or run(python, "prove", few))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=NAMES)
    parser.add_argument("--device-num", type=int, default=8)
    parser.add_argument("--prove-on", type=int, default=2)
    parser.add_argument("--python", type=Path)
    arguments = parser.parse_args()
    names = arguments.networks
    done = 0
    with tempfile.TemporaryDirectory(prefix="third_party_") as folder:
        python = arguments.python or installed(Path(folder) / "venv")
        columns = ("network", *STEPS, "what stops it")
        print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        for name in names:
            found = steps(python, name, arguments.device_num, arguments.prove_on, Path(folder))
            marks = ["no" if one else "yes" for one in found] + [""] * (len(STEPS) - len(found))
            stops = found[-1].replace("|", "/").replace("\n", "; ")
            print(f"| {' | '.join((name, *marks, stops))} |", flush=True)
            done += len(found) == len(STEPS) and not found[-1]
    print(f"{done} of {len(names)} proved")
    return 0 if done == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
