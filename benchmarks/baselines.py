"""Our plan beside what else a user could run on one node: predicted step times of compiled programs, one table.

    python -m benchmarks.baselines [--models llama2_7b …] [--device-num 8] [--layers 4] [--batch-per-device 2]

Every row is a program that MindSpore's compiler wrote for one rank, read back and priced by the same formulas
(`bridge.compiled.compiled_price`): our plan, pure data parallelism, Megatron's tensor parallelism over all devices with and
without sequence parallelism, and MindSpore's own searches (recursive_programming, sharding_propagation). Exit code 1 if our
plan is predicted slower than any of them, or MindSpore does not compile it.
"""

import argparse
import math
import multiprocessing
import signal
import sys
from multiprocessing.connection import Connection

import numpy

from benchmarks.results import markdown
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
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import CompilerError, InfeasibleError, InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph

OURS, NO_PLAN = "symtensor", "no plan"
BY_HAND = {
    "data parallel": lambda device_num: (device_num, 1, False),
    "Megatron TP": lambda device_num: (1, device_num, False),
    "Megatron TP + SP": lambda device_num: (1, device_num, True),
}
"""Degrees of data and tensor parallelism, and whether there is sequence parallelism."""

SEARCHES = ("recursive_programming", "sharding_propagation")


def compiled_times_s(config: TransformerConfig, device_num: int, name: str) -> dict[str, float] | str:
    """What the compiled program called `name` takes by kinds of work, or the reason why there is none."""
    from model_zoo.network import build

    mindspore = import_mindspore()
    cluster, (cell, inputs) = load("atlas_800t_a2"), build(config)
    if name in SEARCHES:
        parallel = ParallelConfig(parallel_mode="auto_parallel", search_mode=name)
    else:
        graph = build_graph(config)
        try:
            chosen = _plan(graph, config, cluster, device_num, name)
        except InfeasibleError as error:
            return f"{NO_PLAN}: {error}"[:100]
        if chosen is None:
            return "does not divide"
        apply(cell, graph, chosen)
        parallel = parallel_config(chosen)
    compiled = _compiled(cell, inputs, mindspore, device_num, parallel)
    return compiled if isinstance(compiled, str) else dict(compiled_time_s(compiled, cluster))


def in_its_own_process(config: TransformerConfig, device_num: int, name: str) -> dict[str, float] | str:
    """As `compiled_times_s`; a search of MindSpore that kills its process kills no other."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_send, args=(sender, config, device_num, name))
    process.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:
        found = None
    process.join()
    if found is None:
        code = process.exitcode or 0
        return f"MindSpore dies of {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    return found


def _send(sender: Connection, config: TransformerConfig, device_num: int, name: str) -> None:
    sender.send(compiled_times_s(config, device_num, name))


def _plan(graph: Graph, config: TransformerConfig, cluster: Cluster, device_num: int, name: str) -> Plan | None:
    if name == OURS:
        return plan(
            graph, cluster, device_num=device_num, global_batch_size=config.batch_size, seq_length=config.seq_length
        )
    return _by_hand(graph, config, BY_HAND[name](device_num), device_num)


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
    slower = failed = 0
    unplanned: list[str] = []
    ratios: dict[str, dict[str, str]] = {}
    print(
        f"{'model':17s} {'strategy':21s} {'step':>10s} {'ratio':>6s}  compute  communication  synchronisation  optimizer"
    )
    for model in chosen.models:
        config = dimensions_of(model, num_layers=chosen.layers, batch_size=chosen.batch_per_device * chosen.device_num)
        ours = math.nan  # no ratio where nothing of ours fits
        for name in (OURS, *BY_HAND, *SEARCHES):
            times_s = in_its_own_process(config, chosen.device_num, name)
            if isinstance(times_s, str):
                print(f"{model:17s} {name:21s} {times_s}", flush=True)
                ratios.setdefault(model, {})[name] = "fails"
                if name == OURS:
                    unplanned.append(model)
                    failed += not times_s.startswith(NO_PLAN)
                continue
            total = sum(times_s.values())
            ours = total if name == OURS else ours
            slower += total < ours * (1 - 1e-9)
            ratios.setdefault(model, {})[name] = f"{total / ours:.2f}"
            parts = "  ".join(f"{1e3 * t:9.2f} ms" for t in times_s.values())
            print(f"{model:17s} {name:21s} {1e3 * total:7.1f} ms {total / ours:6.2f}  {parts}", flush=True)
    names = [*BY_HAND, *SEARCHES]
    rows = [[model, *map(of.get, names)] for model, of in ratios.items() if model not in unplanned]
    print(markdown(["model", *names], rows))  # benchmarks.results keeps it
    where = f" where there is one (none: {', '.join(unplanned)})" if unplanned else ""
    print(f"our plan is never slower{where}" if not slower else f"{slower} rows are faster than our plan")
    return 1 if slower or failed else 0


if __name__ == "__main__":
    sys.exit(main())
