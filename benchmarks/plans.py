"""Whether MindSpore's compiler accepts every plan that is emitted, and agrees with it: the zoo on 8, 64 and 256 devices.

    python -m benchmarks.plans [--models llama2_7b gpt2_xl] [--device-num 8 64 256] [--attention flash self] [--out plans.jsonl]

Plans are made for the full depth, two samples per device, over pipeline stages too. The compiler is given the network with at
most two blocks of every run of equal ones, as many micro-batches as stages, one rank of every stage. Rows
tell accepted or not, every gradient summed over the right ranks, collectives (Send and Receive too) predicted and compiled. Where
nothing fits the memory of one device there is no plan; the message is shown.

Each result is a line of JSON in `--out`; a case that stands there is not run again. Exit code 1 if a plan is rejected or differs.
"""

import argparse
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

from benchmarks.hand_plans import task
from benchmarks.ratios import shown
from benchmarks.verdicts import judged
from model_zoo import PUBLISHED
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.best import best_plan

CLUSTER = "atlas_800t_a2"

Result = dict[str, Any]


def check(model: str, attention: str, device_num: int, batch: int, seq_length: int | None) -> Result:
    """Plan one model at full depth, and have the compiler judge its first blocks."""
    of = task(model, load(CLUSTER), device_num, batch, attention=attention, seq_length=seq_length)
    case = {"case": f"{model} {attention} {device_num}"}
    try:
        plan = best_plan(of.network, of.request)
    except InfeasibleError as error:
        return {**case, "no_plan": str(error)}
    return {**case, "plan": shown(plan), "fits": plan.prediction.fits, **judged(plan)}


def passed(result: Result) -> bool:
    return "no_plan" not in result and result["fits"] and not result["wrong"]


def line(result: Result) -> str:
    if "no_plan" in result:
        return f"{result['case']:30s} no plan: {result['no_plan']}"
    state = "equal" if passed(result) else f"DIFFERS {result['wrong'][:3]}"
    return (
        f"{result['case']:30s} {result['plan']:50s} {result['ranks']:2d} ranks, {result['collectives']:4d} collectives"
        f" {state}, {result['seconds']:.1f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--attention", nargs="*", default=["flash"], choices=["flash", "self"])
    parser.add_argument("--device-num", nargs="*", type=int, default=[8, 64, 256])
    parser.add_argument("--batch-per-device", type=int, default=2)
    parser.add_argument("--seq-length", type=int)
    parser.add_argument("--out", type=Path, default=Path("plans.jsonl"))
    chosen = parser.parse_args()
    results = [json.loads(text) for text in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    known = {result["case"] for result in results}
    for device_num in chosen.device_num:
        for model in chosen.models:
            for attention in chosen.attention:
                if f"{model} {attention} {device_num}" in known:
                    continue
                result = check(model, attention, device_num, chosen.batch_per_device * device_num, chosen.seq_length)
                print(line(result), flush=True)
                with chosen.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                results.append(result)
                gc.collect()
    planned = [result for result in results if "no_plan" not in result]
    print(f"accepted, synchronised and equal: {sum(map(passed, planned))} of {len(planned)} plans")
    return 0 if all(map(passed, planned)) else 1


if __name__ == "__main__":
    sys.exit(main())
