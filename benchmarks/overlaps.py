"""Whether gathers of weights wait for each other as predicted where MindSpore is told `computation_allgather_overlap`.

    python -m benchmarks.overlaps [--seconds 600] [--out overlaps.jsonl]

40 networks of the zoo with narrow dims and uniform layouts on 8 devices: data and tensor parallelism, levels of the optimizer's
sharding, recomputation, in turn. Each is compiled with the setting on; the control edges between gathers are those that were
predicted, pair by pair. Each result is a line of JSON in `--out`; what stands there is not run again. No compile begins later
than `--seconds` after the start. Exit code 1 if edges differ; 3 if cases are left.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

from model_zoo import dimensions_of
from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.runtime import DEFAULT, runtime_of
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.uniform.estimate import estimate
from ms_symtensor.uniform.layout import FULL_RECOMPUTATION, NO_RECOMPUTATION, Degrees, UniformLayout

DEVICES, SETTING = 8, "overlap.computation_allgather_overlap"
NETWORKS = ("llama2_7b", "llama3_8b", "qwen3_32b", "mixtral_8x7b", "gpt2_xl")
NARROW = {
    "hidden_size": 256, "intermediate_size": 512, "num_heads": 8, "n_kv_heads": 8, "head_dim": 32, "vocab_size": 2048,
}  # fmt: skip
TENSOR = (1, 2, 4, 8)


def cases() -> Iterator[tuple[str, TransformerConfig, UniformLayout]]:
    """Network and layout, by name."""
    for number in range(40):
        name, tensor = NETWORKS[number % 5], TENSOR[number // 5 % 4]
        config = dimensions_of(name, num_layers=2 + number // 20, seq_length=256, batch_size=8)
        small = {**NARROW, "experts": config.experts and replace(config.experts, intermediate_size=256)}
        config = replace(config, **small)
        level = OptimizerLevel(1 + 2 * (number % 3 == 2))
        sequence = tensor > 1 and (number % 2 == 0 or config.experts is not None)
        recomputation = FULL_RECOMPUTATION if number % 4 == 3 and level is OptimizerLevel.LEVEL1 else NO_RECOMPUTATION
        layout = UniformLayout(
            Degrees(DEVICES // tensor, tensor, sequence), recompute=recomputation, optimizer_level=level
        )
        words = f"{config.num_layers} layers, tp {tensor}, sp {sequence}, level{int(level)}"
        yield (
            f"{name}, {words}, {'full' if recomputation is FULL_RECOMPUTATION else 'no'} recomputation",
            config,
            layout,
        )


def run(config: TransformerConfig, layout: UniformLayout) -> dict[str, Any]:
    """Predicted and compiled control edges of one case."""
    runtime = runtime_of(DEFAULT, SETTING)
    request = Request(
        load("atlas_800t_a2"), DEVICES, config.batch_size, config.seq_length, 1 << 40, config.name, {}, runtime=runtime
    )
    plan, graph = estimate(config, layout, request)
    verdict = verify_network(config, plan, graph)
    found = verdict.comparison
    if found is None:
        return {"reason": verdict.reason, "equal": False}
    return {
        "predicted": len(found.predicted_order),
        "compiled": len(found.compiled_order),
        "equal": found.equal,
        "differs": sorted(set(found.predicted_order) ^ set(found.compiled_order))[:4],
    }


def verify_network(config: TransformerConfig, plan: Any, graph: Any) -> Any:
    """The verdict on `plan` for a network of these dims, which no plan names."""
    from model_zoo.network import build
    from ms_symtensor.bridge.apply.apply import apply, parallel_config
    from ms_symtensor.bridge.judge.verify import judge

    cell, inputs = build(config)
    apply(cell, graph, plan)
    return judge(cell, inputs, graph, plan.stage, parallel_config(plan), 0)[0]


def main() -> int:
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--seconds", type=float, default=float("inf"))
    command_line.add_argument("--out", type=Path, default=Path("overlaps.jsonl"))
    chosen, started = command_line.parse_args(), time.monotonic()
    results = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    done = {one["case"] for one in results}
    for name, config, layout in cases():
        if name in done:
            continue
        if time.monotonic() - started > chosen.seconds:
            return 3
        results.append({"case": name, **run(config, layout)})
        with chosen.out.open("a") as out:
            out.write(json.dumps(results[-1]) + "\n")
        print(results[-1])
    print(f"{sum(one['equal'] for one in results)} of {len(results)} programs: control edges as predicted")
    return 0 if all(one["equal"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
