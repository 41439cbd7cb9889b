"""The fastest degrees that MindFormers takes and that fit.

Degrees that decide what a rank computes and exchanges come first, ranked by a lower bound of their step: kernels and MindFormers'
own collectives, nothing recomputed, nothing of sharded parameters. In that order each is completed: how parameters are shared,
what is given up after the forward pass, and the fewest layers whose recomputation makes it fit. It ends where the bound passes
the best.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.targets.mindformers_pynative.checks import refusal
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, Ranges, Recompute
from ms_symtensor.targets.mindformers_pynative.layers import EXCHANGES
from ms_symtensor.targets.mindformers_pynative.price import Price, bound_s, memory, memory_B, price
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

TENSOR = (1, 2, 4, 8, 16)
"""With hyper-connections 1, but where it is fixed (`checks.warning`)."""
CONTEXT = (1, 2, 4, 8, 16)
LEAST_TOKENS = 2048
"""A sequence is cut into slices of so many tokens at least (empirical: shorter ones leave kernels of attention little to do)."""
LOCAL_BATCH = (1, 2, 4, 8)
INTERLEAVE = (1, 2)
DENSE_SHARDS = (8, 32)


@dataclass(frozen=True)
class Found:
    """A plan."""

    degrees: Degrees
    price: Price
    bounded: int
    """Degrees that were ranked."""
    priced: int
    """Completions that were priced."""


def search(
    shape: ModelShape, start: Degrees, cluster: Cluster, limit_B: int, fixed: Mapping[str, int] = MappingProxyType({})
) -> Found:
    """The fastest degrees for the devices, global batch and optimizer of `start`; `fixed`: fields of `Degrees` that are given.

    InfeasibleError where nothing fits into `limit_B` bytes.
    """
    taken = (core for core in _cores(shape, start, fixed) if any(True for _ in _variants(shape, core, fixed)))
    cores = sorted(((bound_s(shape, core, cluster), i, core) for i, core in enumerate(taken)), key=lambda one: one[:2])
    best: tuple[float, Degrees, Price] | None = None
    priced, least_B = 0, None
    for least_s, _, core in cores:
        if best is not None and least_s >= best[0]:
            break
        least = _recomputed(shape, replace(core, reshard="always"), shape.layers + 1, ())
        needed_B = memory_B(shape, least, limit_B)
        least_B = needed_B if least_B is None else min(least_B, needed_B)
        if needed_B > limit_B:
            continue
        variants = sorted(
            ((price(shape, one, cluster).step_time_s, i, one) for i, one in enumerate(_variants(shape, core, fixed))),
            key=lambda one: one[:2],
        )
        for plain_s, _, variant in variants:  # nothing recomputed: no completion is faster
            if best is not None and plain_s >= best[0]:
                break
            for degrees in _fitting(shape, variant, limit_B):
                priced += 1
                found = price(shape, degrees, cluster)
                if best is None or found.step_time_s < best[0]:
                    best = (found.step_time_s, degrees, found)
    if best is None:
        raise InfeasibleError(_what_would_fit(len(cores), least_B, limit_B, start, fixed))
    return Found(best[1], best[2], len(cores), priced)


def _what_would_fit(cores: int, least_B: int | None, limit_B: int, start: Degrees, fixed: Mapping[str, int]) -> str:
    if least_B is None:
        said, other = (", as fixed,", "leave a --fix out, or ") if fixed else ("", "")
        return (
            f"no degrees for {start.device_num} devices and global batch {start.global_batch}{said} are taken by MindFormers: "
            f"{other}give a batch that divides by data parallelism"
        )
    return (
        f"nothing fits: of {cores} degrees the smallest needs {least_B / 2**30:.1f} GiB a device with every layer recomputed, "
        f"and {limit_B / 2**30:.1f} GiB are there: give more devices or shorter sequences"
    )


def _cores(shape: ModelShape, start: Degrees, fixed: Mapping[str, int]) -> Iterator[Degrees]:
    """Degrees of tensor, context, pipeline, experts and samples that MindFormers takes."""

    def given(name: str, searched: Sequence[int]) -> Sequence[int]:
        return (fixed[name],) if name in fixed else searched

    experts = [1, *_powers(shape.experts.count)] if shape.experts else [1]
    pipelines = [1, *_powers(min(shape.layers, start.device_num))] if shape.family != "qwen3" else [1]
    tensors = TENSOR[:1] if shape.streams else TENSOR
    longest = 1 if shape.compressed else shape.sequence // LEAST_TOKENS  # the former's has no price
    degrees = given("context", [1, *(c for c in CONTEXT[1:] if c <= longest)])
    contexts = [(c, m, 0) for c in degrees for m in (("colossal", "ulysses") if c > 1 else ("colossal",))]
    contexts += [(c, "hybrid", u) for c in degrees for u in CONTEXT[1:] if u < c]
    for tensor, (context, method, ulysses), pipeline, interleave, expert, local in itertools.product(
        given("tensor", tensors), contexts, given("pipeline", pipelines), given("interleave", INTERLEAVE),
        given("expert", experts), given("local_batch", LOCAL_BATCH),
    ):  # fmt: skip
        if start.device_num % (tensor * context * pipeline) or (interleave > 1 and pipeline == 1):
            continue
        core = replace(
            start, tensor=tensor, context=context, context_method=method, ulysses=ulysses, pipeline=pipeline,
            interleave=interleave, expert=expert, local_batch=local, schedule="interleaved_1f1b" if interleave > 1 else "1f1b",
        )  # fmt: skip
        if core.pipeline * core.interleave > shape.layers:
            continue
        core = replace(core, stage_layers=_split(shape, core))
        if not refusal(replace(shape, compressed_mask=True), core):
            yield core


def _powers(most: int) -> list[int]:
    return [1 << i for i in range(1, most.bit_length()) if 1 << i <= most]


def _split(shape: ModelShape, core: Degrees) -> tuple[Ranges, ...]:
    """Layers of each stage's chunks: the last gives up as many as its loss and predicted tokens weigh."""
    if core.pipeline == 1:
        return ()
    chunks = core.pipeline * core.interleave
    extra = 1 + shape.predicted_tokens  # the loss is about a layer's work, and so is a predicted token's layer
    each = [(shape.layers + extra + i) // chunks for i in range(chunks)]
    each[-1] = max(1, each[-1] - extra)
    while sum(each) > shape.layers:
        each[max(range(chunks), key=lambda i: (each[i], i))] -= 1
    while sum(each) < shape.layers:
        each[min(range(chunks - 1), key=lambda i: (each[i], i))] += 1
    bounds, first = [], 0
    for count in each:
        bounds.append((first, first + count - 1))
        first += count
    return tuple(tuple(bounds[stage :: core.pipeline]) for stage in range(core.pipeline))


def _variants(shape: ModelShape, core: Degrees, fixed: Mapping[str, int]) -> Iterator[Degrees]:
    """How parameters are shared, and whether they are given up after the forward pass."""
    shards: list[int] = [-1]
    denses: list[int | None] = [None, *DENSE_SHARDS]
    if core.expert == 1:  # without a mesh of experts both do the same
        shards, denses = [-1, *(n for n in DENSE_SHARDS if n < core.data and core.data % n == 0)], [None]
    shards = [fixed["shard"]] if "shard" in fixed else shards
    denses = [fixed["dense_shard"]] if "dense_shard" in fixed else denses
    for shard, dense, reshard in itertools.product(shards, denses, ("always", "never")):
        usual = "always" if core.pipeline == 1 else "never"  # what the policy `default` does
        variant = replace(core, shard=shard, dense_shard=dense, reshard="default" if reshard == usual else reshard)
        if (dense is None or "dense_shard" in fixed or dense < variant.fsdp) and not refusal(
            replace(shape, compressed_mask=True), variant
        ):
            yield variant


def _fitting(shape: ModelShape, variant: Degrees, limit_B: int) -> list[Degrees]:
    """`variant` with as little recomputation as fits: whole layers, or modules of all layers and whole layers of some; and with
    all layers recomputed. What experts received is kept on stages that have room.
    """
    chunks = [bounds for stage in variant.chunks(shape.layers) for bounds in stage]
    most = max(last - first + 1 for first, last in chunks) + (shape.predicted_tokens > 0)
    whole = _recomputed(shape, variant, most, ())
    if memory_B(shape, whole, limit_B) > limit_B:
        return []
    found = [whole] if variant.expert > 1 else []
    for modules in ((), ("mlp",), ("self_attention",)):
        low, high = 0, most
        while low < high:
            middle = (low + high) // 2
            if memory_B(shape, _recomputed(shape, variant, middle, modules), limit_B) <= limit_B:
                high = middle
            else:
                low = middle + 1
        candidate = _recomputed(shape, variant, low, modules)
        if memory_B(shape, candidate, limit_B) <= limit_B:
            found.append(candidate)
        if low == 0 and not modules:
            break
    return [_keeping(shape, one, limit_B) for one in found]


def _recomputed(shape: ModelShape, variant: Degrees, count: int, modules: tuple[str, ...]) -> Degrees:
    """With the first `count` layers of each chunk recomputed, and `modules` of the others; predicted tokens follow the last."""
    whole, rest = [], []
    for first, last in sorted(bounds for stage in variant.chunks(shape.layers) for bounds in stage):
        end = last + (shape.predicted_tokens if last == shape.layers - 1 else 0)
        middle = min(first + count, end + 1)
        whole += [(first, middle - 1)] if middle > first else []
        rest += [(middle, last)] if middle <= last else []
    chosen = tuple((name, _joined(rest)) for name in modules if rest)
    return replace(variant, recompute=Recompute(_joined(whole), chosen))


def _keeping(shape: ModelShape, degrees: Degrees, limit_B: int) -> Degrees:
    """`degrees` with what experts received kept, on each stage as much as fits, where it would be sent once more."""
    if shape.experts is None or degrees.expert == 1:
        return degrees
    recomputation = degrees.recompute
    kept: dict[str, list[tuple[int, int]]] = {}
    for stage, bounds in enumerate(degrees.chunks(shape.layers)):
        layers = sorted(layer for first, last in bounds for layer in range(first, last + 1))
        sent = _joined([(layer, layer) for layer in layers if _sends_twice(shape, recomputation, layer)])
        for slots in (EXCHANGES, EXCHANGES[1:]) if sent else ():
            tried = replace(degrees, recompute=replace(recomputation, kept=tuple((name, sent) for name in slots)))
            if sum(memory(shape, tried, stage).values()) <= limit_B:
                for name in slots:
                    kept.setdefault(name, []).extend(sent)
                break
    chosen = tuple((name, _joined(sorted(kept[name]))) for name in EXCHANGES if name in kept)
    return replace(degrees, recompute=replace(recomputation, kept=chosen))


def _sends_twice(shape: ModelShape, recomputation: Recompute, layer: int) -> bool:
    return shape.has_experts(layer) and (recomputation.whole(layer) or recomputation.module("mlp", layer))


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    """Ranges that follow each other as one."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and found[-1][1] == first - 1:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)
