"""What one rank computes in a micro-batch: kernels of each module, both ways, and how many operations a host launches."""

from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.kernel import Kernel, attention_s, pass_s, product_float32_s, product_s
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.predicted import routed_rows, tokens
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, once

_ITEM_B, _FP32_B = 2, 4
_ATTENTION_BACKWARD = 2.5
"""Products of fused attention backward to those forward: five to two (arXiv 2205.14135, algorithm 4)."""
LAUNCHES_DENSE, LAUNCHES_LATENT, LAUNCHES_ROUTED, LAUNCHES_PER_EXPERT = 81, 24, 104, 2
"""Operations of a layer forward, counted in traces of MindFormers 2.1 (nodes of the gradient): of Qwen3's; more with latent
attention; more with experts, unfused, whose rows are cut and joined expert by expert, before and behind.
"""


@dataclass(frozen=True)
class Module:
    """A module of a layer, on one rank."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    flops: float
    """Of its products forward, what a causal mask hides included."""


@dataclass(frozen=True)
class Seconds:
    """A module's time, and the operations that a host launches for it in one direction."""

    forward_s: float
    backward_s: float
    flops: float


@once
def seconds(shape: ModelShape, part: str, key: Degrees, cluster: Cluster) -> Seconds:
    """Time of `part` (`self_attention`, `dense`, `experts`, `around`, `head`) by the degrees of `key` (see `work_key`)."""
    module = {"self_attention": _attention, "dense": _dense, "experts": _experts, "around": _around, "head": _head}[
        part
    ]
    found = module(shape, key)
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


def launches(shape: ModelShape, routed: bool) -> int:
    """Operations of one layer in one direction."""
    found = LAUNCHES_DENSE + (LAUNCHES_LATENT if shape.latent else 0)
    if routed and shape.experts:
        found += LAUNCHES_ROUTED + LAUNCHES_PER_EXPERT * shape.experts.count
    return found


def _sum(kernels: tuple[Kernel, ...], cluster: Cluster) -> float:
    return float(sum(kernel.seconds(cluster) for kernel in kernels))


def _module(
    products: list[tuple[float, float, float]], passes_B: list[float], others: "Module | None" = None
) -> Module:
    """Products of (rows, depth, columns), and passes over memory, which their gradients do twice."""
    forward = [_product(rows * columns, depth, rows, columns) for rows, depth, columns in products]
    backward = []
    for rows, depth, columns in products:
        backward += [_product(rows * depth, columns, rows, depth), _product(depth * columns, rows, depth, columns)]
    moved = [Kernel(pass_s, {"traffic_B": size_B}) for size_B in passes_B if size_B]
    flops = sum(2 * rows * depth * columns for rows, depth, columns in products)
    twice = [Kernel(pass_s, {"traffic_B": 2 * size_B}) for size_B in passes_B if size_B]
    if others is not None:
        forward, backward, flops = [*forward, *others.forward], [*backward, *others.backward], flops + others.flops
    return Module((*forward, *moved), (*backward, *twice), flops)


def _product(elements: float, depth: float, rows: float, columns: float) -> Kernel:
    traffic_B = _ITEM_B * (rows * depth + depth * columns + elements)
    return Kernel(product_s, {"elements": elements, "depth": depth, "flops": 2, "traffic_B": traffic_B})


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
        return _module([(rows, hidden, inner), (rows, heads * width, hidden)], norms_B + rotated_B, kernel)
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
    return _module([(float(a), float(b), float(c)) for a, b, c in products], norms_B + moved_B, kernel)


def _flash(shape: ModelShape, degrees: Degrees, heads: int, width: int, traffic_B: float) -> Module:
    """Fused attention: a query meets half of the keys before it on average; ranks of context parallelism wait for the last."""
    slices = degrees.context // degrees.ulysses_degree
    keys = shape.sequence / 2 * (2 - 1 / slices)
    rows = tokens(shape, degrees) * heads
    seen = {"rows": rows, "keys": keys, "head_dim": width, "traffic_B": traffic_B}
    forward = Kernel(attention_s, seen)
    return Module((forward,), (Kernel(attention_s, seen, _ATTENTION_BACKWARD),), 4.0 * rows * shape.sequence * width)


def _dense(shape: ModelShape, degrees: Degrees) -> Module:
    rows, part, inner = (
        tokens(shape, degrees),
        tokens(shape, degrees) // degrees.tensor,
        shape.feed_forward // degrees.tensor,
    )
    products = [(float(rows), float(shape.hidden), 2.0 * inner), (float(rows), float(inner), float(shape.hidden))]
    return _module(products, [2.0 * part * shape.hidden * _ITEM_B, *_gates_B(shape, rows, inner)])


def _gates_B(shape: ModelShape, rows: int, inner: int) -> list[float]:
    """Reads two halves and writes their product; unfused, the activation is a pass of its own."""
    whole = float(rows * inner * _ITEM_B)
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
    return _module(products, passes_B, Module((router, choice), (router, router, choice), flops))


def _around(shape: ModelShape, degrees: Degrees) -> Module:
    """Two sums of a layer with what went before."""
    return _module([], [3.0 * (tokens(shape, degrees) // degrees.tensor) * shape.hidden * _ITEM_B] * 2)


def _head(shape: ModelShape, degrees: Degrees) -> Module:
    """Final norm, logits, and the loss: logits read in their type, and in float32 as often as it has steps."""
    rows, vocabulary = tokens(shape, degrees), shape.vocabulary // degrees.tensor
    logits = float(rows * vocabulary)
    passes_B = [2.0 * rows * shape.hidden * _ITEM_B, logits * (_ITEM_B + _FP32_B), *[2 * logits * _FP32_B] * 2]
    return _module([(float(rows), float(shape.hidden), float(vocabulary))], passes_B)
