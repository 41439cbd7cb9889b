"""A plan for MindFormers' PyNative mode, for people and for programs."""

from dataclasses import asdict
from typing import Any

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.flops import mfu
from ms_symtensor.report.text import seconds, share, size, table
from ms_symtensor.targets.mindformers_pynative import NAME
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, range_texts
from ms_symtensor.targets.mindformers_pynative.graph_mode import GraphMode
from ms_symtensor.targets.mindformers_pynative.planning import PynativePlan
from ms_symtensor.targets.mindformers_pynative.price import Price

_OF = {
    "compute": "kernels",
    "recompute": "kernels, once more",
    "collectives": "tensor, expert and context parallelism",
    "parameters": "gathered parameters that are seen",
    "gradients": "summed gradients that are seen",
    "borders": "borders of stages",
    "optimizer": "optimizer",
}


def price_json(price: Price, degrees: Degrees, sequence: int, cluster: Cluster) -> dict[str, Any]:
    """The figures that all plans have, and what they are made of."""
    stage = _slowest(price)
    tokens = degrees.global_batch * sequence
    return {
        "step_time_s": price.step_time_s,
        "peak_memory_B": price.peak_memory_B,
        "mfu": mfu(price.flops, price.step_time_s, degrees.device_num, cluster.device.cube_peak_FLOPs),
        "tokens_per_s_device": tokens / price.step_time_s / degrees.device_num,
        "micro_batches": degrees.micro_batches,
        "slowest_stage": {"seconds": stage.parts, "memory_B": max(price.stages, key=lambda s: s.memory_B).memory},
    }


def pynative_plan_json(plan: PynativePlan, cluster: Cluster, graph: GraphMode | None = None) -> dict[str, Any]:
    """What `symtensor plan --target mindformers-pynative --json` promises. The gap is that of the space that was searched.

    `graph_mode`: the same degrees in graph mode, null for a network that is not of the zoo.
    """
    degrees = plan.found.degrees
    return {
        "target": NAME,
        "model": plan.name,
        "cluster": plan.cluster,
        "device_num": degrees.device_num,
        **price_json(plan.found.price, degrees, plan.shape.sequence, cluster),
        "optimality_gap": 0.0,
        "search_time_s": plan.search_time_s,
        "file": plan.file,
        "degrees": asdict(degrees) | {"data": degrees.data, "replicas": degrees.replicas},
        "ranked": plan.found.bounded,
        "priced": plan.found.priced,
        "graph_mode": None if graph is None else asdict(graph),
    }


def pynative_plan_text(plan: PynativePlan, cluster: Cluster, graph: GraphMode | None = None) -> str:
    """The same in a few lines; no times of the search, so that one request has one text."""
    degrees, price = plan.found.degrees, plan.found.price
    data = price_json(price, degrees, plan.shape.sequence, cluster)
    rows = [
        ("data parallel", _sharded(degrees)),
        ("tensor parallel", f"{degrees.tensor}{', sequence parallel' if degrees.tensor > 1 else ''}"),
        ("context parallel", f"{degrees.context}{f', {degrees.context_method}' if degrees.context > 1 else ''}"),
        ("pipeline", _pipeline(degrees)),
        ("expert parallel", str(degrees.expert)),
        ("micro-batches", f"{degrees.micro_batches} of {degrees.local_batch} samples a rank"),
        ("recomputed", _recomputed(degrees)),
    ]
    head = f"{plan.name} on {degrees.device_num} devices of {plan.cluster}, MindFormers 2.1 in PyNative mode"
    step = (
        f"  step {seconds(price.step_time_s)}, {size(price.peak_memory_B)} a device, MFU {100 * data['mfu']:.1f} %, "
        f"{data['tokens_per_s_device']:,.0f} tokens/s a device; predicted, not measured on NPUs"
    )
    beside = [] if graph is None else ["", _in_graph_mode(graph, price)]
    return "\n".join([head, step, "", table(rows), "", *price_lines(price), *beside])


def _in_graph_mode(graph: GraphMode, price: Price) -> str:
    if graph.step_time_s is None or graph.peak_memory_B is None:
        return f"The same degrees in graph mode (--target mindformers plans for it): {graph.reason}"
    return (
        f"The same degrees in graph mode (--target mindformers plans for it): step {seconds(graph.step_time_s)}, "
        f"{graph.step_time_s / price.step_time_s:.2f} of this one; {size(graph.peak_memory_B)} a device"
    )


def better_json(
    plan: PynativePlan, yours: Price | None, refused: str, out: str | None, cluster: Cluster
) -> dict[str, Any]:
    """The plan, and the file as it is: its price, or why MindFormers would refuse it."""
    before = {"refused": refused} if yours is None else {
        "step_time_s": yours.step_time_s, "peak_memory_B": yours.peak_memory_B,
    }  # fmt: skip
    return pynative_plan_json(plan, cluster) | {"as_it_is": before, "out": out}


def better_text(plan: PynativePlan, yours: Price | None, refused: str, out: str | None, cluster: Cluster) -> str:
    """The same in words."""
    if yours is None:
        first = f"as it is: {refused}"
    else:
        first = f"as it is: {seconds(yours.step_time_s)} a step, {size(yours.peak_memory_B)} a device"
    last = [f"Written to {out}"] if out else []
    return "\n".join([first, "", pynative_plan_text(plan, cluster), *last])


def price_lines(price: Price) -> list[str]:
    """What the slowest stage spends, and what the fullest one holds."""
    spent = _slowest(price).parts
    whole_s = sum(spent.values())
    lines = [" a step of the slowest stage:"]
    lines += [table([(_OF[n], seconds(s), share(s, whole_s)) for n, s in spent.items() if s > 0], right=(1, 2))]
    held = max(price.stages, key=lambda stage: stage.memory_B).memory
    lines += [" memory of the fullest stage:"]
    return [
        *lines,
        table([(name.replace("_", " "), size(size_B)) for name, size_B in held.items() if size_B], right=(1,)),
    ]


def _slowest(price: Price) -> Any:
    return max(price.stages, key=lambda stage: stage.forward_s + stage.backward_s)


def _sharded(degrees: Degrees) -> str:
    shards = degrees.dense_shard or degrees.fsdp
    replicas = (
        f", {degrees.replicas * degrees.fsdp // shards} replicas" if degrees.replicas * degrees.fsdp > shards else ""
    )
    kept = "given up after the forward pass" if degrees.reshards else "kept until their gradients"
    return f"{degrees.data}; parameters shared by {shards}{replicas}, {kept}"


def _pipeline(degrees: Degrees) -> str:
    if degrees.pipeline == 1:
        return "1"
    return f"{degrees.pipeline} stages of {degrees.interleave} chunks, {degrees.schedule}"


def _recomputed(degrees: Degrees) -> str:
    recomputation = degrees.recompute
    texts = [f"layers {', '.join(range_texts(recomputation.layers))}"] if recomputation.layers else []
    texts += [f"{name} of layers {', '.join(range_texts(ranges))}" for name, ranges in recomputation.modules]
    texts += [
        f"results of {name} kept in layers {', '.join(range_texts(ranges))}" for name, ranges in recomputation.kept
    ]
    return "; ".join(texts) or "nothing"
