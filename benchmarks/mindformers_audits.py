"""`symtensor audit` of MindFormers' own networks under hand strategies: how often MindSpore compiles what is predicted.

    python -m benchmarks.mindformers_audits --python ENV/bin/python [--out FILE.jsonl] [--only TEXT] [--again]

ENV has MindSpore and MindFormers (`benchmarks.mindformers_files` makes one of each version). Every case of
`mindformers_audit_cases` runs in a process of its own, one at a time; its line in `--out` keeps it from being run again, but for
`--again`. Exit code 1 if less than 95 % are equal, or one is refused.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.mindformers_audit_cases import Case, cases

os.environ.setdefault("GLOG_v", "4")

ROOT = Path(__file__).parents[1]
RATE = 0.95
LIMIT_S = 600.0
"""Seconds that one case may take (empirical: the slowest takes a fifth on two cores)."""
MARK = "audited: "
Row = dict[str, Any]


def audit(case: Case) -> Row:
    """What `audit` finds, in this process."""
    import ms_symtensor
    from ms_symtensor.bridge.compiler.host import import_mindspore
    from ms_symtensor.report.verdict_report import audit_text

    mindspore = import_mindspore()
    device_num = case.degrees.device_num
    with ms_symtensor.described_cluster(device_num, case.rank):
        import mindformers
        from mindspore.nn.utils import no_init_parameters

        from benchmarks.mindformers_models import NETWORKS

        context: Row = {"enable_parallel_optimizer": True} if case.level else {}
        if case.level:
            context["parallel_optimizer_config"] = {"optimizer_level": case.level}
        mindspore.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=device_num, global_rank=case.rank, full_batch=True,
            pipeline_stages=case.degrees.stages, **context,
        )  # fmt: skip
        with no_init_parameters():
            network, inputs = NETWORKS[case.network](case.layers, case.degrees)
        network.set_train()
        found = ms_symtensor.audit(network, *inputs, device_num=device_num, rank=case.rank)
    print(audit_text(found), flush=True)
    verdict, compared = found.verdict, found.verdict.comparison
    return {
        "mindformers": mindformers.__version__,
        "mindspore": verdict.mindspore,
        "equal": verdict.passed,
        "collectives": compared.compiled_collectives if compared is not None else None,
        "reason": verdict.reason,
        "differences": list(compared.differences) if compared is not None else [],
        "unsynchronised": list(verdict.unsynchronised),
        "activations_B": [compared.predicted_activations_B, compared.compiled_activations_B]
        if compared is not None
        else [],
    }


def run(case: Case, python: str) -> Row:
    """`audit` in a process of its own; what broke it off is the reason."""
    command = [python, "-m", "benchmarks.mindformers_audits", "--case", case.name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"equal": False, "reason": f"not ready after {LIMIT_S:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return dict(json.loads(line.removeprefix(MARK)))
    return {
        "equal": False,
        "reason": "\n".join(done.stderr.strip().splitlines()[-4:]) or f"exit code {done.returncode}",
    }


def table(rows: Sequence[tuple[Case, Row]]) -> str:
    """The table of Markdown."""
    lines = [
        "| network and degrees | devices | collectives | equal | what differs |",
        "| --- | --- | --- | --- | --- |",
    ]
    for case, row in rows:
        told = "; ".join([row["reason"], *row.get("differences", ()), *row.get("unsynchronised", ())][:4]).strip("; ")
        found = row.get("collectives")
        values = (
            case.name,
            case.degrees.device_num,
            "" if found is None else found,
            "yes" if row["equal"] else "**no**",
            told,
        )
        lines.append("| " + " | ".join(str(v).replace("|", "/").replace("\n", " ") for v in values) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=Path, default=Path("mindformers_audits.jsonl"))
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--again", action="store_true", help="run those that stand in --out, too")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case:
        print(MARK + json.dumps(audit(next(one for one in cases() if one.name == chosen.case))), flush=True)
        return 0
    known: dict[str, Row] = {}
    if chosen.out.exists():
        known = {one["case"]: one for one in map(json.loads, chosen.out.read_text(encoding="utf-8").splitlines())}
    wanted = [one for one in cases() if chosen.only in one.name]
    for one in wanted:
        if one.name not in known or chosen.again:
            known[one.name] = run(one, chosen.python)
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"case": one.name, **known[one.name]}) + "\n")
    rows = [(one, known[one.name]) for one in wanted]
    equal, refused = sum(row["equal"] for _, row in rows), sum(row.get("collectives") is None for _, row in rows)
    print(table(rows))
    print(f"{equal} of {len(rows)} equal, {refused} refused")
    return 0 if equal >= RATE * len(rows) and not refused else 1


if __name__ == "__main__":
    sys.exit(main())
