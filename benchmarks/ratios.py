"""The plan against those that people write by hand, all priced by the same formulas.

    python -m benchmarks.ratios [--models llama2_7b …] [--device-num 8 64 256] [--out ratios.jsonl]

For every network of the zoo: predicted step time relative to our plan (above 1: ours is faster) of Megatron's usual plan
(tensor parallelism over a node, as few stages as fit, data parallelism over the rest) and of data parallelism with the best
optimizer sharding, two samples per device; and of MindFormers' configurations (benchmarks/data), with their own batch and
sequence, on as many copies as there is room for. `oom`: it does not fit; `-`: there is no such plan.

Each result is a line of JSON in `--out`; a case that stands there is not run again. Exit code 1 if any plan by hand is faster.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.hand_plans import Expert, Task, experts, megatron_usual, priced, task, zero_data_parallel
from model_zoo import PUBLISHED
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.search.best import best_plan
from ms_symtensor.strategy.plan import Plan

CLUSTER = "atlas_800t_a2"
SAMPLES = 2
"""Per device."""

ROUNDING = 1e-6
"""Sums in another order."""

Result = dict[str, Any]


def compare(model: str, device_num: int) -> Iterator[Result]:
    """Our plan and those by hand."""
    of = task(model, load(CLUSTER), device_num, SAMPLES * device_num)
    ours = _ours(of)
    yield _result(of, "ours", "", ours, ours)
    by_hand: tuple[tuple[str, Callable[[Task], Any]], ...] = (
        ("megatron", megatron_usual),
        ("zero", zero_data_parallel),
    )
    for kind, find in by_hand:
        found = find(of)
        yield _result(of, kind, *((str(found[0]), found[1]) if found is not None else ("", None)), ours)
    for one in experts():
        scaled = one.at(device_num) if one.model == model else None
        if scaled is not None:
            yield _against_expert(scaled)


def _against_expert(one: Expert) -> Result:
    of = one.task(load(CLUSTER))
    try:
        theirs = priced(of, one.hand)
    except (InputError, InvalidStrategyError) as error:
        print(f"{one.name}: {error}", file=sys.stderr)
        theirs = None
    return _result(of, f"expert {one.name}", str(one.hand), theirs, _ours(of))


def _ours(of: Task) -> Plan | None:
    try:
        return best_plan(of.network, of.request)
    except InfeasibleError:
        return None


def _result(of: Task, kind: str, text: str, theirs: Plan | None, ours: Plan | None) -> Result:
    def seconds(plan: Plan | None) -> float | None:
        return None if plan is None else plan.prediction.step_time_s

    return {
        "model": of.config.name, "device_num": of.device_num, "kind": kind, "text": text,
        "batch": of.config.batch_size, "seq_length": of.config.seq_length,
        "step_time_s": seconds(theirs), "fits": theirs is not None and theirs.prediction.fits,
        "peak_B": theirs.prediction.peak_memory_B if theirs is not None else None,
        "ours_s": seconds(ours), "ours": "" if ours is None else shown(ours),
    }  # fmt: skip


def shown(plan: Plan) -> str:
    """The shape of a plan."""
    sequence = " sp" if plan.sequence_parallel else ""
    return (
        f"dp{plan.data_parallel} mp{plan.model_parallel}{sequence} pp{plan.pipeline_stages} mbn{plan.micro_batch_num}"
        f" zero{int(plan.settings.optimizer_level)} recompute {len(plan.settings.recompute)}"
    )


def slower(result: Result) -> bool:
    """Whether a plan by hand that fits is faster than ours, or ours is missing."""
    if not result["fits"]:
        return False
    return result["ours_s"] is None or result["ours_s"] > result["step_time_s"] * (1 + ROUNDING)


def line(result: Result) -> str:
    theirs, ours = result["step_time_s"], result["ours_s"]
    ratio = "-" if theirs is None or ours is None else f"{theirs / ours:.3f}" + ("" if result["fits"] else " oom")
    mark = "SLOWER " if slower(result) else ""
    ours_text = f"{ours:.3f} s" if ours is not None else "no plan fits"
    return (
        f"{mark}{result['model']:17s} {result['device_num']:5d}  {result['kind']:35s} {ratio:>10s}  {result['text']:32s}"
        f" ours {ours_text} {result['ours']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--device-num", nargs="+", type=int, default=[8, 64, 256])
    parser.add_argument("--out", type=Path, default=Path("ratios.jsonl"))
    chosen = parser.parse_args()
    results = [json.loads(text) for text in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    known = {(r["model"], r["device_num"]) for r in results}
    for device_num in chosen.device_num:
        for model in chosen.models:
            if (model, device_num) in known:
                continue
            start = time.perf_counter()
            new = list(compare(model, device_num))
            print("\n".join(map(line, new)), f"({time.perf_counter() - start:.0f} s)", flush=True)
            with chosen.out.open("a") as file:
                file.writelines(json.dumps(result) + "\n" for result in new)
            results += new
    print("\n".join(table(results)))
    return 1 if any(map(slower, results)) else 0


KINDS = {"megatron": "Megatron's usual", "zero": "data parallel, ZeRO", "expert": "MindFormers"}


def table(results: list[Result]) -> list[str]:
    """Rows of models, columns of kinds; in a cell an entry per number of devices."""
    numbers = sorted({r["device_num"] for r in results})
    rows = [
        f"| {' / '.join(map(str, numbers))} devices | {' | '.join(KINDS.values())} |",
        "| --- |" + " --- |" * len(KINDS),
    ]
    for model in dict.fromkeys(r["model"] for r in results):
        cells = []
        for kind in KINDS:
            found = [r for r in results if r["model"] == model and r["kind"].startswith(kind)]
            cells.append(" / ".join(_cell([r for r in found if r["device_num"] == n]) for n in numbers))
        rows.append(f"| {model} | {' | '.join(cells)} |")
    return rows


def _cell(results: list[Result]) -> str:
    texts = []
    for r in results:
        if r["step_time_s"] is None or not r["fits"]:
            texts.append("oom" if r["step_time_s"] is not None and r["ours_s"] is not None else "-")
        else:
            texts.append(f"{r['step_time_s'] / r['ours_s']:.2f}" if r["ours_s"] is not None else "ours missing")
    return ", ".join(texts) or "-"


if __name__ == "__main__":
    sys.exit(main())
