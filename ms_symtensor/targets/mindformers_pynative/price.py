"""What a step takes by a file's degrees: seconds and bytes of the rank that takes most.

A micro-batch of a stage is its kernels, at least as long as a host takes to launch them, the collectives of tensor, expert and
context parallelism, which nothing hides, and those of sharded parameters, which run beside the kernels of the unit before
(prefetched forward, reduced behind the unit's gradients backward). The run-time `mindspore_pynative` says how much of them.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from ms_symtensor.cluster.collective_time import collective_time
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.flops import BACKWARD
from ms_symtensor.cost.kernel import Kernel, pass_s
from ms_symtensor.cost.runtime import Runtime, load
from ms_symtensor.targets.mindformers_pynative.calls import ITEM_B, Call, Parameter, Unit
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.kept import kept_B, layer_B, loss_B
from ms_symtensor.targets.mindformers_pynative.layers import Kind, ends, kinds_of, starts, unlike
from ms_symtensor.targets.mindformers_pynative.parameters import Held, Sharing, held, sharing, unit_counts
from ms_symtensor.targets.mindformers_pynative.predicted import edge_calls, kind_calls, kind_contexts, tokens
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, once
from ms_symtensor.targets.mindformers_pynative.work import launches, seconds, work_key

RUNTIME = "mindspore_pynative"
Ranks = tuple[int, ...]
FLOAT32_B = 4
_KINDS = {
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
    "all_to_all": "AlltoAll",
}


@dataclass(frozen=True)
class StagePrice:
    """One micro-batch of a rank of a stage, and what it does once a step."""

    forward_s: float
    backward_s: float
    once_s: float
    flops: float
    """Of a micro-batch forward, on one rank."""
    parts: dict[str, float]
    """Seconds of a step by what they are for."""
    memory: dict[str, int]
    """Bytes by what they are for."""

    @property
    def memory_B(self) -> int:
        return sum(self.memory.values())


@dataclass(frozen=True)
class Price:
    """A step."""

    step_time_s: float
    peak_memory_B: int
    flops: float
    """Of all ranks, forward and backward, without recomputation."""
    stages: tuple[StagePrice, ...]


def price(shape: ModelShape, degrees: Degrees, cluster: Cluster) -> Price:
    """The price of a step. `degrees` are taken as MindFormers would take them (`checks.refusal` says nothing)."""
    stages = []
    for stage, count in unlike(shape, degrees):
        stages += [stage_price(shape, degrees, cluster, stage)] * count
    times = [one.forward_s + one.backward_s for one in stages]
    slowest, micro_batches = max(times), degrees.micro_batches
    fill_s = (math.fsum(times) - slowest) / degrees.interleave
    step_s = micro_batches * slowest + fill_s + max(one.once_s for one in stages)
    ranks = degrees.device_num // degrees.pipeline
    flops = (1 + BACKWARD) * micro_batches * ranks * math.fsum(one.flops for one in stages)
    return Price(step_s, max(one.memory_B for one in stages), flops, tuple(stages))


def bound_s(shape: ModelShape, degrees: Degrees, cluster: Cluster) -> float:
    """No step by these degrees is faster, however parameters are shared and whatever is recomputed."""
    times: list[float] = []
    for stage, count in unlike(shape, degrees):
        one = passes_of(shape, degrees, cluster, stage)
        times += [one.forward_s + one.backward_s + one.sent_forward_s + one.sent_backward_s] * count
    return degrees.micro_batches * max(times) + (math.fsum(times) - max(times)) / degrees.interleave


def memory_B(shape: ModelShape, degrees: Degrees, enough_B: int) -> int:
    """Bytes of the rank that needs most; the first that needs more than `enough_B` will do."""
    most = 0
    for stage, _ in unlike(shape, degrees):
        needed = memory(shape, degrees, stage)
        most = max(most, sum(needed.values()))
        if most > enough_B:
            break
    return most


def stage_price(shape: ModelShape, degrees: Degrees, cluster: Cluster, stage: int) -> StagePrice:
    """The price of one rank of `stage`."""
    passes = passes_of(shape, degrees, cluster, stage)
    by, of = sharing(degrees), held(shape, degrees, stage)
    shared = shared_s(shape, by, of, degrees.fsdp * degrees.tensor, cluster)
    hidden, pipelined = load(RUNTIME), degrees.pipeline > 1
    gather_forward_s = _exposed(shared.gathers_s, passes.forward_s, hidden, Part.WEIGHTS)
    sharded_backward_s = _exposed(
        shared.regathers_s + (not pipelined) * shared.reductions_s, passes.backward_s, hidden, Part.GRADIENTS
    )
    borders_s = _borders_s(shape, degrees, cluster, stage)
    per_step = {
        "reduce": shared.replicas_s + (shared.reductions_s if pipelined else 0.0),
        "update": _update_s(resident(shape, by, of, state_B(degrees)).elements, degrees, cluster),
    }
    micro_batches = degrees.micro_batches
    parts = {
        "compute": micro_batches * (passes.forward_s + passes.backward_s),
        "recompute": micro_batches * passes.recompute_s,
        "collectives": micro_batches * (passes.sent_forward_s + passes.sent_backward_s),
        "parameters": micro_batches * gather_forward_s,
        "gradients": micro_batches * sharded_backward_s + per_step["reduce"],
        "borders": micro_batches * 2 * borders_s,
        "optimizer": per_step["update"],
    }
    return StagePrice(
        passes.forward_s + passes.sent_forward_s + gather_forward_s + borders_s,
        passes.backward_s + passes.recompute_s + passes.sent_backward_s + sharded_backward_s + borders_s,
        math.fsum(per_step.values()),
        passes.flops,
        parts,
        memory(shape, degrees, stage),
    )


@dataclass(frozen=True)
class Passes:
    """Seconds of one micro-batch: kernels forward, backward and once more, and collectives that nothing hides."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    recompute_s: float = 0.0
    flops: float = 0.0
    """Forward."""
    sent_forward_s: float = 0.0
    sent_backward_s: float = 0.0
    """Those that are recomputed too."""

    def plus(self, other: "Passes", times: int = 1) -> "Passes":
        """Both, `other` so many times."""
        return Passes(
            self.forward_s + times * other.forward_s,
            self.backward_s + times * other.backward_s,
            self.recompute_s + times * other.recompute_s,
            self.flops + times * other.flops,
            self.sent_forward_s + times * other.sent_forward_s,
            self.sent_backward_s + times * other.sent_backward_s,
        )


def passes_of(shape: ModelShape, degrees: Degrees, cluster: Cluster, stage: int) -> Passes:
    """What a rank of `stage` does in one micro-batch, sharded parameters aside."""
    key = work_key(degrees)
    found = _edges(shape, key, starts(shape, degrees, stage), ends(shape, degrees, stage), cluster)
    for kind, count in kinds_of(shape, degrees, stage).items():
        found = found.plus(_layer(shape, key, kind, cluster), count)
    return found


@once
def _layer(shape: ModelShape, key: Degrees, kind: Kind, cluster: Cluster) -> Passes:
    """A layer, whose operations a host launches no faster than it can."""
    around = seconds(shape, "around", key, cluster)
    parts = {
        "self_attention": seconds(shape, "self_attention", key, cluster, kind.ratio),
        "mlp": seconds(shape, "experts" if kind.routed else "dense", key, cluster),
    }
    least_s = launches(shape, kind.routed, kind.ratio) * cluster.device.host_overhead_s
    ahead_s = max(around.forward_s + math.fsum(one.forward_s for one in parts.values()), least_s)
    behind_s = max(around.backward_s + math.fsum(one.backward_s for one in parts.values()), least_s)
    recompute_s = (
        ahead_s if kind.whole else math.fsum(one.forward_s for name, one in parts.items() if kind.repeats(name))
    )
    sent = _sent_s([*kind_calls(shape, key, kind)], [*kind_contexts(shape, key, kind)], key, cluster)
    return Passes(ahead_s, behind_s, recompute_s, math.fsum(one.flops for one in parts.values()), *sent)


@once
def _edges(shape: ModelShape, key: Degrees, starting: bool, ending: bool, cluster: Cluster) -> Passes:
    """The embedding's and the losses' calls, and the losses."""
    sent = _sent_s([*edge_calls(shape, key, starting, ending)], [], key, cluster)
    head, heads = seconds(shape, "head", key, cluster), (1 + shape.predicted_tokens) * ending
    return Passes(heads * head.forward_s, heads * head.backward_s, 0.0, heads * head.flops, *sent)


def _sent_s(own: list[Call], contexts: list[Call], degrees: Degrees, cluster: Cluster) -> tuple[float, float]:
    """Seconds of MindFormers' calls and of context parallelism, forward and backward."""
    found = {"forward": 0.0, "backward": 0.0, "recompute": 0.0}
    for call in own:
        ranks = _strided(degrees.tensor, 1)
        if call.kind == "all_to_all":
            ranks = _strided(degrees.expert, 1)
        elif call.ranks != degrees.tensor:
            ranks = _strided(degrees.context, degrees.tensor)
        found[call.phase] += call_s(call, ranks, cluster)
    ulysses = degrees.ulysses_degree
    for call in contexts:
        ranks = _strided(degrees.context // ulysses, degrees.tensor * ulysses)  # which gather keys and values
        if call.kind == "all_to_all":
            ranks = _strided(ulysses, degrees.tensor)  # which exchange sequence for heads
        found[call.phase] += call_s(call, ranks, cluster)
    return found["forward"], found["backward"] + found["recompute"]


def _strided(count: int, stride: int) -> Ranks:
    """`count` ranks from 0, `stride` apart: a group of rank 0 on MindFormers' meshes.

    From the outside in a dense mesh is stages x replicas x (data x context) x tensor, a sparse one stages x replicas x efsdp x
    expert parallelism (mindformers/pynative/distributed/parallel_dims.py).
    """
    return tuple(range(0, count * stride, stride))


def call_s(call: Call, ranks: Ranks, cluster: Cluster) -> float:
    """Seconds of one call; HCCL's formulas take the bytes of what is gathered, or of one rank's input."""
    whole_B = call.size_B * len(ranks) if call.kind == "all_gather" else call.size_B
    return _collective_s(cluster, _KINDS[call.kind], ranks, whole_B)


def _collective_s(cluster: Cluster, kind: str, ranks: Ranks, size_B: int) -> float:
    return collective_time(cluster, kind, ranks).seconds(size_B) if len(ranks) > 1 else 0.0


class Shared(NamedTuple):
    """Seconds of the collectives of sharded parameters, each once."""

    gathers_s: float
    regathers_s: float
    reductions_s: float
    replicas_s: float


@once
def shared_s(shape: ModelShape, by: Sharing, of: Held, region: int, cluster: Cluster) -> Shared:
    """Of a stage's units: a collective for every parameter. `region`: ranks of one replica of a stage."""
    gathers = regathers = reductions = replicas = 0.0
    for unit, count in unit_counts(shape, by, of):
        ranks = _strided(unit.shards, by.expert if unit.routed else by.tensor)
        cut = [parameter for parameter in unit.parameters if not parameter.whole]
        gather = count * math.fsum(_collective_s(cluster, "AllGather", ranks, p.size_B) for p in cut)
        gathers += gather
        regathers += gather * unit.reshards
        reductions += count * math.fsum(
            _collective_s(cluster, "ReduceScatter", ranks, p.elements * FLOAT32_B) for p in cut
        )
        replicas += count * _replicas_s(unit, by.tensor, region, cluster)
    return Shared(gathers, regathers, reductions, replicas)


def _exposed(whole_s: float, beside_s: float, runtime: Runtime, part: Part) -> float:
    """What of communication is seen: all that has no kernels beside it, and how much it slows those down."""
    hiding = runtime.hides.get(part)
    if hiding is None:
        return whole_s
    gone = min(hiding.share * whole_s, hiding.window * beside_s)
    return whole_s - gone + hiding.slowdown * gone


def _borders_s(shape: ModelShape, degrees: Degrees, cluster: Cluster, stage: int) -> float:
    """Seconds of hidden states over the borders of a stage's chunks, one way: sends wait for nothing else here."""
    if degrees.pipeline == 1:
        return 0.0
    hidden_B = tokens(shape, degrees) // degrees.tensor * shape.width * ITEM_B["bfloat16"]
    chunks = degrees.chunks(shape.layers)[stage]
    leaving = sum(last < shape.layers - 1 for _, last in chunks)
    neighbours = (0, degrees.device_num // degrees.pipeline)
    return leaving * _collective_s(cluster, "Send", neighbours, hidden_B)


def _update_s(elements: int, degrees: Degrees, cluster: Cluster) -> float:
    """The optimizer's pass: states read and written, a gradient read, a weight written."""
    moved_B = elements * (2 * state_B(degrees) + FLOAT32_B + 2 * 2)
    return float(Kernel(pass_s, {"traffic_B": moved_B}).seconds(cluster))


def _replicas_s(unit: Unit, tensor: int, region: int, cluster: Cluster) -> float:
    """Seconds of a unit's sums over replicas, `region` ranks apart if it is routed, and over `tensor` parallelism."""
    found = 0.0
    for parameter in unit.parameters:
        shards = 1 if parameter.whole else unit.shards
        size_B = parameter.elements // shards * FLOAT32_B
        stride = region if unit.routed else unit.shards * tensor
        ranks = _strided(unit.replicas, stride)
        if parameter.whole:  # all of its shards hold the same too
            ranks = _strided(unit.replicas * unit.shards, tensor)
        found += _collective_s(cluster, "AllReduce", ranks, size_B)
        found += _collective_s(cluster, "AllReduce", _strided(parameter.partial, 1), size_B)
    return found


def state_B(degrees: Degrees) -> int:
    """Bytes of the optimizer's states of one element, its float32 copy of the weight included: Muon has one moment."""
    return 8 if degrees.optimizer == "Muon" else 12


class Resident(NamedTuple):
    """What a stage's units take, in bytes, and the elements that a rank updates."""

    parameters: int
    optimizer: int
    gradients: int
    gathered: int
    unreduced: int
    whole_gradients: int
    elements: int


@once
def resident(shape: ModelShape, by: Sharing, of: Held, states_B: int) -> Resident:
    """Shards with their float32 copy, moments and main gradient. A parameter in float32 is its own copy."""
    counts = unit_counts(shape, by, of)
    parameters = optimizer = elements = whole = 0
    for unit, count in counts:
        for parameter in unit.parameters:
            part = count * (parameter.elements if parameter.whole else parameter.elements // unit.shards)
            elements += part
            parameters += part * ITEM_B[parameter.dtype]
            optimizer += part * (states_B - (FLOAT32_B if parameter.dtype == "float32" else 0))
            whole += count * parameter.elements * FLOAT32_B
    largest = sorted((unit.gathered_B() for unit, count in counts for _ in range(min(count, 2))), reverse=True)
    kept_whole = sum(count * unit.gathered_B() for unit, count in counts if not unit.reshards)
    gathered = max(kept_whole, sum(largest[:2]))  # a unit and the one that is prefetched
    widest = max(sum(map(_gradient_B, unit.parameters)) for unit, _ in counts)
    return Resident(parameters, optimizer, elements * FLOAT32_B, gathered, widest, whole, elements)


def memory(shape: ModelShape, degrees: Degrees, stage: int) -> dict[str, int]:
    """Bytes of a rank: what its units take, activations, and the loss.

    In a pipeline gradients are reduced once, and add up whole until then, in float32.
    """
    of = held(shape, degrees, stage)
    units = resident(shape, sharing(degrees), of, state_B(degrees))
    kept = kept_B(shape, degrees, stage) * in_flight(degrees, stage)
    return {
        "parameters": units.parameters,
        "optimizer": units.optimizer,
        "gradients": units.gradients,
        "gathered": units.gathered,
        "unreduced_gradients": units.whole_gradients if degrees.pipeline > 1 else units.unreduced,
        "activations": math.ceil(kept * (1 + load(RUNTIME).fragments)) + recomputed_B(shape, degrees, stage),
        "loss": (1 + shape.predicted_tokens) * loss_B(shape, degrees) if of.ends else 0,
    }


def _gradient_B(parameter: Parameter) -> int:
    """A gradient as it comes, and in float32 as it is reduced."""
    return parameter.size_B + parameter.elements * FLOAT32_B


def recomputed_B(shape: ModelShape, degrees: Degrees, stage: int) -> int:
    """Activations of the one layer that is recomputed for its gradient."""
    recomputation = [kind for kind in kinds_of(shape, degrees, stage) if kind.whole]
    return max(
        (layer_B(shape, degrees, Kind(kind.routed, kind.predicts, False, ())) for kind in recomputation), default=0
    )


def in_flight(degrees: Degrees, stage: int) -> float:
    """Micro-batches of which a stage keeps activations, in shares of all its chunks."""
    if degrees.schedule == "gpipe":
        return degrees.micro_batches
    if degrees.interleave == 1:
        return min(degrees.micro_batches, degrees.pipeline - stage)
    chunks = 2 * (degrees.pipeline - stage - 1) + (degrees.interleave - 1) * degrees.pipeline + 1
    return min(degrees.micro_batches, chunks / degrees.interleave)
