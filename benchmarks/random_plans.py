"""Plans that nobody chose, against MindSpore's compiler: random networks of the zoo, devices, batches, options and pins.

    python -m benchmarks.random_plans [--number 40] [--first 0] [--seed 0] [--models llama2_7b …] [--out random_plans.jsonl]

Networks are those of the zoo and of the published config.json files in tests/data/configs. Request N of a seed is always the
same. It is planned by `symtensor plan`; requests that are refused, or take longer than a minute, are counted and shown. The
compiler judges the others, each in a process of its own, with at most two blocks of every run of equal ones, on one rank of every
stage: accepted or not, collectives, gradient sums, and the peak of activations.

Each result is a line of JSON in `--out`; a request that stands there is not run again. Exit code 1 if a plan is rejected or
differs.
"""

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

from benchmarks.verdicts import BLOCKS, judgement, verdicts
from model_zoo import PUBLISHED
from ms_symtensor.cost.overlap import OVERLAPS
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER, SCHEDULERS
from ms_symtensor.strategy.file import load

ROOT = Path(__file__).parents[1]
CONFIGS = [file for file in sorted(ROOT.glob("tests/data/configs/*.json")) if file.stem != "class_defaults"]
MODELS = (*sorted(PUBLISHED), *(str(file.relative_to(ROOT)) for file in CONFIGS))
LIMIT_S = 60
"""Seconds that a plan may take here."""
PEAK_TOLERANCE = 0.03
"""Peaks that are further apart are counted."""

LAYERS = (4, 8, 12)
DEVICES = (2, 4, 8, 16, 32, 64)
SAMPLES = (1, 2, 4, 8)
"""Of a step, per device; a batch of half a sample per device is drawn, too."""
LENGTHS = (1024, 2048, 4096, 8192)
CLUSTERS = ("atlas_800t_a2", "atlas_800t_a2", "atlas_800t_a2", "atlas_800t_a3", "cloudmatrix384", "a100_80g")
"""Each is drawn as often as it stands here."""
OPTIONS = (
    "--dtype float16", "--dtype float32", "--attention self", "--lora 16", "--hide gradients,weights", "--memory-limit 24",
    "--memory-limit 40", "--runtime mindformers_graph", "--experts by_sample", "--experts dropless", "--token-groups 2",
    "--load-imbalance 1.5", "--exact-loss", "--target mindformers",
)  # fmt: skip
PINS = (
    "--fix pipeline_stages=2", "--fix pipeline_stages=4", "--fix micro_batch_num=2", "--fix micro_batch_num=4",
    "--fix pp_interleave_num=2", "--fix model_parallel=2", "--fix model_parallel=4", "--fix sequence_parallel=yes",
    "--fix sequence_parallel=no", "--fix context_parallel=2", "--fix expert_parallel=2", "--fix expert_parallel=4",
    "--fix optimizer_level=1", "--fix optimizer_level=3", "--fix data_parallel=2", "--fix recompute=full",
    "--fix recompute=select", "--fix recompute=none", "--fix recompute=2", "--fix swap_optimizer=yes",
    *(f"--fix overlap.{name}=yes" for name in OVERLAPS),
    *(f"--fix pipeline_scheduler={name}" for name in SCHEDULERS if name != DEFAULT_SCHEDULER),
    "--fix */attention/*=dp,tp", "--fix */feed_forward/*=dp,tp",
    "--max pipeline_stages=1", "--max model_parallel=2", "--layouts uniform",
)  # fmt: skip

Result = dict[str, Any]


def request(seed: int, number: int, models: Sequence[str]) -> list[str]:
    """What `symtensor plan` takes, but for the folder."""
    drawn = random.Random(f"{seed}/{number}")
    device_num = drawn.choice(DEVICES)
    batch = max(1, device_num // 2) if drawn.random() < 0.2 else device_num * drawn.choice(SAMPLES)
    more = drawn.sample(OPTIONS, drawn.choice((0, 0, 1, 1, 2))) + drawn.sample(PINS, drawn.choice((0, 1, 1, 2, 2, 3)))
    return [
        drawn.choice(models), "--device-num", str(device_num), "--global-batch-size", str(batch),
        "--num-layers", str(drawn.choice(LAYERS)), "--seq-length", str(drawn.choice(LENGTHS)),
        "--cluster", drawn.choice(CLUSTERS), *(word for text in more for word in text.split()),
    ]  # fmt: skip


def check(arguments: Sequence[str]) -> Result:
    """Plan one request, and have the compiler judge it."""
    case = {"case": " ".join(arguments)}
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "ms_symtensor", "plan", *arguments, "--out", directory]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
        except subprocess.TimeoutExpired:
            return {**case, "no_plan": f"longer than {LIMIT_S} s"}
        if done.returncode == 2:
            return {**case, "no_plan": done.stderr.strip().splitlines()[-1].removeprefix("symtensor: error: ")}
        if done.returncode:
            return {**case, "wrong": [f"exit code {done.returncode}: {done.stderr.strip()[-300:]}"], "peaks": []}
        found = verdicts(load(directory), BLOCKS)
    compared = [one.comparison for one in found if one.comparison is not None]
    peaks = [one.predicted_activations_B / max(one.compiled_activations_B, 1) for one in compared]
    return {**case, **judgement(found), "peaks": [round(peak, 4) for peak in peaks]}


def line(result: Result) -> str:
    if "no_plan" in result:
        return f"none  {result['case']}: {result['no_plan']}"
    peaks = " ".join(f"{peak:.3f}" for peak in result["peaks"])
    state = (
        f"WRONG {result['case']}: {'; '.join(result['wrong'][:3])}" if result["wrong"] else f"ok    {result['case']}"
    )
    return f"{state}: {result.get('collectives', 0)} collectives, peaks {peaks}"


def summary(results: Sequence[Result]) -> str:
    planned = [one for one in results if "no_plan" not in one]
    peaks = [peak for one in planned for peak in one["peaks"]]
    near = sum(abs(peak - 1) <= PEAK_TOLERANCE for peak in peaks)
    good = sum(not one["wrong"] for one in planned)
    return (
        f"{len(results)} requests, {len(planned)} plans: accepted, synchronised and equal {good};"
        f" peaks of activations within {PEAK_TOLERANCE:.0%} on {near} of {len(peaks)} stages"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--number", type=int, default=40, help="how many requests")
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS, metavar="MODEL")
    parser.add_argument("--out", type=Path, default=Path("random_plans.jsonl"))
    chosen = parser.parse_args()
    results = [json.loads(text) for text in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    known = {one["case"] for one in results}
    numbers = range(chosen.first, chosen.first + chosen.number)
    requests = [request(chosen.seed, number, chosen.models) for number in numbers]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for result in pool.imap(check, [one for one in requests if " ".join(one) not in known]):
            print(line(result), flush=True)
            results.append(result)
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
    print(summary(results))
    return 1 if any(one.get("wrong") for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
