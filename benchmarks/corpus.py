"""The corpus: what `symtensor plan` answers to some eighty requests, kept in a file and compared with what it answers later.

    python -m benchmarks.corpus record FILE [--requests 'llama2_*'] [--certify]
    python -m benchmarks.corpus compare FILE [--requests 'llama2_*'] [--tolerance 0.02] [--out NEW]
    python -m benchmarks.corpus verify FILE [--requests '* 8 *'] --out VERDICTS

`record` plans the requests of benchmarks/corpus_requests.py that do not stand in FILE; `compare` plans those of FILE again and
shows what differs: step, peak, degrees, collectives, the message where there is no plan. What stands in NEW is not planned
again. benchmarks/data/corpus.json is such a FILE; `benchmarks.results --corpus` keeps the figures of the newest one, and of
one of certified plans (`--certify`), for docs/results/corpus.md.
`verify` plans those of FILE that have a plan, and has MindSpore compile them with at most two blocks of every run of equal
ones, one rank of every stage (benchmarks.verdicts).

Every request is a process of its own, niced, one after the other: its processor seconds (imports and files too) and its peak
memory are those of `symtensor plan`. `loops`: these seconds in times of those of a fixed loop of plain Python in the same
process, which stay the same where a machine's speed does not. Collectives are those of one rank of every stage, by kind.

Exit code 1 where a step is more than the tolerance slower, or a request is refused on one side only.
"""

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.corpus_requests import REQUESTS, Request

DEGREES = (
    "data_parallel", "model_parallel", "sequence_parallel", "context_parallel", "expert_parallel", "pipeline_stages",
    "micro_batch_num", "pp_interleave_num", "optimizer_level", "optimizer_weight_shard_size",
)  # fmt: skip
FIGURES = (
    "step_time_s", "time_breakdown_s", "peak_memory_B", "memory_breakdown_B", "memory_limit_B", "optimality_gap",
)  # fmt: skip
MEMORY_BOUND = 0.95
"""A plan with such a share of the limit as its peak, or with recomputation, is bound by memory."""
ROUNDING = 1e-9

ONE = """
import contextlib, io, json, resource, sys, time
from collections import Counter
printed, said = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
    from ms_symtensor.cli import main
    code = main(["plan", *sys.argv[2:], "--json", "--out", sys.argv[1]])
cpu_s = time.process_time()
peak_MiB = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
start, table = time.process_time(), {}
for number in range(1_000_000):
    table[number & 1023, number >> 16] = str(number)
found = {"processor_s": cpu_s, "loops": cpu_s / (time.process_time() - start), "process_MiB": peak_MiB}
if code == 2:
    found["message"] = said.getvalue().strip().splitlines()[-1].removeprefix("symtensor: error: ")
else:
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.strategy.file import load, load_graph
    plan, count, size_B = load(sys.argv[1]), Counter(), Counter()
    for number, program in enumerate(programs_of(plan, load_graph(sys.argv[1]))):
        for one in program.collectives(number * plan.device_num // plan.pipeline_stages):
            count[one.kind] += 1
            size_B[one.kind] += one.size_B
    found["plan"] = json.loads(printed.getvalue())
    found["collectives"] = {kind: {"count": count[kind], "size_B": size_B[kind]} for kind in sorted(count)}
print(json.dumps(found))
"""

Answer = dict[str, Any]


def answer(request: Request, more: Sequence[str] = ()) -> Answer:
    """What a process of its own answers to `request` with `more` options."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["nice", sys.executable, "-c", ONE, directory, *request.arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{request.text}: {done.stderr.strip()}")
    found = json.loads(done.stdout.splitlines()[-1])
    cost = {name: round(found[name], 2) for name in ("processor_s", "loops", "process_MiB")}
    if "message" in found:
        return {"message": found["message"], **cost}
    plan = found["plan"]
    return {
        **{name: plan[name] for name in FIGURES},
        "degrees": {name: plan[name] for name in DEGREES},
        "recomputed_blocks": len(plan["recompute"]),
        "swap_optimizer": plan.get("swap_optimizer", False),
        "collectives": found["collectives"],
        **cost,
    }


def record(file: Path, wanted: Iterable[Request], more: Sequence[str] = ()) -> dict[str, Answer]:
    """The answers in `file`, once it has those to all that is `wanted`; written after each of them."""
    answers: dict[str, Answer] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for request in tqdm([one for one in wanted if one.text not in answers], disable=not sys.stderr.isatty()):
        answers[request.text] = answer(request, more)
        order = [one.text for one in REQUESTS if one.text in answers]
        text = json.dumps({name: answers[name] for name in order}, indent=1)
        file.with_suffix(".new").write_text(text + "\n", encoding="utf-8")
        file.with_suffix(".new").replace(file)
        print(line(request.text, answers[request.text]), flush=True)
    return answers


PLAN = """
import sys
from ms_symtensor.cli import main
sys.exit(main(["plan", *sys.argv[2:], "--out", sys.argv[1]]))
"""


def verified(file: Path, wanted: Iterable[Request]) -> bool:
    """Whether MindSpore accepts the plans of `wanted`, and agrees with them; verdicts are kept in `file`, after each of them."""
    os.environ.setdefault("GLOG_v", "4")
    from benchmarks.verdicts import judged
    from ms_symtensor.strategy.file import load

    known: dict[str, Answer] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for request in wanted:
        if request.text not in known:
            with tempfile.TemporaryDirectory() as directory:
                command = [sys.executable, "-c", PLAN, directory, *request.arguments]
                subprocess.run(command, capture_output=True, check=True)
                known[request.text] = judged(load(directory))
            file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(f"{request.text:60s} {known[request.text]}", flush=True)
    print(f"accepted and equal: {sum(not one['wrong'] for one in known.values())} of {len(known)} plans")
    return not any(one["wrong"] for one in known.values())


def line(name: str, found: Answer) -> str:
    cost = f"{found['processor_s']:6.2f} s {found['loops']:5.1f} loops {found['process_MiB']:4.0f} MiB"
    if "message" in found:
        return f"{name:60s} {cost}  {found['message']}"
    return f"{name:60s} {cost}  {found['step_time_s']:9.4f} s {found['peak_memory_B'] / 2**30:6.2f} GiB  {shown(found)}"


def shown(found: Answer) -> str:
    """The degrees of a plan in short."""
    of = found["degrees"]
    return (
        f"dp{of['data_parallel']} mp{of['model_parallel']}{' sp' * of['sequence_parallel']} cp{of['context_parallel']}"
        f" ep{of['expert_parallel']} pp{of['pipeline_stages']} mbn{of['micro_batch_num']} v{of['pp_interleave_num']}"
        f" zero{of['optimizer_level']} recompute {found['recomputed_blocks']}{' swap' * found['swap_optimizer']}"
    )


def is_memory_bound(found: Answer) -> bool:
    """Whether a plan would be faster on devices with more memory, as far as the plan tells."""
    if "message" in found:
        return False
    return found["recomputed_blocks"] > 0 or found["peak_memory_B"] > MEMORY_BOUND * found["memory_limit_B"]


def is_refused_on_one_side(old: Answer, new: Answer) -> bool:
    return ("message" in old) != ("message" in new)


def differences(old: Answer, new: Answer) -> list[str]:
    """What differs between two answers to one request, but for seconds and memory of the process."""
    if is_refused_on_one_side(old, new):
        return [f"refused: {new['message']}" if "message" in new else f"planned: {shown(new)}"]
    if "message" in old:
        return [] if old["message"] == new["message"] else [f"message: {old['message']} -> {new['message']}"]
    found = []
    for name, key in (("step", "step_time_s"), ("peak", "peak_memory_B")):
        if abs(new[key] / old[key] - 1) > ROUNDING:
            found.append(f"{name} x{new[key] / old[key]:.4f}")
    if shown(old) != shown(new):
        found.append(f"{shown(old)} -> {shown(new)}")
    kinds = sorted({*old["collectives"], *new["collectives"]})
    before, after = ([found["collectives"].get(kind, _NONE) for kind in kinds] for found in (old, new))
    found += [
        f"{kind} {a['count']} of {a['size_B'] / 2**30:.2f} GiB -> {b['count']} of {b['size_B'] / 2**30:.2f} GiB"
        for kind, a, b in zip(kinds, before, after, strict=True)
        if a != b
    ]
    return found


_NONE = {"count": 0, "size_B": 0}


def compared(old: Mapping[str, Answer], new: Mapping[str, Answer], tolerance: float) -> tuple[list[str], bool]:
    """Lines that tell what differs, and whether all is as good as it was."""
    lines, good = [], True
    for name in new:
        slower = _ratio(old[name], new[name]) > 1 + tolerance
        wrong = slower or is_refused_on_one_side(old[name], new[name])
        found = differences(old[name], new[name])
        lines += [f"{'WORSE ' if wrong else ''}{name}", *(f"    {text}" for text in found)] if found else []
        good = good and not wrong
    ratios = [_ratio(old[name], new[name]) for name in new if not ({"message"} & {*old[name], *new[name]})]
    if ratios:
        lines.append(f"step: {statistics.mean(ratios):.4f} of the old one on average, {max(ratios):.4f} at most")
    refused = [sum("message" in found[name] for name in new) for found in (old, new)]
    lines.append(f"{len(new)} requests, refused: {refused[0]} -> {refused[1]}")
    lines += [_cost(what, [old[name] for name in new], list(new.values()), key) for what, key in _COSTS]
    return lines, good


_COSTS = (("processor seconds", "processor_s"), ("in loops", "loops"), ("MiB of a process", "process_MiB"))


def _ratio(old: Answer, new: Answer) -> float:
    return 1.0 if {"message"} & {*old, *new} else float(new["step_time_s"] / old["step_time_s"])


def _cost(what: str, old: list[Answer], new: list[Answer], key: str) -> str:
    each = [[found[key] for found in side] for side in (old, new)]

    def pair(figure: Callable[[list[float]], float]) -> str:
        return " -> ".join(f"{figure(side):.1f}" for side in each)

    return f"{what:18s} sum {pair(sum)}, median {pair(statistics.median)}, most {pair(max)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["record", "compare", "verify"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--requests", default="*", help="only those that match, such as 'llama2_* 8 *'")
    parser.add_argument(
        "--tolerance", type=float, default=0.02, help="a step so much slower is a failure (%(default)s)"
    )
    parser.add_argument("--certify", action="store_true", help="of record: the plans are certified")
    parser.add_argument("--out", type=Path, help="where the new answers, or verdicts, are kept")
    chosen = parser.parse_args()
    wanted = [one for one in REQUESTS if fnmatch.fnmatchcase(one.text, chosen.requests)]
    if chosen.what == "record":
        answers = record(chosen.file, wanted, ["--certify"] * chosen.certify).values()
        bound = sum(map(is_memory_bound, answers))
        print(
            f"{len(answers)} answers, {bound} plans bound by memory, {sum('message' in one for one in answers)} refused"
        )
        return 0
    old = json.loads(chosen.file.read_text(encoding="utf-8"))
    wanted = [one for one in wanted if one.text in old]
    if not wanted:
        parser.error(f"{chosen.file} has no request like {chosen.requests}")
    if chosen.what == "verify":
        if chosen.out is None:
            parser.error("verify: give --out, where verdicts are kept")
        return 0 if verified(chosen.out, [one for one in wanted if "message" not in old[one.text]]) else 1
    with tempfile.TemporaryDirectory() as directory:
        new = record(chosen.out or Path(directory) / "new.json", wanted)
    lines, good = compared(old, {one.text: new[one.text] for one in wanted}, chosen.tolerance)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
