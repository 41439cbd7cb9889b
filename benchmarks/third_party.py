"""What becomes of the networks that people have: captured, planned, verified and proved, in a table.

    python -m benchmarks.third_party [--networks resnet50 bert …] [--device-num 8] [--prove-on 2] [--python ENV/bin/python]
    python -m benchmarks.third_party --breadth [--until planned]

Without `--python` a virtual environment is made and mindcv, mindone and MindSpore are installed in it from PyPI (some 2 GB). Each
network is that of `third_party_networks`, at reduced sizes. What stops one stands in its row; docs/limits/networks.md has the
reasons. `--breadth`: models of mindcv as they come, of which dropped paths keep many from a proof. Exit code 1 if one of them did
not get as far as `--until` says.
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
BREADTH = (
    "vit_b_32_224", "cait_xxs24_224", "densenet121", "mobilenet_v3_small_100", "shufflenet_v2_x1_0", "ghostnet_050",
    "regnet_x_200mf", "pvt_v2_b0", "poolformer_s12", "mlp_mixer_s_p32", "squeezenet1_0", "googlenet", "repvgg_a0",
    "skresnet18", "convit_tiny", "visformer_tiny", "xcit_tiny_12_p16_224", "mobilevit_xx_small", "edgenext_xx_small",
    "coat_lite_tiny", "res2net50", "resnest14", "mnasnet_050", "vgg11", "shufflenet_v1_g3_05", "mixnet_s", "rexnet_09",
    "crossvit_9", "volo_d1", "pit_ti", "hrnet_w32", "repmlp_t224", "dpn92", "convnextv2_atto", "BiT_resnet50", "inception_v4",
    "xception", "cmt_tiny", "halonet_50t", "swinv2_tiny_window8", "pvt_tiny", "mobilenet_v1_025", "seresnet18",
    "nasnet_a_4x1056", "efficientnet_v2_s",
)  # fmt: skip
"""One of almost every family that mindcv has."""
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


def steps(python: Path, name: str, device_num: int, prove_on: int, folder: Path, number: int = len(STEPS)) -> list[str]:
    """What stopped the network at each of the first STEPS, "" for those that were done; none behind the first that was not."""
    place, plan, few = f"{NETWORKS}:{name}", str(folder / name), str(folder / f"{name}_few")

    def proved() -> str:
        return run(python, "plan", place, "--device-num", str(prove_on), "--out", few) or run(python, "prove", few)

    made = (
        lambda: run(python, "capture", place, "--out", str(folder / f"{name}.json")),
        lambda: run(python, "plan", place, "--device-num", str(device_num), "--out", plan),
        lambda: run(python, "verify", plan),
        proved,
    )
    found: list[str] = []
    for step in made[:number]:
        found.append(step())
        if found[-1]:
            break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+")
    parser.add_argument("--breadth", action="store_true", help="models of mindcv as they come")
    parser.add_argument("--until", choices=STEPS, default=STEPS[-1])
    parser.add_argument("--device-num", type=int, default=8)
    parser.add_argument("--prove-on", type=int, default=2)
    parser.add_argument("--python", type=Path)
    arguments = parser.parse_args()
    names = arguments.networks or ([f"mindcv_{name}" for name in BREADTH] if arguments.breadth else NAMES)
    number = STEPS.index(arguments.until) + 1
    done = 0
    with tempfile.TemporaryDirectory(prefix="third_party_") as folder:
        python = arguments.python or installed(Path(folder) / "venv")
        columns = ("network", *STEPS, "what stops it")
        print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
        for name in names:
            found = steps(python, name, arguments.device_num, arguments.prove_on, Path(folder), number)
            marks = ["no" if one else "yes" for one in found] + [""] * (len(STEPS) - len(found))
            stops = found[-1].replace("|", "/").replace("\n", "; ")
            print(f"| {' | '.join((name, *marks, stops))} |", flush=True)
            done += len(found) == number and not found[-1]
    print(f"{done} of {len(names)} {arguments.until}")
    return 0 if done == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
