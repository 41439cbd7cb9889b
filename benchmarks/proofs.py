"""Whether plans and hand-written strategies train the same model as one device: the zoo, run on local processes.

    python -m benchmarks.proofs [--models llama2_7b …] [--cases DP4 …] [--out proofs.jsonl] [--seconds 240]
    python -m benchmarks.proofs --table --out proofs.jsonl

Cases: the plan for 2, 4 and 8 devices; on 4 devices Megatron's tensor parallelism of 2 (with data parallelism of 2) and 4, each
with and without sequence parallelism, pure data parallelism, that with ZeRO levels 1 to 3, and with everything recomputed; two
pipeline stages by hand, with tensor parallelism, ZeRO and recompute, and planned.
Each is made for the published network, then reduced (`ms_symtensor.bridge.proof.reduction`), compiled for Ascend, executed,
and its loss, every gradient, and weights and momenta after `--steps` steps compared with one process. Where a plan needs more
memory than a device has, it is made for larger devices.

Each result is a line of JSON in `--out`; a case that stands there as equal is not run again, and the last line of a case
counts. No case is begun after `--seconds`. Exit code 1 if something is not equal or could not be run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.proof_cases import CASES, Case, plan_of
from model_zoo import PUBLISHED
from ms_symtensor.bridge.proof.launch import Processes, started
from ms_symtensor.bridge.proof.prove import Request, prove_plan
from ms_symtensor.bridge.proof.trial import References
from ms_symtensor.errors import SymTensorError

Result = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(PUBLISHED), choices=PUBLISHED)
    parser.add_argument("--attention", default="flash")
    parser.add_argument("--cases", nargs="+", default=[c.name for c in CASES], choices=[c.name for c in CASES])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("proofs.jsonl"))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many seconds")
    parser.add_argument("--table", action="store_true", help="print what stands in --out, and run nothing")
    chosen = parser.parse_args(arguments)
    known = {key_of(result): result for result in read(chosen.out)}
    if not chosen.table:
        wanted = [
            (model, case)
            for device_num in sorted({case.device_num for case in CASES})
            for model in chosen.models
            for case in CASES
            if case.device_num == device_num and case.name in chosen.cases and case.suits(model)
            if not known.get((model, chosen.attention, case.name, chosen.steps), {}).get("equal")
        ]
        for result in results(wanted, chosen.attention, chosen.steps, time.monotonic() + chosen.seconds):
            print(line(result), flush=True)
            with chosen.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
            known[key_of(result)] = result
    print(table(list(known.values())))
    return 0 if all(result["equal"] for result in known.values()) else 1


def read(path: Path) -> list[Result]:
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def key_of(result: Mapping[str, Any]) -> tuple[str, str, str, int]:
    return result["model"], result["attention"], result["case"], result["steps"]


def results(wanted: Sequence[tuple[str, Case]], attention: str, steps: int, end: float) -> Iterator[Result]:
    """The results of models and cases, until `end` (of time.monotonic); processes serve until one of them fails."""
    references = References()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    with ExitStack() as stack:
        processes: Processes | None = None
        for model, case in wanted:
            if time.monotonic() > end:
                return
            start = time.perf_counter()
            result = {"model": model, "attention": attention, "case": case.name, "steps": steps, "commit": commit}
            if processes is None or processes.ranks != case.device_num:
                stack.close()
                folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
                processes = stack.enter_context(started(Path(folder), case.device_num))
            try:
                request = Request(steps, processes=processes, references=references)
                proof = prove_plan(plan_of(case, model, attention), request=request)
            except SymTensorError as error:
                stack.close()
                processes = None
                text = f"{type(error).__name__}: {' '.join(str(error).split())}"
                yield {**result, "equal": False, "error": text, "seconds": time.perf_counter() - start}
                continue
            yield {
                **result, "equal": proof.equal, "loss": proof.loss_rel_error, "gradients": proof.worst.error,
                "worst": proof.worst.name, "parameters": len(proof.parameters), "reduction": dict(proof.reduction),
                "wrong": [d.name for d in proof.wrong], "seconds": time.perf_counter() - start,
            }  # fmt: skip


def line(result: Mapping[str, Any]) -> str:
    """One case for people."""
    name = f"{result['model']:18s} {result['attention']:5s} {result['case']:22s}"
    if "error" in result:
        return f"{name} FAILED {result['error']}"
    state = "equal    " if result["equal"] else "NOT EQUAL"
    return (
        f"{name} {state} loss {result['loss']:.1e}  gradients {result['gradients']:.1e} ({result['worst']}, of"
        f" {result['parameters']}) {result['seconds']:5.1f} s"
    )


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Models by cases, each with its largest relative error, and how many are equal."""
    cell = {(r["model"], r["case"]): r for r in found}
    cases = [c.name for c in CASES if any(r["case"] == c.name for r in found)]
    rows = [f"| | {' | '.join(cases)} |", f"| --- |{' --- |' * len(cases)}"]
    rows += [
        f"| {model} | {' | '.join(_cell(cell.get((model, name))) for name in cases)} |"
        for model in PUBLISHED
        if any(r["model"] == model for r in found)
    ]
    equal = sum(result["equal"] for result in found)
    commits = ", ".join(sorted({result["commit"] for result in found}))
    seconds = sorted(result["seconds"] for result in found)
    median = f", median {seconds[len(seconds) // 2]:.0f} s" if seconds else ""
    return "\n".join([*rows, "", f"equal: {equal} of {len(found)}{median}; run on {commits}"])


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    if "error" in result:
        return "FAILED"
    return f"{'' if result['equal'] else 'NOT EQUAL '}{max(result['loss'], result['gradients']):.0e}"


if __name__ == "__main__":
    sys.exit(main())
