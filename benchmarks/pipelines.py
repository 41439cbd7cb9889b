"""How often MindSpore's compiler agrees with the predicted programs of pipeline stages.

    python -m benchmarks.pipelines [--models llama2_7b …] [--cases 12] [--first 0] [--small] [--out pipelines.jsonl]
    python -m benchmarks.pipelines --sample

Every case is a network of the zoo with four blocks on 2 or 4 stages of 1 to 4 devices, from `--first 20` on one stage of 2 to 8
devices that accumulates gradients: planned, Megatron-style or random
strategies, different ones on every stage, uneven layers, optimizer sharding, recompute. One rank of every stage is compiled
for Ascend on this machine and compared: every collective, Send and Receive (kind, ranks, bytes, forward, backward or
recomputed), every parameter's slice, the gradient sum of every parameter; and the peak of live activations, in the order of the
compiled control edges.

Each result is a line of JSON in `--out`; a case that stands there is not run again. Exit code 1 if anything differs, or if
fewer than 95 % of the stages' peaks lie within 5 %.
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GLOG_v", "4")

from benchmarks.exactness import PEAK_RATE, PEAK_TOLERANCE
from benchmarks.exactness_cases import tolerance
from benchmarks.pipeline_cases import MODELS, SAMPLE, SAMPLE_LAYERS, PipelineCase, case, micro_config
from model_zoo.dimensions import TransformerConfig
from ms_symtensor.program.parameters import is_synchronised
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph

Result = dict[str, Any]


def plan_of(one: PipelineCase, graph: Graph) -> Plan:
    """`one` as a plan, of which only strategies, stages and settings are used."""
    return Plan(
        model=one.model, graph_hash=graph.hash, cluster="", stages=one.stages, global_batch_size=0, seq_length=0,
        data_parallel=1, model_parallel=1, sequence_parallel=False, prediction=Prediction({}, {}, True, 0),
        search=SearchReport(0, 0.0, 0.0, one.kind), pipeline=one.pipeline,
    )  # fmt: skip


def run(cell: Any, inputs: Sequence[Any], graph: Graph, one: PipelineCase) -> Result:
    """Predict, compile and compare one rank of every stage; `inputs` are those of a micro-batch."""
    from ms_symtensor.bridge.apply.apply import apply
    from ms_symtensor.bridge.judge.verify_stages import judge_rank

    plan = plan_of(one, graph)
    apply(cell, graph, plan)
    programs = partition_stages(graph, one.stages, one.pipeline)
    differences, collectives, equal_sums, seconds = [], 0, True, 0.0
    peaks_B = []
    for program in programs:
        rank = program.ranks[one.number % len(program.ranks)]
        verdict = judge_rank(cell, inputs, graph, plan, programs, rank)
        seconds += verdict.compile_time_s
        if verdict.comparison is None:
            differences.append(f"rank {rank} rejected: {verdict.reason}")
            continue
        found = verdict.comparison
        collectives += found.compiled_collectives
        peaks_B.append([found.predicted_activations_B, found.compiled_activations_B])
        differences += [f"rank {rank}: {text}" for text in found.differences]
        if found.predicted_parameters_B != found.compiled_parameters_B:
            differences.append(f"rank {rank}: bytes of parameters")
        wrong = {
            name
            for name, p in program.parameters.items()
            if p.requires_grad and not is_synchronised(p, rank - program.ranks.start)
        }
        equal_sums = equal_sums and wrong == set(found.unsynchronised)
    return {
        "case": one.name, "text": str(one), "collectives": collectives, "differences": differences, "sums": equal_sums,
        "peaks_B": peaks_B, "seconds": seconds,
    }  # fmt: skip


def passed(result: Result) -> bool:
    return not result["differences"] and bool(result["sums"])


def apart(result: Result) -> list[float]:
    """How far the predicted peak of every stage is from the compiled one, as a fraction of the latter."""
    return [tolerance(*peaks) for peaks in result["peaks_B"]]


def summary(results: Sequence[Result]) -> str:
    """The rates over all cases."""
    stages = [one for result in results for one in apart(result)]
    near = sum(one <= PEAK_TOLERANCE for one in stages)
    return (
        f"{sum(map(passed, results))} of {len(results)} cases agree; peaks of activations within {PEAK_TOLERANCE:.0%} on {near}"
        f" of {len(stages)} stages, {max(stages, default=0.0):.1%} apart at most"
    )


def all_passed(results: Sequence[Result]) -> bool:
    """All collectives, parameters and sums equal, 95 % of the peaks within 5 %."""
    stages = [one for result in results for one in apart(result)]
    return all(map(passed, results)) and sum(one <= PEAK_TOLERANCE for one in stages) >= PEAK_RATE * len(stages)


def line(result: Result) -> str:
    """One case for people."""
    if passed(result):
        peaks = " ".join(f"{predicted_B / max(compiled_B, 1):.3f}" for predicted_B, compiled_B in result["peaks_B"])
        return f"ok    {result['text']}: {result['collectives']} collectives, peaks {peaks}, {result['seconds']:.1f} s"
    return f"WRONG {result['text']}: {'; '.join(result['differences'][:3]) or 'sums of gradients'}"


def run_sample(model: str) -> Iterator[Result]:
    """The results of the cases of SAMPLE."""
    return run_model(model, SAMPLE[model], micro_config(model, small=True, num_layers=SAMPLE_LAYERS))


def run_model(model: str, numbers: Sequence[int], config: TransformerConfig) -> Iterator[Result]:
    """The results of the cases `numbers` of one network."""
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    cell, inputs = build(config)
    graph = capture(cell, *inputs)
    for number in numbers:
        yield run(cell, inputs, graph, case(model, graph, config, number))
        gc.collect()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--cases", type=int, default=12, help="cases per network")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--small", action="store_true", help="small dims, which compile faster")
    parser.add_argument("--out", type=Path, default=Path("pipelines.jsonl"))
    parser.add_argument("--sample", action="store_true", help="the cases of the test suite instead")
    chosen = parser.parse_args(arguments)
    if chosen.sample:
        results = [result for model in SAMPLE for result in run_sample(model)]
        print("\n".join([*map(line, results), summary(results)]))
        return 0 if all_passed(results) else 1
    results = [json.loads(text) for text in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    known = {result["case"] for result in results}
    for model in chosen.models:
        numbers = [n for n in range(chosen.first, chosen.first + chosen.cases) if not _has(known, model, n)]
        for result in run_model(model, numbers, micro_config(model, chosen.small)) if numbers else ():
            print(line(result), flush=True)
            with chosen.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
            results.append(result)
    print(summary(results))
    return 0 if all_passed(results) else 1


def _has(known: set[str], model: str, number: int) -> bool:
    return any(name.startswith(f"{model}/") and name.endswith(f"/{number}") for name in known)


if __name__ == "__main__":
    sys.exit(main())
