"""What one rank computes in a micro-batch: kernels of each module, both ways, and how many operations a host launches."""

from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.kernel import Kernel, attention_s, pass_s, product_float32_s
from ms_symtensor.targets.mindformers_pynative import compressed_work, streams
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.module import ATTENTION_BACKWARD, Module, module_of
from ms_symtensor.targets.mindformers_pynative.predicted import routed_rows, tokens
from ms_symtensor.targets.mindformers_pynative.shape import INDEXED, ModelShape, once

_ITEM_B, _FP32_B = 2, 4
LAUNCHES_DENSE, LAUNCHES_LATENT, LAUNCHES_ROUTED, LAUNCHES_PER_EXPERT = 81, 24, 104, 2
"""Operations of a layer forward, counted in traces of MindFormers 2.1 (nodes of the gradient): of Qwen3's; more with latent
attention; more with experts, unfused, whose rows are cut and joined expert by expert, before and behind.
"""
LAUNCHES_COMPRESSED = {0: (100, 63), INDEXED: (334, 228), 128: (156, 115)}
"""More with DeepSeek-V4's attention, by its ratio: of small operations, and with fused kernels."""
LAUNCHES_CONNECTION, LAUNCHES_ITERATION = 51, 6
"""More of a hyper-connection, and of an iteration beside the first half of one."""


@dataclass(frozen=True)
class Seconds:
    """A module's time, and the operations that a host launches for it in one direction."""

    forward_s: float
    backward_s: float
    flops: float


@once
def seconds(shape: ModelShape, part: str, key: Degrees, cluster: Cluster, ratio: int = 0) -> Seconds:
    """Time of `part` (`self_attention`, `dense`, `experts`, `around`, `head`) by the degrees of `key` (see `work_key`).

    `ratio`: of compression, of the layer that it is in.
    """
    if part == "self_attention" and shape.compressed is not None:
        found = compressed_work.attention(shape, ratio, tokens(shape, key), key.tensor)
    else:
        found = _MODULES[part](shape, key)
    return Seconds(_sum(found.forward, cluster), _sum(found.backward, cluster), found.flops)


def work_key(degrees: Degrees) -> Degrees:
    """The degrees that decide what a layer computes, alike for all that differ in others."""
    return Degrees(
        degrees.tensor * degrees.context * degrees.expert,
        degrees.tensor,
        degrees.context,
        degrees.context_method,
        degrees.ulysses,
        expert=degrees.expert,
        safe_tokens=degrees.safe_tokens,
        local_batch=degrees.local_batch,
    )


def launches(shape: ModelShape, routed: bool, ratio: int) -> int:
    """Operations of one layer in one direction."""
    found = LAUNCHES_DENSE + (LAUNCHES_LATENT if shape.latent else 0)
    found += LAUNCHES_COMPRESSED[ratio][shape.compressed.fused] if shape.compressed else 0
    if shape.streams:
        found += 2 * LAUNCHES_CONNECTION + LAUNCHES_ITERATION * (2 * shape.streams.iterations - 1)
    if routed and shape.experts:
        found += LAUNCHES_ROUTED + LAUNCHES_PER_EXPERT * shape.experts.count
    return found


def _sum(kernels: tuple[Kernel, ...], cluster: Cluster) -> float:
    return float(sum(kernel.seconds(cluster) for kernel in kernels))


def _attention(shape: ModelShape, degrees: Degrees) -> Module:
    rows, tensor = tokens(shape, degrees), degrees.tensor
    part, hidden, heads = rows // tensor, shape.hidden, shape.heads // tensor
    latent = shape.latent
    norms_B = [2.0 * part * hidden * _ITEM_B]
    if latent is None:
        width, groups = shape.head, shape.key_value_heads // tensor
        inner = (heads + 2 * groups) * width
        kernel = _flash(shape, degrees, heads, width, rows * (2 * heads + 2 * groups) * width * _ITEM_B)
        rotated_B = [2.0 * rows * (heads + groups) * width * _ITEM_B] * 3  # two norms of heads, rotation, layouts
        return module_of([(rows, hidden, inner), (rows, heads * width, hidden)], norms_B + rotated_B, kernel)
    key = latent.nope + latent.rope
    compressed = latent.query + latent.key_value + latent.rope
    products = [
        (part, hidden, compressed),
        (rows, latent.query, heads * key),
        (rows, latent.key_value, heads * (latent.nope + latent.value)),
        (rows, heads * latent.value, hidden),
    ]
    kernel = _flash(shape, degrees, heads, key, rows * heads * (2 * key + 2 * latent.value) * _ITEM_B)
    moved_B = [2.0 * part * compressed * _ITEM_B, *[2.0 * rows * heads * key * _ITEM_B] * 3]
    return module_of([(float(a), float(b), float(c)) for a, b, c in products], norms_B + moved_B, kernel)


def _flash(shape: ModelShape, degrees: Degrees, heads: int, width: int, traffic_B: float) -> Module:
    """Fused attention: a query meets half of the keys before it on average; ranks of context parallelism wait for the last."""
    slices = degrees.context // degrees.ulysses_degree
    keys = shape.sequence / 2 * (2 - 1 / slices)
    rows = tokens(shape, degrees) * heads
    seen = {"rows": rows, "keys": keys, "head_dim": width, "traffic_B": traffic_B}
    forward = Kernel(attention_s, seen)
    return Module((forward,), (Kernel(attention_s, seen, ATTENTION_BACKWARD),), 4.0 * rows * shape.sequence * width)


def _dense(shape: ModelShape, degrees: Degrees) -> Module:
    rows, part, inner = (
        tokens(shape, degrees),
        tokens(shape, degrees) // degrees.tensor,
        shape.feed_forward // degrees.tensor,
    )
    products = [(float(rows), float(shape.hidden), 2.0 * inner), (float(rows), float(inner), float(shape.hidden))]
    return module_of(products, [2.0 * part * shape.hidden * _ITEM_B, *_gates_B(shape, rows, inner)])


def _gates_B(shape: ModelShape, rows: int, inner: int) -> list[float]:
    """Reads two halves and writes their product; unfused, the activation is a pass of its own."""
    whole = float(rows * inner * _ITEM_B)
    if shape.clamped:
        return [
            *[2 * 2 * (whole + rows * inner * _FP32_B)] * 3,
            3 * whole,
        ]  # both halves cast, cut off, and where they were
    return [3 * whole] if shape.fused_activation else [2 * whole, 3 * whole]


def _experts(shape: ModelShape, degrees: Degrees) -> Module:
    experts = shape.experts
    assert experts is not None
    part, hidden = tokens(shape, degrees) // degrees.tensor, shape.hidden
    routed, inner, shared = routed_rows(shape, degrees), experts.feed_forward, experts.shared_feed_forward
    products = [(float(routed), float(hidden), 2.0 * inner), (float(routed), float(inner), float(hidden))]
    if shared:
        products += [(float(part), float(hidden), 2.0 * shared), (float(part), float(shared), float(hidden))]
    moved_B = 2.0 * routed * hidden * _ITEM_B
    times = 4 if degrees.expert > 1 else 2  # sorted, sent, sorted by expert, and back
    passes_B = [2.0 * part * hidden * _ITEM_B, *[moved_B] * times, *_gates_B(shape, routed, inner)]
    passes_B += _gates_B(shape, part, shared) if shared else []
    scores = {"elements": part * experts.count, "depth": hidden, "flops": 2, "traffic_B": part * hidden * _FP32_B}
    router = Kernel(product_float32_s, scores)
    choice = Kernel(pass_s, {"traffic_B": 8.0 * part * experts.count * _FP32_B})
    flops = 2.0 * part * experts.count * hidden
    return module_of(products, passes_B, Module((router, choice), (router, router, choice), flops))


def _around(shape: ModelShape, degrees: Degrees) -> Module:
    """Two sums of a layer with what went before, or two hyper-connections."""
    if shape.streams is not None:
        return streams.work(shape, tokens(shape, degrees) // degrees.tensor)
    return module_of([], [3.0 * (tokens(shape, degrees) // degrees.tensor) * shape.hidden * _ITEM_B] * 2)


def _head(shape: ModelShape, degrees: Degrees) -> Module:
    """Final norm, logits, and the loss: logits read in their type, and in float32 as often as it has steps."""
    rows, vocabulary = tokens(shape, degrees), shape.vocabulary // degrees.tensor
    logits = float(rows * vocabulary)
    passes_B = [2.0 * rows * shape.hidden * _ITEM_B, logits * (_ITEM_B + _FP32_B), *[2 * logits * _FP32_B] * 2]
    return module_of([(float(rows), float(shape.hidden), float(vocabulary))], passes_B)


_MODULES = {"self_attention": _attention, "dense": _dense, "experts": _experts, "around": _around, "head": _head}
"""How each module of a network is counted."""
