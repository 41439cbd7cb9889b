"""The sharded units of one rank: which parameters each module has, and among how many ranks they are shared.

As MindFormers 2.1 builds and wraps them (mindformers/pynative/base_models/gpt/parallelize.py, apply_fsdp): embedding, layers,
final norm, output layer. The routed experts of a layer are a unit of their own under expert parallelism; with multi-token
prediction the output layer belongs to the root, as what collapses streams does.
"""

import math
from collections import Counter
from typing import NamedTuple

from ms_symtensor.targets.mindformers_pynative import compressed, streams
from ms_symtensor.targets.mindformers_pynative.calls import ROUTED, Parameter, Unit
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.layers import ends, kinds_of, starts
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, once

_BF16, _FP32 = "bfloat16", "float32"
Shape = tuple[str, tuple[int, ...], int]
"""A parameter's dtype, its dims on this rank, and over how many ranks of tensor parallelism its gradient is a partial sum."""


class Sharing(NamedTuple):
    """The degrees that units depend on."""

    tensor: int
    expert: int
    shards: int
    """Ranks that share a dense parameter."""
    replicas: int
    expert_shards: int
    expert_replicas: int
    reshards: bool
    head_reshards: bool


class Held(NamedTuple):
    """Which layers and ends a stage has."""

    layers: tuple[tuple[bool, bool, int, int], ...]
    """Whether they have experts, whether they are of multi-token prediction, their ratio of compression, and how many."""
    starts: bool
    ends: bool


def sharing(degrees: Degrees) -> Sharing:
    """How `degrees` share parameters."""
    shards = degrees.dense_shard or degrees.fsdp
    return Sharing(
        degrees.tensor, degrees.expert, shards, degrees.replicas * degrees.fsdp // shards, degrees.expert_fsdp,
        degrees.replicas, degrees.reshards, degrees.reshard == "always",
    )  # fmt: skip


def held(shape: ModelShape, degrees: Degrees, stage: int) -> Held:
    """What `stage` has."""
    counts: Counter[tuple[bool, bool, int]] = Counter()
    for kind, count in kinds_of(shape, degrees, stage).items():
        counts[kind.routed, kind.predicts, kind.ratio] += count
    layers = tuple((*kind, count) for kind, count in sorted(counts.items()))
    return Held(layers, starts(shape, degrees, stage), ends(shape, degrees, stage))


def units_of(shape: ModelShape, degrees: Degrees, stage: int) -> tuple[Unit, ...]:
    """The units of a rank of `stage`."""
    counts = unit_counts(shape, sharing(degrees), held(shape, degrees, stage))
    return tuple(unit for unit, count in counts for _ in range(count))


@once
def unit_counts(shape: ModelShape, by: Sharing, of: Held) -> tuple[tuple[Unit, int], ...]:
    """The same, those of layers that are alike together."""
    vocabulary, predicts = shape.vocabulary // by.tensor, shape.predicted_tokens > 0
    found: list[tuple[Unit, int]] = []
    if of.starts or (of.ends and predicts):
        found.append((_dense(by, "LanguageModelEmbedding", [(_FP32, (vocabulary, shape.hidden), 1)]), 1))
    for routed, predicting, ratio, count in of.layers:
        found += [(unit, count) for unit in _layer_units(shape, by, routed, predicting, ratio)]
    if of.ends:
        head = (_BF16, (vocabulary, shape.hidden), 1)
        found.append((_dense(by, "FusedRMSNorm", [_norm(shape.hidden, by)], reshards=True), 1))
        at_root: list[Shape] = [head] if predicts else []
        if not predicts:
            found.append((_dense(by, "Linear", [head], reshards=by.head_reshards), 1))
        if shape.streams or predicts:
            found.append((_root(by, at_root, _collapse(shape) if shape.streams else []), 1))
    return tuple(found)


def _layer_units(shape: ModelShape, degrees: Sharing, routed: bool, predicting: bool, ratio: int) -> tuple[Unit, ...]:
    inside = attention(shape, degrees, ratio) + _feed_forward(shape, degrees, routed)
    if shape.streams:
        inside += [(_FP32, dims, degrees.tensor) for dims in streams.connection(shape)] * 2
    name, found = "TransformerLayer", []
    if predicting:
        around = [_norm(shape.hidden, degrees)] * 3 + [(_BF16, (shape.hidden, 2 * shape.hidden), degrees.tensor)]
        name, inside = "MultiTokenPredictionLayer", inside + around + (_collapse(shape) if shape.streams else [])
    if routed:
        experts = _experts(shape, degrees)
        if degrees.expert > 1:
            found.append(_expert_unit(degrees, experts))
        else:
            inside = inside + experts
    return (*found, _dense(degrees, name, inside))


def attention(shape: ModelShape, degrees: Sharing, ratio: int) -> list[Shape]:
    """Parameters of an attention and of the layer's two norms."""
    tensor, hidden, heads = degrees.tensor, shape.hidden, shape.heads // degrees.tensor
    norms = [_norm(hidden, degrees)] * 2
    if shape.compressed is not None:
        return norms + compressed.parameters(shape, ratio, tensor)
    latent = shape.latent
    if latent is None:
        groups = shape.key_value_heads // tensor
        return [
            *norms,
            (_BF16, ((heads + 2 * groups) * shape.head, hidden), 1),
            (_BF16, (hidden, heads * shape.head), 1),
            *[_norm(shape.head, degrees)] * 2,
        ]
    return [
        *norms,
        (_BF16, (latent.query + latent.key_value + latent.rope, hidden), tensor),
        _norm(latent.query, degrees),
        _norm(latent.key_value, degrees),
        (_BF16, (heads * (latent.nope + latent.rope), latent.query), 1),
        (_BF16, (heads * (latent.nope + latent.value), latent.key_value), 1),
        (_BF16, (hidden, heads * latent.value), 1),
    ]


def _feed_forward(shape: ModelShape, degrees: Sharing, routed: bool) -> list[Shape]:
    hidden = shape.hidden
    if not routed:
        inner = shape.feed_forward // degrees.tensor
        return [(_BF16, (2 * inner, hidden), 1), (_BF16, (hidden, inner), 1)]
    experts = shape.experts
    assert experts is not None
    found: list[Shape] = [(_FP32, (experts.count, hidden), degrees.tensor)]
    if experts.shared_feed_forward:
        inner = experts.shared_feed_forward
        found += [(_BF16, (2 * inner, hidden), degrees.tensor), (_BF16, (hidden, inner), degrees.tensor)]
    return found


def _experts(shape: ModelShape, degrees: Sharing) -> list[Shape]:
    experts = shape.experts
    assert experts is not None
    count = experts.count // degrees.expert
    partial = degrees.tensor if degrees.expert == 1 else 1
    return [
        (_BF16, (count, shape.hidden, 2 * experts.feed_forward), partial),
        (_BF16, (count, experts.feed_forward, shape.hidden), partial),
    ]


def _norm(length: int, degrees: Sharing) -> Shape:
    return (_FP32, (length,), degrees.tensor)


def _dense(by: Sharing, name: str, shapes: list[Shape], reshards: bool | None = None) -> Unit:
    """A unit over the ranks of dense parameters; one whose first dim does not divide among them, or is 1, stays whole."""
    parameters = tuple(_parameter(one, whole=one[1][0] == 1 or one[1][0] % by.shards != 0) for one in shapes)
    return Unit(name, parameters, by.shards, by.replicas, by.reshards if reshards is None else reshards)


def _root(by: Sharing, head: list[Shape], collapse: list[Shape]) -> Unit:
    """The root, which leaves its `head` to be shared in any case."""
    unit = _dense(by, "root", collapse, reshards=True)
    heads = tuple(_parameter(one, whole=False) for one in head)
    return Unit(unit.name, heads + unit.parameters, unit.shards, unit.replicas, unit.reshards)


def _collapse(shape: ModelShape) -> list[Shape]:
    return [(_FP32, dims, 1) for dims in streams.collapse(shape)]


def _expert_unit(by: Sharing, shapes: list[Shape]) -> Unit:
    """Experts are shared along their number, or else along their second dim."""
    shards = by.expert_shards
    parameters = tuple(_parameter(one, whole=one[1][0] % shards != 0 and one[1][1] % shards != 0) for one in shapes)
    return Unit(ROUTED, parameters, shards, by.expert_replicas, by.reshards)


def _parameter(shape: Shape, whole: bool) -> Parameter:
    dtype, dims, partial = shape
    return Parameter(dtype, math.prod(dims), whole, partial)
