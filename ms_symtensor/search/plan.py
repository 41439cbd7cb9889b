"""`plan(graph, cluster, …)`: the public entry of the search for one graph."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ms_symtensor.cluster.load import cluster_of
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.best import planned
from ms_symtensor.search.constraints.checked import memory_B, named, require_size_of, whole_number
from ms_symtensor.search.constraints.floor import floor_of
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.nearest import naming_what_fits
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


def plan(
    graph: Graph,
    cluster: Cluster | str | os.PathLike[str],
    *,
    device_num: int,
    global_batch_size: int,
    seq_length: int,
    memory_limit_B: int | None = None,
    model: str = "",
    source: Mapping[str, str] | None = None,
    rules: Mapping[str, Rule] | None = None,
    fix: Mapping[str, object] = MappingProxyType({}),
    at_most: Mapping[str, object] = MappingProxyType({}),
    certified_gap: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The fastest plan of one stage for `graph` on `device_num` devices of `cluster` whose predicted peak fits.

    Args:
        graph: What `capture` or `load_graph` gives: the forward network with its loss, global shapes.
        cluster: A cluster (`load_cluster`), its name, or the path of its file.
        device_num: Number of devices.
        global_batch_size: Samples of a step on all devices: that of the graph's inputs.
        seq_length: Tokens of a sample: that of the graph's inputs.
        memory_limit_B: Bytes of a device that the plan may use; None: what the framework can use of it.
        model: A name for the plan.
        source: How the network is built again, as `plan.json` says it.
        rules: Signatures of further operators, by primitive name; they come first.
        fix: What the plan reports, or operators by name, pinned: `{"model_parallel": 8, "*.query.matmul": "(1,1)(8,1)"}`.
        at_most: The same, bounded from above: `{"recompute": 4}`.
        certified_gap: The fraction that the plan may be above the optimum, by a certificate; None: none is made.
        progress: Is told what is being searched.

    Returns:
        The plan, with strategies, settings, and its prediction in seconds and bytes.

    Raises:
        InputError: An argument is of another kind, the batch or sequence is not the graph's, or the cluster or MindSpore
            cannot form so many devices.
        InvalidStrategyError: MindSpore would not sum the gradient of a parameter, whatever the plan.
        InfeasibleError: Nothing fits; the message names how much is missing where, and the nearest changes that fit.
        UnknownOperatorError: An operator has no rule.

    Example:
        >>> plan = ms_symtensor.plan(graph, "atlas_800t_a2", device_num=8, global_batch_size=16, seq_length=4096)
        >>> plan.prediction.step_time_s, plan.prediction.peak_memory_B
    """
    if not isinstance(graph, Graph):
        raise InputError(f"found a {type(graph).__name__} in place of a graph: capture(net, *inputs) gives one")
    there = cluster_of(cluster)
    limit_B = there.device.hbm_usable_B if memory_limit_B is None else memory_limit_B
    request = Request(
        there,
        whole_number("device_num", device_num),
        whole_number("global_batch_size", global_batch_size),
        whole_number("seq_length", seq_length),
        memory_B("memory_limit_B", limit_B),
        model or graph.name,
        dict(source or {}),
        limits=limits_of(named("fix", fix).items(), named("at_most", at_most).items()),
        rules=rules,
        certified_gap=certified_gap,
    )
    require_size_of(graph, request.global_batch_size, request.seq_length)
    return naming_what_fits(request, lambda wanted: planned(graph, wanted, progress), floor=floor_of(graph))
