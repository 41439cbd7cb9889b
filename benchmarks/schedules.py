"""Whether stages take their passes, and keep activations, as MindSpore's compiled programs do: all schedules.

    python -m benchmarks.schedules [--stages 2 4 8] [--seconds 600] [--out schedules.jsonl]

A network of the zoo with narrow dims, one block a model chunk, on 2, 4 and 8 stages of one device, with 1 and 2 chunks and
two numbers of micro-batches; the first, a middle and the last stage are compiled. The order of passes is read off the compiled
program (its control edges, and the order in which MindSpore lists its nodes), and so is the peak of live activations.

Each result is a line of JSON in `--out`; what stands there is not run again. No compile begins later than `--seconds` after the
start. Exit code 1 if an order differs, or a peak by more than 5 %; 3 if some are left.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

import numpy

from benchmarks.pipeline_cases import PipelineCase, micro_config
from benchmarks.pipelines import plan_of
from model_zoo.builder import build_graph
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules import SCHEDULERS
from ms_symtensor.program.settings import Settings
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.stages import pipeline_stages

MODEL, SAMPLES = "llama2_7b", 2
"""The network, and samples of a micro-batch."""

TOLERANCE = 0.05
WORK = ("MatMul", "BatchMatMul", "FlashAttentionScore")
"""Operators that tell which pass is on; others may be made for several."""

Result = dict[str, Any]
Case = tuple[str, int, int, int]
"""Schedule, stages, model chunks, micro-batches."""


def cases(stages: Sequence[int]) -> Iterator[Case]:
    """Those that MindSpore accepts; with several chunks, where stages divide the micro-batches."""
    for number in stages:
        for chunks in (1, 2):
            for micro_batches in (2 * number, 3 * number if chunks > 1 else 2 * number + 1):
                yield from ((name, number, chunks, micro_batches) for name in SCHEDULERS)


def run(case: Case, done: frozenset[str]) -> Iterator[Result]:
    """Compile and compare the first, a middle and the last stage, but for those that are `done`."""
    from model_zoo.network import build
    from ms_symtensor.bridge.apply.apply import apply, parallel_config
    from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell, whole_batch
    from ms_symtensor.bridge.apply.whole_count import set_factors
    from ms_symtensor.bridge.compiled.compiled_stage_memory import compiled_stage_peak_B, order_of_passes
    from ms_symtensor.bridge.compiler.compile import compile_rank

    name, stages, chunks, micro_batch_num = case
    wanted = [stage for stage in sorted({0, stages // 2, stages - 1}) if _name(case, stage) not in done]
    if not wanted:
        return
    config = replace(micro_config(MODEL, small=True, num_layers=stages * chunks), batch_size=SAMPLES)
    cell, inputs = build(config)
    graph = build_graph(config)
    plans, pipeline = pipeline_stages(
        graph, (1,) * stages * chunks, [{}] * stages, Settings(1), micro_batch_num, chunks, name
    )
    plan = plan_of(PipelineCase(MODEL, "planned", 0, plans, pipeline), graph)
    apply(cell, graph, plan)
    set_factors(cell, graph, build_graph(replace(config, batch_size=SAMPLES * micro_batch_num)))
    programs = partition_stages(graph, plans, pipeline)
    for stage in wanted:
        compiled = compile_rank(
            pipeline_training_cell(cell, pipeline), *whole_batch(inputs, micro_batch_num), sens(), device_num=stages,
            rank=stage, parallel=parallel_config(plan),
        )  # fmt: skip
        turns = PipelineSchedule(micro_batch_num, chunks, name).turns(stage, stages)
        yield {
            "case": _name(case, stage),
            "order": list(turns) == order_of_passes(compiled, WORK),
            "predicted_B": stage_activation_peak_B(programs[stage]),
            "compiled_B": compiled_stage_peak_B(compiled),
        }


def sens() -> Any:
    """The initial gradient."""
    import mindspore

    return mindspore.Tensor(numpy.ones((), numpy.float32))


def _name(case: Case, stage: int) -> str:
    name, stages, chunks, micro_batch_num = case
    return f"{name}, {stages} stages x {chunks}, {micro_batch_num} micro-batches, stage {stage}"


def passed(result: Result) -> bool:
    """Whether the order is the compiled one, and the peak near."""
    return bool(result["order"]) and abs(result["predicted_B"] / result["compiled_B"] - 1) <= TOLERANCE


def table(results: Sequence[Result]) -> str:
    """Results by schedule, stages and chunks, as a table of Markdown."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        name, stages = one["case"].split(", ")[:2]
        groups.setdefault((name, stages), []).append(one)
    lines = [
        "| schedule | stages x chunks | programs | order as compiled | peak furthest off |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (name, stages), every in groups.items():
        off = max(abs(one["predicted_B"] / one["compiled_B"] - 1) for one in every)
        cells = (
            name,
            stages.replace(" stages", ""),
            len(every),
            sum(one["order"] for one in every),
            f"{100 * off:.1f} %",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--stages", type=int, nargs="+", default=[2, 4, 8])
    command_line.add_argument("--seconds", type=float, default=float("inf"))
    command_line.add_argument("--out", type=Path, default=Path("schedules.jsonl"))
    chosen, started = command_line.parse_args(), time.monotonic()
    results = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    for case in cases(chosen.stages):
        for result in run(case, frozenset(one["case"] for one in results)):
            results.append(result)
            with chosen.out.open("a") as out:
                out.write(json.dumps(result) + "\n")
            order = "order as compiled" if result["order"] else "ORDER DIFFERS"
            print(
                f"{result['case']}: {order}, peak {result['predicted_B'] / result['compiled_B']:.3f} of the compiled one"
            )
            if time.monotonic() - started > chosen.seconds:
                print(f"{table(results)}\n{len(results)} stages; begin again for the rest")
                return 3
        gc.collect()
    print(table(results))
    print(f"{sum(map(passed, results))} of {len(results)} stages as compiled")
    return 0 if all(map(passed, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
