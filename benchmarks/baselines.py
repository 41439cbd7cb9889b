"""Our plan beside what else a user could run on one node: predicted step times of compiled programs, one table.

    python -m benchmarks.baselines [--models llama2_7b …] [--device-num 8] [--layers 4] [--batch-per-device 2]

Every row is a program that MindSpore's compiler wrote for one rank, read back and priced by the same formulas
(`bridge.compiled.compiled_price`): our plan, pure data parallelism, Megatron's tensor parallelism over all devices with and
without sequence parallelism, and MindSpore's own searches (recursive_programming, sharding_propagation). Exit code 1 if our
plan is predicted slower than any of them.
"""

import argparse
import sys

import numpy

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.megatron import megatron_strategy
from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.compiled.compiled_price import compiled_time_s
from ms_symtensor.bridge.compiler.compile import CompiledProgram, compile_rank
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import CompilerError, InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph

SEARCHES = ("recursive_programming", "sharding_propagation")


def programs(config: TransformerConfig, device_num: int):  # type: ignore[no-untyped-def] # an iterator of rows
    """(name, compiled program or the reason why there is none), our plan first."""
    from model_zoo.network import build

    mindspore = import_mindspore()
    graph = build_graph(config)
    cluster = load("atlas_800t_a2")
    chosen = plan(
        graph, cluster, device_num=device_num, global_batch_size=config.batch_size, seq_length=config.seq_length
    )
    plans = {"symtensor": chosen}
    for name, degrees in (
        ("data parallel", (device_num, 1, False)),
        (f"Megatron TP{device_num}", (1, device_num, False)),
        (f"Megatron TP{device_num} + SP", (1, device_num, True)),
    ):
        plans[name] = _by_hand(graph, config, degrees, device_num)
    for name, one in plans.items():
        cell, inputs = build(config)
        if one is None:
            yield name, "does not divide"
            continue
        apply(cell, graph, one)
        yield name, _compiled(cell, inputs, mindspore, device_num, parallel_config(one))
    for search in SEARCHES:
        cell, inputs = build(config)
        context = ParallelConfig(parallel_mode="auto_parallel", search_mode=search)
        yield search, _compiled(cell, inputs, mindspore, device_num, context)


def _compiled(cell, inputs, mindspore, device_num, parallel) -> CompiledProgram | str:  # type: ignore[no-untyped-def]
    sens = mindspore.Tensor(numpy.float32(1))
    try:
        return compile_rank(training_cell(cell), *inputs, sens, device_num=device_num, parallel=parallel)
    except CompilerError as error:
        return str(error)[:100]


def _by_hand(graph: Graph, config: TransformerConfig, degrees: tuple[int, int, bool], device_num: int) -> Plan | None:
    try:
        cuts = megatron_strategy(graph, config, *degrees)
    except InputError:
        return None
    stage = StagePlan({name: OpStrategy(*both) for name, both in cuts.items()}, Settings(device_num))
    nothing = Prediction({}, {}, True, 0)
    report = SearchReport(0, 0.0, 0.0, "by hand")
    return Plan(
        graph.name,
        graph.hash,
        "",
        (stage,),
        config.batch_size,
        config.seq_length,
        *degrees,
        prediction=nothing,
        search=report,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--device-num", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch-per-device", type=int, default=2)
    chosen = parser.parse_args()
    cluster = load("atlas_800t_a2")
    slower = 0
    print(
        f"{'model':12s} {'strategy':24s} {'step':>9s} {'ratio':>6s}  compute  communication  synchronisation  optimizer"
    )
    for model in chosen.models:
        config = dimensions_of(model, num_layers=chosen.layers, batch_size=chosen.batch_per_device * chosen.device_num)
        ours = None
        for name, program in programs(config, chosen.device_num):
            if isinstance(program, str):
                print(f"{model:12s} {name:24s} {program}", flush=True)
                continue
            time = compiled_time_s(program, cluster)
            total = sum(time.values())
            ours = total if ours is None else ours
            slower += total < ours * (1 - 1e-9)
            parts = "  ".join(f"{1e3 * t:9.2f} ms" for t in time.values())
            print(f"{model:12s} {name:24s} {1e3 * total:6.1f} ms {total / ours:6.2f}  {parts}", flush=True)
    print("our plan is never slower" if not slower else f"{slower} rows are faster than our plan")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
