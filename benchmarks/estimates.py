"""Whether a configuration has one price: `estimate`, `plan --layouts uniform` with all degrees pinned, and `estimate --plan`.

    python -m benchmarks.estimates [--requests '* 8 *'] [--verify 10] [--most-devices 64] [--out estimates.jsonl]

Configurations are the degrees of the plans in benchmarks/data/corpus.json, in uniform layouts and whatever memory they need.
`--verify N`: of the first N with so many devices at most, MindSpore compiles the network with at most two blocks of every run of
equal ones; collectives of one rank of every stage, as predicted and as compiled, are compared.

Each result is a line of JSON in `--out`; a case that stands there is not run again. Exit code 1 if prices or collectives differ.
"""

import argparse
import contextlib
import fnmatch
import io
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

from benchmarks.corpus_requests import REQUESTS, Request
from ms_symtensor.cli import main as symtensor

CORPUS = Path(__file__).parent / "data" / "corpus.json"
PINS = ("--fix", "--max", "--memory-limit")
NOT_UNIFORM = ("optimizer_weight_shard_size",)
EQUAL = 1e-9
FIGURES = ("step_time_s", "peak_memory_B")

Result = dict[str, Any]


def configuration(request: Request, degrees: dict[str, Any], recomputed: int) -> list[str]:
    """What `estimate` and `plan` take for the network of `request` with such degrees."""
    arguments = iter(request.arguments)
    common = []
    for one in arguments:
        if one in PINS:
            next(arguments)
        else:
            common.append(one)
    level = degrees["optimizer_level"]
    if (
        degrees["pipeline_stages"] * degrees["micro_batch_num"] > 1
    ):  # MindSpore's programs in micro-batches know no more
        level = min(level, 1)
    most = int(request.arguments[2]) // degrees["pipeline_stages"] // degrees["model_parallel"]  # width is cut too
    experts = math.gcd(degrees["expert_parallel"], most)
    pins = {**degrees, "optimizer_level": level, "expert_parallel": experts, "recompute": recomputed}
    given = [f"--fix={name}={_text(value)}" for name, value in pins.items() if name not in NOT_UNIFORM]
    return [*common, "--memory-limit", "1e6", *given]


def _text(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def answer(*arguments: str) -> dict[str, Any]:
    """What a command answers, or the message with which it refuses."""
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        code = symtensor([*arguments, "--json"])
    found: dict[str, Any] = json.loads(printed.getvalue()) if code == 0 else {"message": said.getvalue().strip()}
    return found


def check(name: str, arguments: list[str]) -> Result:
    """The three prices of a configuration."""
    with tempfile.TemporaryDirectory() as directory:
        start = time.process_time()
        priced = answer("estimate", *arguments)
        seconds = time.process_time() - start
        planned = answer("plan", *arguments, "--layouts", "uniform", "--out", directory)
        if "message" in priced or "message" in planned:
            refused = "message" in priced and "message" in planned
            return {"case": name, "refused": refused, "messages": [priced.get("message"), planned.get("message")]}
        again = answer("estimate", "--plan", directory)
    file = [abs(other[figure] / priced[figure] - 1) for figure in FIGURES for other in (planned, again)]
    return {
        "case": name, "step_time_s": priced["step_time_s"], "differs": max(file), "estimate_s": round(seconds, 2),
    }  # fmt: skip


def verified(arguments: list[str]) -> Result:
    """What MindSpore's compiler says of the collectives of a configuration."""
    from benchmarks.verdicts import judged
    from ms_symtensor.strategy.file import load

    with tempfile.TemporaryDirectory() as directory:
        answer("plan", *arguments, "--layouts", "uniform", "--out", directory)
        return judged(load(directory))


def passed(result: Result) -> bool:
    return bool(result.get("refused", result.get("differs", 1.0) <= EQUAL)) and not result.get("wrong")


def line(result: Result) -> str:
    if "refused" in result:
        return f"{result['case']:60s} {'refused' if result['refused'] else 'REFUSED BY ONE'}: {result['messages']}"
    text = f"{result['case']:60s} {result['step_time_s']:9.4f} s, differs by {result['differs']:.0e}"
    text += f", estimate in {result['estimate_s']:.2f} s"
    if "ranks" in result:
        text += f", {result['collectives']} collectives on {result['ranks']} ranks {result['wrong'] or 'equal'}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--requests", default="*", help="only those that match, such as 'llama2_* 8 *'")
    parser.add_argument("--verify", type=int, default=0, help="so many are compiled")
    parser.add_argument("--most-devices", type=int, default=64, help="of those that are compiled")
    parser.add_argument("--out", type=Path, default=Path("estimates.jsonl"))
    chosen = parser.parse_args()
    corpus = json.loads(chosen.corpus.read_text(encoding="utf-8"))
    kept = chosen.out.read_text().splitlines() if chosen.out.exists() else []
    results = {one["case"]: one for one in map(json.loads, kept)}
    left = chosen.verify
    for request in REQUESTS:
        plan = corpus.get(request.text, {"message": ""})
        if "message" in plan or not fnmatch.fnmatchcase(request.text, chosen.requests):
            continue
        arguments = configuration(request, plan["degrees"], plan["recomputed_blocks"])
        result = results.get(request.text) or check(request.text, arguments)
        if left and "differs" in result and int(request.arguments[2]) <= chosen.most_devices:
            left -= 1
            if "ranks" not in result:
                result = {**result, **verified(arguments)}
        if result != results.get(request.text):
            print(line(result), flush=True)
            results[request.text] = result
            chosen.out.write_text("".join(json.dumps(one) + "\n" for one in results.values()))
    every = list(results.values())
    priced = [one for one in every if "differs" in one]
    print(
        f"{len(every)} configurations, {len(priced)} priced, the same in {sum(map(passed, priced))};"
        f" refused by both commands: {sum(one.get('refused', False) for one in every)};"
        f" compiled: {sum('ranks' in one for one in every)}"
    )
    return 0 if all(map(passed, every)) else 1


if __name__ == "__main__":
    sys.exit(main())
