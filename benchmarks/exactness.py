"""How often MindSpore's compiler agrees with the prediction: collectives, parameters, peak of live activations.

    python -m benchmarks.exactness [--models llama2_7b …] [--cases 45] [--first 0] [--out results.jsonl] [--time-limit 300]
    python -m benchmarks.exactness --sample

Every case is a network of the zoo (two layers at published width) with a planned, a Megatron-style or a random valid
strategy, on 2 to 64 devices, with random settings (optimizer sharding, recompute, enable_alltoall) and a random rank. It is
predicted, compiled for Ascend on this machine, and compared: every collective (kind, ranks, bytes, forward, backward or
recomputed), every parameter's slice, the gradient sum of every parameter, the peak of live activations (within 5 %).

Cases from 1000 on (`--first 1000`) recompute random selections of the operators of their blocks.

Each result is a line of JSON in `--out`; a case that stands there is not run again. Needs mindspore 2.7.1 to 2.10; exit
code 1 if collectives or parameters differ anywhere, or less than 95 % of the peaks are within 5 %.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

from benchmarks.exactness_cases import (
    MODELS,
    SAMPLE,
    Case,
    cases,
    config_of,
    name_of,
    small_config_of,
    tolerance,
)
from model_zoo.config import TransformerConfig
from ms_symtensor.errors import CompilerError
from ms_symtensor.program.parameters import is_synchronised
from ms_symtensor.program.partition import partition
from ms_symtensor.tensor.graph import Graph

PEAK_TOLERANCE = 0.05
PEAK_RATE = 0.95

Result = dict[str, Any]


def compile_case(cell: Any, inputs: Sequence[Any], graph: Graph, one: Case) -> Any:
    """The program that MindSpore compiles for `one`; CompilerError where it rejects it."""
    import numpy

    from ms_symtensor.bridge.apply.apply import remove
    from ms_symtensor.bridge.apply.recompute import set_recompute, unset_recompute
    from ms_symtensor.bridge.apply.training import training_cell
    from ms_symtensor.bridge.capture.capture import primitive_of
    from ms_symtensor.bridge.compiler.compile import compile_rank
    from ms_symtensor.bridge.compiler.host import import_mindspore
    from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
    from ms_symtensor.strategy.primitives import context_settings, strategies_by_primitive

    settings = context_settings(one.stage.settings)
    parallel = ParallelConfig(**settings.pop("parallel_optimizer_config", {}), **settings)
    remove(cell, by_hand=True)
    for op, strategy in strategies_by_primitive(graph, one.stage).values():
        primitive_of(cell, op).shard(strategy.inputs, strategy.outputs)
    blocks = dict(cell.cells_and_names())
    for name, recomputation in one.stage.settings.recompute.items():
        set_recompute(blocks[name], recomputation)
    sens = import_mindspore().Tensor(numpy.float32(1))
    try:
        return compile_rank(
            training_cell(cell),
            *inputs,
            sens,
            device_num=one.stage.settings.device_num,
            rank=one.rank,
            parallel=parallel,
        )
    finally:
        unset_recompute(cell)


def run(cell: Any, inputs: Sequence[Any], graph: Graph, one: Case) -> Result:
    """Predict, compile and compare one case."""
    from ms_symtensor.bridge.judge.comparison import compare

    start = time.perf_counter()
    predicted = partition(graph, one.stage)
    spent = time.perf_counter() - start
    result: Result = {"case": one.name, "text": str(one), "model": one.model, "kind": one.kind}
    try:
        compiled = compile_case(cell, inputs, graph, one)
    except CompilerError as error:
        return result | {"accepted": False, "differences": [f"rejected: {error}"]}
    found = compare(graph, predicted, compiled)
    wrong = sorted(n for n, p in predicted.parameters.items() if p.requires_grad and not is_synchronised(p, one.rank))
    parameters = [d for d in found.differences if d.startswith("parameter")]
    return result | {
        "accepted": True,
        "collectives": found.compiled_collectives,
        "differences": list(found.differences),
        "parameters_equal": not parameters and found.predicted_parameters_B == found.compiled_parameters_B,
        "collectives_equal": len(parameters) == len(found.differences),
        "unsynchronised_equal": wrong == sorted(found.unsynchronised),
        "unsynchronised": [sorted(found.unsynchronised), wrong],
        "peak_B": [found.predicted_activations_B, found.compiled_activations_B],
        "seconds": [spent, compiled.seconds],
    }


def is_near(result: Result) -> bool:
    return result["accepted"] and tolerance(*result["peak_B"]) <= PEAK_TOLERANCE


def line(result: Result) -> str:
    """One case for people."""
    if not result["accepted"]:
        return f"REJECTED {result['text']}: {result['differences'][0][:300]}"
    predicted_B, compiled_B = result["peak_B"]
    marks = [
        mark
        for mark, wrong in (
            ("COLLECTIVES", not result["collectives_equal"]),
            ("PARAMETERS", not result["parameters_equal"]),
            ("SUMS", not result["unsynchronised_equal"]),
            ("PEAK", not is_near(result)),
        )
        if wrong
    ]
    return (
        f"{'+'.join(marks) or 'ok':12s} {result['text']}: {result['collectives']} collectives, peak {predicted_B / 1e9:.3f} of "
        f"{compiled_B / 1e9:.3f} GB ({predicted_B / max(compiled_B, 1):.3f})"
    )


def table(results: Iterable[Result]) -> str:
    """Rates per network and kind, and over all."""
    rows: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        for key in ((result["model"], result["kind"]), ("all", "")):
            rows.setdefault(key, []).append(result)
    rates_of = ("collectives", "parameters", "sums", "peak")
    lines = [f"{'network':18s} {'strategies':10s} {'cases':>5s} " + " ".join(f"{name:>11s}" for name in rates_of)]
    for (model, kind), found in sorted(rows.items(), key=lambda item: (item[0][0] == "all", item[0])):
        rates = [
            sum(bool(r["accepted"] and r[field]) for r in found) / len(found)
            for field in ("collectives_equal", "parameters_equal", "unsynchronised_equal")
        ]
        near = sum(map(is_near, found)) / len(found)
        shown = " ".join(f"{100 * rate:9.1f} %" for rate in (*rates, near))
        lines.append(f"{model:18s} {kind:10s} {len(found):5d} {shown}")
    return "\n".join(lines)


def passed(results: Sequence[Result]) -> bool:
    """What the issue of this project asks for: all collectives and parameters equal, 95 % of the peaks within 5 %."""
    exact = all(r["accepted"] and r["collectives_equal"] and r["parameters_equal"] for r in results)
    return exact and sum(map(is_near, results)) >= PEAK_RATE * len(results)


def run_model(model: str, config: TransformerConfig, numbers: Iterable[int]) -> Iterator[Result]:
    """The results of the cases `numbers` of the network `config`, called `model`, one after the other."""
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    cell, inputs = build(config)
    graph = capture(cell, *inputs)
    for one in cases(model, graph, config, numbers):
        yield run(cell, inputs, graph, one)
        gc.collect()


def run_sample() -> Iterator[Result]:
    """The results of the 22 cases of SAMPLE."""
    for model, numbers in SAMPLE.items():
        yield from run_model(model, small_config_of(model), numbers)


def _append(model: str, numbers: range, out: Path) -> None:
    """Run those of the cases `numbers` of one network that are not in `out`, and write them there."""
    missing = _missing(model, numbers, out)
    for result in run_model(model, config_of(model), missing) if missing else ():
        print(line(result), flush=True)
        _write(out, result)


def _missing(model: str, numbers: range, out: Path) -> list[int]:
    known = {r["case"] for r in read(out)}
    return [n for n in numbers if name_of(model, n) not in known]


def _watch(model: str, numbers: range, out: Path, limit_s: float) -> None:
    """Run the cases of one network in a process of their own (MindSpore keeps about 1 MB of every compile).

    A case that takes longer than `limit_s` is written down as skipped, and the next one begun in a new process: MindSpore
    itself needs many minutes for some programs.
    """
    command = [
        sys.executable, "-m", "benchmarks.exactness", "--in-process", "--models", model, "--cases", str(len(numbers)),
        "--first", str(numbers.start), "--out", str(out),
    ]  # fmt: skip
    while missing := _missing(model, numbers, out):
        current, since, too_long = missing[0], time.monotonic(), False
        with subprocess.Popen(command) as process:
            while process.poll() is None:
                time.sleep(0.5)
                done = current not in _missing(model, numbers, out)
                if done:
                    current, since = next(iter(_missing(model, numbers, out)), -1), time.monotonic()
                elif time.monotonic() - since > limit_s:
                    too_long = True
                    process.kill()
                    process.wait()
        if too_long:
            _write(out, {"case": name_of(model, current), "model": model, "skipped": True})
        elif process.returncode:
            raise SystemExit(process.returncode)


def _write(out: Path, result: Result) -> None:
    with out.open("a") as file:
        file.write(json.dumps(result) + "\n")


def read(out: Path) -> list[Result]:
    return [json.loads(text) for text in out.read_text().splitlines()] if out.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--cases", type=int, default=45, help="cases per network")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--out", type=Path, default=Path("exactness.jsonl"))
    parser.add_argument("--time-limit", type=float, default=300, help="seconds for one case")
    parser.add_argument("--sample", action="store_true", help="the 22 small cases of the test suite instead")
    parser.add_argument("--in-process", action="store_true", help="one network, in this process")
    chosen = parser.parse_args(arguments)
    if chosen.in_process:
        _append(chosen.models[0], range(chosen.first, chosen.first + chosen.cases), chosen.out)
        return 0
    if chosen.sample:
        results = []
        for result in run_sample():
            results.append(result)
            print(line(result), flush=True)
        print(table(results))
        return 0 if passed(results) else 1
    for model in chosen.models:
        _watch(model, range(chosen.first, chosen.first + chosen.cases), chosen.out, chosen.time_limit)
    found = [r for r in read(chosen.out) if r["model"] in chosen.models]
    results = [r for r in found if not r.get("skipped")]
    print(table(results))
    if len(results) < len(found):
        names = ", ".join(r["case"] for r in found if r.get("skipped"))
        print(f"skipped, compiled for more than {chosen.time_limit:.0f} s: {names}")
    return 0 if passed(results) else 1


if __name__ == "__main__":
    sys.exit(main())
