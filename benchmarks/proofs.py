"""Whether plans and hand-written strategies train the same model as one device: the zoo, run on local processes.

    python -m benchmarks.proofs [--models llama2_7b …] [--attention flash self] [--ranks 2 4 8] [--steps 2]

Rows: the plan for 2, 4 and 8 devices; on 4 devices Megatron's tensor parallelism of 2 (with data parallelism of 2) and 4, each
with and without sequence parallelism, pure data parallelism, that with ZeRO levels 1 to 3, and with everything recomputed.
Each is made for the published network, then reduced (`ms_symtensor.bridge.proof.reduction`), compiled for Ascend, executed,
and its loss, every gradient, and weights and momenta after `--steps` steps compared with one process. Where a plan needs more
memory than a device has, it is made for larger devices. Exit code 1 if something is not equal or could not be run.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.bridge.proof.launch import Processes, started
from ms_symtensor.bridge.proof.prove import Proof, Request, prove_plan
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, SymTensorError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport

CLUSTER = "atlas_800t_a2"
LAYERS = 2
UNLIMITED_B = 1 << 44


@dataclass(frozen=True)
class Case:
    """A strategy for `device_num` devices: planned, or by hand with these degrees and settings."""

    name: str
    device_num: int
    planned: bool = False
    model_parallel: int = 1
    sequence_parallel: bool = False
    level: OptimizerLevel = OptimizerLevel.NONE
    recompute: bool = False


CASES = (
    *(Case(f"plan for {n}", n, planned=True) for n in (2, 4, 8)),
    *(
        Case(f"DP{4 // tp} TP{tp}{' SP' if sequence else ''}", 4, model_parallel=tp, sequence_parallel=sequence)
        for tp in (2, 4)
        for sequence in (False, True)
    ),
    Case("DP4", 4),
    *(Case(f"DP4 ZeRO{int(level)}", 4, level=level) for level in OptimizerLevel if level),
    Case("DP2 TP2 SP recompute", 4, model_parallel=2, sequence_parallel=True, recompute=True),
)


def plan_of(case: Case, model: str, attention: str, layers: int = LAYERS) -> Plan:
    """The plan of `case` for the published network; what is written by hand is alike in all layers, `layers` are enough."""
    batch = 2 * case.device_num
    config = dimensions_of(model, batch_size=batch, attention=attention)
    if not case.planned:
        config = replace(config, num_layers=layers)
    source = {"model": model, "attention": attention, "batch_size": str(batch), "num_layers": str(config.num_layers)}
    graph = build_graph(config)
    if case.planned:
        request = {
            "device_num": case.device_num, "global_batch_size": batch, "seq_length": config.seq_length, "model": model,
            "source": source,
        }  # fmt: skip
        try:
            return plan(graph, load(CLUSTER), **request)
        except InfeasibleError:
            return plan(graph, load(CLUSTER), memory_limit_B=UNLIMITED_B, **request)
    data = case.device_num // case.model_parallel
    cuts = megatron_strategy(graph, config, data, case.model_parallel, case.sequence_parallel)
    given = {op.name: OpStrategy(*cuts[op.name]) for op in graph.ops if op.primitive and op.name in cuts}
    blocks = dict.fromkeys(op.block for op in graph.ops if op.block is not None)
    settings = Settings(
        case.device_num,
        optimizer_level=case.level,
        recompute={block: Recompute() for block in blocks} if case.recompute else {},
    )
    return Plan(
        model, graph.hash, CLUSTER, (StagePlan(given, settings),), batch, config.seq_length, data, case.model_parallel,
        case.sequence_parallel, Prediction({}, {}, True, 0), SearchReport(0, 0.0, 0.0, "by hand"), source=source,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--attention", nargs="*", default=["flash"])
    parser.add_argument("--ranks", nargs="*", type=int, default=[2, 4, 8])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--cases", nargs="*", help="only those with such names")
    chosen = parser.parse_args()
    equal = total = 0
    for ranks in chosen.ranks:
        cases = [c for c in CASES if c.device_num == ranks and (not chosen.cases or c.name in chosen.cases)]
        pairs = [(m, a, c) for m in chosen.models for a in chosen.attention for c in cases]
        for text, good in rows(pairs, ranks, chosen.steps):
            print(text, flush=True)
            equal, total = equal + good, total + 1
    print(f"equal: {equal} of {total}")
    return 0 if equal == total else 1


def rows(pairs: list[tuple[str, str, Case]], ranks: int, steps: int) -> Iterator[tuple[str, bool]]:
    """A line for each model, attention and case, and whether it is equal; processes serve until one of them fails."""
    with ExitStack() as stack:
        processes: Processes | None = None
        for model, attention, case in pairs:
            name = f"{model:18s} {attention:5s} {case.name:22s}"
            start = time.perf_counter()
            if processes is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
                processes = stack.enter_context(started(Path(folder), ranks))
            try:
                proof = prove_plan(plan_of(case, model, attention), request=Request(steps, processes=processes))
            except SymTensorError as error:
                stack.close()
                processes = None
                yield f"{name} FAILED {type(error).__name__}: {' '.join(str(error).split())}", False
                continue
            yield f"{name} {_row(proof)} {time.perf_counter() - start:5.1f} s", proof.equal


def _row(proof: Proof) -> str:
    worst = proof.worst
    state = "equal    " if proof.equal else "NOT EQUAL"
    return f"{state} loss {proof.loss_rel_error:.1e}  gradients {worst.error:.1e} ({worst.name}, of {len(proof.parameters)})"


if __name__ == "__main__":
    sys.exit(main())
