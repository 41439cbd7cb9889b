"""The sharded units of one rank: which parameters each module has, and among how many ranks they are shared.

As MindFormers 2.1 builds and wraps them (mindformers/pynative/base_models/gpt/parallelize.py, apply_fsdp): embedding, layers,
final norm, output layer. The routed experts of a layer are a unit of their own under expert parallelism; with multi-token
prediction the output layer belongs to the root.
"""

from ms_symtensor.targets.mindformers_pynative.calls import Parameter, Unit
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

_BF16, _FP32 = "bfloat16", "float32"
Shape = tuple[str, tuple[int, ...], int]
"""A parameter's dtype, its dims on this rank, and over how many ranks of tensor parallelism its gradient is a partial sum."""


def units_of(shape: ModelShape, degrees: Degrees, stage: int) -> tuple[Unit, ...]:
    """The units of a rank of `stage`."""
    found: list[Unit] = []
    for first, last in degrees.chunks(shape.layers)[stage]:
        found += _chunk_units(shape, degrees, first, last)
    return tuple(found)


def _chunk_units(shape: ModelShape, degrees: Degrees, first: int, last: int) -> list[Unit]:
    vocabulary = shape.vocabulary // degrees.tensor
    predicts = shape.predicted_tokens > 0
    ends = last == shape.layers - 1
    head = (_BF16, (vocabulary, shape.hidden), 1)
    found = []
    if first == 0 or (ends and predicts):
        found.append(_dense(degrees, "LanguageModelEmbedding", [(_FP32, (vocabulary, shape.hidden), 1)]))
    for layer in range(first, last + 1):
        found += _layer_units(shape, degrees, layer)
    if ends:
        found.append(_dense(degrees, "FusedRMSNorm", [_norm(shape.hidden, degrees)], reshards=True))
        if not predicts:
            found.append(_dense(degrees, "Linear", [head], reshards=degrees.reshard == "always"))
        for token in range(shape.predicted_tokens):
            found += _layer_units(shape, degrees, shape.layers + token)
    if ends and predicts:
        found.append(_root(degrees, head))
    return found


def _layer_units(shape: ModelShape, degrees: Degrees, layer: int) -> list[Unit]:
    inside = attention(shape, degrees) + _feed_forward(shape, degrees, layer)
    name, found = "TransformerLayer", []
    if layer >= shape.layers:
        around = [_norm(shape.hidden, degrees)] * 3 + [(_BF16, (shape.hidden, 2 * shape.hidden), degrees.tensor)]
        name, inside = "MultiTokenPredictionLayer", inside + around
    if shape.has_experts(layer):
        experts = _experts(shape, degrees)
        if degrees.expert > 1:
            found.append(_expert_unit(degrees, experts))
        else:
            inside = inside + experts
    return [*found, _dense(degrees, name, inside)]


def attention(shape: ModelShape, degrees: Degrees) -> list[Shape]:
    """Parameters of an attention and of the layer's two norms."""
    tensor, hidden, heads = degrees.tensor, shape.hidden, shape.heads // degrees.tensor
    norms = [_norm(hidden, degrees)] * 2
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


def _feed_forward(shape: ModelShape, degrees: Degrees, layer: int) -> list[Shape]:
    hidden = shape.hidden
    if not shape.has_experts(layer):
        inner = shape.feed_forward // degrees.tensor
        return [(_BF16, (2 * inner, hidden), 1), (_BF16, (hidden, inner), 1)]
    experts = shape.experts
    assert experts is not None
    found: list[Shape] = [(_FP32, (experts.count, hidden), degrees.tensor)]
    if experts.shared_feed_forward:
        inner = experts.shared_feed_forward
        found += [(_BF16, (2 * inner, hidden), degrees.tensor), (_BF16, (hidden, inner), degrees.tensor)]
    return found


def _experts(shape: ModelShape, degrees: Degrees) -> list[Shape]:
    experts = shape.experts
    assert experts is not None
    count = experts.count // degrees.expert
    partial = degrees.tensor if degrees.expert == 1 else 1
    return [
        (_BF16, (count, shape.hidden, 2 * experts.feed_forward), partial),
        (_BF16, (count, experts.feed_forward, shape.hidden), partial),
    ]


def _norm(length: int, degrees: Degrees) -> Shape:
    return (_FP32, (length,), degrees.tensor)


def _dense(degrees: Degrees, name: str, shapes: list[Shape], reshards: bool | None = None) -> Unit:
    """A unit over the ranks of dense parameters; one whose first dim does not divide among them stays whole."""
    shards = degrees.dense_shard or degrees.fsdp
    replicas = degrees.replicas * degrees.fsdp // shards
    parameters = tuple(_parameter(one, whole=one[1][0] % shards != 0) for one in shapes)
    return Unit(name, parameters, shards, replicas, degrees.reshards if reshards is None else reshards)


def _root(degrees: Degrees, head: Shape) -> Unit:
    """The root has no list of parameters to leave whole."""
    unit = _dense(degrees, "root", [head], reshards=True)
    return Unit(unit.name, (_parameter(head, whole=False),), unit.shards, unit.replicas, unit.reshards)


def _expert_unit(degrees: Degrees, shapes: list[Shape]) -> Unit:
    """Experts are shared along their number, or else along their second dim."""
    shards = degrees.expert_fsdp
    parameters = tuple(_parameter(one, whole=one[1][0] % shards != 0 and one[1][1] % shards != 0) for one in shapes)
    return Unit("GroupedMLP", parameters, shards, degrees.replicas, degrees.reshards)


def _parameter(shape: Shape, whole: bool) -> Parameter:
    dtype, dims, partial = shape
    elements = 1
    for length in dims:
        elements *= length
    return Parameter(dtype, elements, whole, partial)
