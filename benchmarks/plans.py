"""Whether MindSpore's compiler accepts every plan that is emitted, and agrees with it: the zoo on 2 to 64 devices.

    python -m benchmarks.plans [--models llama2_7b gpt2_xl] [--device-num 2 4 8 16 32 64] [--batch-per-device 2]

Plans are made for the full depth. The compiler is given the network with four blocks (with all dense blocks and two others,
where a network has both), the last of a kind not recomputed unless the plan recomputes all: further blocks would repeat these.
Rows tell accepted or not, every gradient summed over the right ranks, collectives predicted and compiled, and the activation
peak. Where nothing fits the memory of one device there is no plan; the message is shown. Exit code 1 if a plan is rejected or
differs.
"""

import argparse
import sys
from dataclasses import replace

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.bridge.apply import apply, parallel_config
from ms_symtensor.bridge.verify import Verdict, judge
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.folding import fold, kinds_of_blocks
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

SHORT = 4


def shortened(found: Plan, graph: Graph) -> Plan:
    """`found`, made for the full depth, for `graph` with a few blocks: the same strategies, as far as the operators go."""
    again = found.stage.settings.recompute
    kinds = kinds_of_blocks(graph, fold(graph))
    plain = set() if len(again) == len(_blocks(found)) else {names[-1] for names in kinds}
    recompute = {b: again[b] for names in kinds for b in names if b in again and b not in plain}
    strategies = {op.name: found.stage.strategies[op.name] for op in graph.ops if op.name in found.stage.strategies}
    settings = replace(found.stage.settings, recompute=recompute)
    return replace(found, graph_hash=graph.hash, stages=(StagePlan(strategies, settings),))


def _blocks(found: Plan) -> set[str]:
    """The block part of operator names (`layers-CellList/3-…`), to count the plan's blocks."""
    return {part for name in found.stage.strategies for part in name.split("/") if part.split("-")[0].isdigit()}


def short_depth(model: str) -> int:
    """Blocks of the network that is compiled."""
    dense = dimensions_of(model).dense_layers
    return dense + 2 if dense else SHORT


def check(model: str, attention: str, device_num: int, batch: int, seq_length: int | None) -> tuple[Plan, Verdict]:
    """Plan one model at full depth, and have the compiler judge its first blocks."""
    from model_zoo.network import build

    config = dimensions_of(model, seq_length=seq_length, batch_size=batch, attention=attention)
    found = plan(
        build_graph(config), load("atlas_800t_a2"),
        device_num=device_num, global_batch_size=batch, seq_length=config.seq_length,
    )  # fmt: skip
    small = replace(config, num_layers=short_depth(model))
    graph = build_graph(small)
    short = shortened(found, graph)
    cell, inputs = build(small)
    apply(cell, graph, short)
    verdict, _ = judge(cell, inputs, graph, short.stage, parallel_config(short), device_num // 2)
    return found, verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--attention", nargs="*", default=["flash", "self"])
    parser.add_argument("--device-num", nargs="*", type=int, default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--batch-per-device", type=int, default=2)
    parser.add_argument("--seq-length", type=int)
    chosen = parser.parse_args()
    emitted = passed = 0
    for model in chosen.models:
        for attention in chosen.attention:
            for device_num in chosen.device_num:
                name = f"{model:12s} {attention:5s} {device_num:3d}"
                try:
                    batch = chosen.batch_per_device * device_num
                    found, verdict = check(model, attention, device_num, batch, chosen.seq_length)
                except InfeasibleError as error:
                    print(f"{name}  no plan: {error}", flush=True)
                    continue
                emitted += 1
                passed += verdict.passed
                print(f"{name}  {_row(found, verdict)}", flush=True)
    print(f"accepted, synchronised and equal: {passed} of {emitted} plans")
    return 0 if passed == emitted else 1


def _row(found: Plan, verdict: Verdict) -> str:
    settings = found.stage.settings
    shape = (
        f"dp {found.data_parallel:2d} mp {found.model_parallel:2d} sp {int(found.sequence_parallel)} "
        f"zero {int(settings.optimizer_level)} recompute {len(settings.recompute):2d}"
    )
    if not verdict.accepted or verdict.comparison is None:
        return f"{shape}  FAILED: {verdict.reason}"
    of = verdict.comparison
    ratio = of.predicted_activations_B / max(of.compiled_activations_B, 1)
    state = "equal" if verdict.passed else f"DIFFERS {list(of.differences[:2])} {list(verdict.unsynchronised[:2])}"
    return f"{shape}  {of.compiled_collectives:3d} collectives {state}, activations {ratio:.3f}, {verdict.compile_time_s:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
