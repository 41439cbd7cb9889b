"""`plan(graph, cluster, …)`: the public entry of the search."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.depth import at_depth, judged
from ms_symtensor.search.domain import meshes
from ms_symtensor.search.problem import problem
from ms_symtensor.search.solve import Candidate, fits, solve
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph

GIB = 1024**3
MAX_DEVICES_NAMED = 256
"""Where nothing fits, the smallest number of devices that would is sought up to here."""

METHOD = (
    "exact variable elimination inside a block for every mesh, Lagrangian dual over memory, recomputation and optimizer"
    " sharding"
)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A search makes many small objects and no cycles; looking for cycles takes a tenth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@no_garbage_collection()
def plan(
    graph: Graph,
    cluster: Cluster,
    *,
    device_num: int,
    global_batch_size: int,
    seq_length: int,
    memory_limit_B: int | None = None,
    model: str = "",
    source: Mapping[str, str] | None = None,
    rules: Mapping[str, Rule] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    only: Sequence[tuple[int, ...]] | None = None,
) -> Plan:
    """The fastest plan of one stage for `graph` on `device_num` devices of `cluster` whose predicted peak fits.

    `memory_limit_B` bounds the memory of one device (default: what the framework can use of it). `progress` is told what
    is being searched. `only`: the meshes to look at (default: all).

    Errors: InputError for a number of devices that the cluster or MindSpore cannot form; InvalidStrategyError where MindSpore
    would not sum the gradient of a parameter whatever the plan; InfeasibleError, naming how much
    is missing and the smallest number of devices that would do, where nothing fits; UnknownOperatorError.
    """
    require_devices(cluster, device_num)
    if global_batch_size < 1:
        raise InputError(f"global_batch_size is {global_batch_size}: give a positive number of samples")
    start = time.perf_counter()
    limit_B = int(cluster.device.hbm_usable_B) if memory_limit_B is None else memory_limit_B
    best: Candidate | None = None
    smallest: Candidate | None = None
    bound, priced = math.inf, 0
    for mesh in meshes(device_num) if only is None else only:
        progress(f"mesh {' x '.join(map(str, mesh))}")
        one = problem(graph, cluster, mesh, rules)
        solution = solve(one, limit_B, best, progress)
        best, bound, priced = solution.best, min(bound, solution.bound_s), priced + one.candidates
        if smallest is None or solution.smallest.memory_B < smallest.memory_B:
            smallest = solution.smallest
    assert smallest is not None
    if best is None:
        raise _infeasible(graph, cluster, device_num, limit_B, smallest, rules)
    stage = StagePlan(at_depth(graph, one.graph, best.strategies), best.settings)
    found = judged(one.shorts, best.strategies, best.settings, cluster, rules)
    search_time_s = time.perf_counter() - start
    cost, summary = found.cost, found.degrees
    gap = max(0.0, (best.time_s - bound) / bound) if bound > 0 and math.isfinite(bound) else 0.0
    return Plan(
        model=model or graph.name,
        graph_hash=graph.hash,
        cluster=cluster.name,
        stages=(stage,),
        global_batch_size=global_batch_size,
        seq_length=seq_length,
        data_parallel=summary.data_parallel,
        model_parallel=summary.model_parallel,
        sequence_parallel=summary.sequence_parallel,
        prediction=Prediction(cost.time_s, cost.memory_B, cost.peak_memory_B <= limit_B, limit_B),
        search=SearchReport(priced, search_time_s, gap, METHOD),
        source=dict(source or {}),
    )


def require_devices(cluster: Cluster, device_num: int) -> None:
    """InputError for a number of devices that `cluster` does not have, or of which MindSpore forms no groups."""
    if device_num < 1:
        raise InputError(f"device_num is {device_num}: give a positive number of devices")
    if cluster.max_ranks is not None and device_num > cluster.max_ranks:
        raise InputError(f"device_num is {device_num}, but cluster {cluster.name} has {cluster.max_ranks} devices")
    if device_num not in (1, 2, 4) and device_num % 8:
        raise InputError(
            f"device_num is {device_num}: MindSpore forms communication groups on 1, 2, 4 or a multiple of 8 devices"
        )


def _infeasible(
    graph: Graph,
    cluster: Cluster,
    device_num: int,
    limit_B: int,
    smallest: Candidate,
    rules: Mapping[str, Rule] | None,
) -> InfeasibleError:
    """What is missing, and the smallest doubled number of devices that would fit."""
    needed = ""
    count = device_num
    while count < min(MAX_DEVICES_NAMED, cluster.max_ranks or MAX_DEVICES_NAMED):
        count *= 2
        if any(fits(problem(graph, cluster, mesh, rules), limit_B) for mesh in meshes(count)):
            needed = f"; {count} devices would do"
            break
    over = (smallest.memory_B - limit_B) / GIB
    return InfeasibleError(
        f"nothing found that fits {limit_B / GIB:.1f} GiB on {device_num} devices: the plan with the smallest peak (optimizer "
        f"sharding {smallest.settings.optimizer_level.name.lower()}, everything recomputed) needs "
        f"{smallest.memory_B / GIB:.1f} GiB, {over:.1f} GiB too much{needed}, or use a smaller batch"
    )
