"""MindFormers' own networks, built from planned files and audited: `symtensor mindformers --check`, two plans each.

    python -m benchmarks.mindformers_written --python ENV/bin/python [--out FILE.jsonl] [--only TEXT]

ENV has MindSpore and MindFormers (`benchmarks.mindformers_files` makes one). The training files are those that the wheel ships,
with four blocks, on 8 devices. Each is planned freely and for two stages. A line in `--out` keeps a case from being run again.
Exit code 1 if one differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.mindformers_files import ROOT, shipped
from ms_symtensor.targets.yaml_text import with_value

BLOCKS, DEVICES = 4, 8
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("pretrain_qwen3_32b_4k.yaml", {}),
    "telechat3": ("pretrain_telechat3_36b.yaml", {}),
    "qwen3_moe": ("pretrain_qwen3_30b_a3b_4k.yaml", {}),
    "deepseek3": ("pretrain_deepseek3_671b.yaml", {"first_k_dense_replace": 1, "n_routed_experts": 64}),
}
"""The shipped file, and dims with which it fits 8 devices."""
PINS: dict[str, tuple[str, ...]] = {"free": (), "two stages": ("--fix", "pipeline_stages=2")}
DEGREES = {
    "data_parallel": "dp", "model_parallel": "tp", "context_parallel": "cp", "expert_parallel": "ep", "pipeline_stages": "pp",
    "pp_interleave_num": "v", "micro_batch_num": "m", "optimizer_level": "level",
}  # fmt: skip
LIMIT_S = 1800.0


def run(name: str, pins: str, python: Path, cluster: str = "atlas_800t_a2") -> dict[str, Any]:
    """What `symtensor mindformers --check --json` says of one case."""
    file, dims = FILES[name]
    text = next(one for one in shipped(python) if one.name == file).read_text(encoding="utf-8")
    for key, value in {"num_hidden_layers": BLOCKS, "offset": 0, **dims}.items():
        text = with_value(text, ("model", "model_config", key), value)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, file)
        place.write_text(text, encoding="utf-8")
        command = [
            str(python),
            "-m",
            "ms_symtensor",
            "mindformers",
            str(place),
            "--cluster",
            cluster,
            "--check",
            "--json",
        ]
        command += ["--device-num", str(DEVICES), *PINS[pins]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "4"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    start = done.stdout.find("{")
    if start < 0:
        return {"case": f"{name}, {pins}", "reason": done.stderr.strip()[-600:]}
    found = json.loads(done.stdout[start:])
    return {"case": f"{name}, {pins}", "degrees": {key: found["planned"][key] for key in DEGREES}, **found["check"]}


def row(found: dict[str, Any]) -> list[str]:
    """A row of the table."""
    if "collectives" not in found:
        return [found["case"], "", "", "", "**no**", found["reason"]]
    of, collectives = found["degrees"], found["collectives"]
    degrees = " ".join(f"{short}{of[key]}" for key, short in DEGREES.items() if of[key] and of[key] != 1)
    passed = found["accepted"] and found["gradients_synchronised"] and collectives["equal"]
    differ = "; ".join([found["reason"], *collectives["differences"][:4]]).strip("; ")
    return [
        found["case"], degrees, str(found["rank"]), str(collectives["compiled"] or ""), "yes" if passed else "**no**", differ
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--out", type=Path, default=Path("mindformers_written.jsonl"))
    parser.add_argument("--only", default="", help="cases with this text in their name")
    chosen = parser.parse_args()
    known = {}
    if chosen.out.exists():
        known = {one["case"]: one for one in map(json.loads, chosen.out.read_text(encoding="utf-8").splitlines())}
    rows = []
    for name, pins in ((name, pins) for name in FILES for pins in PINS):
        case = f"{name}, {pins}"
        if chosen.only not in case:
            continue
        if case not in known:
            known[case] = run(name, pins, chosen.python)
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[case]) + "\n")
        rows.append(row(known[case]))
    for line in (["file and plan", "degrees", "rank", "collectives", "equal", "what differs"], ["---"] * 6, *rows):
        print("| " + " | ".join(one.replace("|", "/").replace("\n", " ") for one in line) + " |")
    return 0 if all(one[4] == "yes" for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
