"""The collectives that MindFormers' code makes in one micro-batch of one rank, without MindFormers.

Tensor parallelism is sequence-parallel (mindformers/pynative/distributed/style.py): a column-wise layer gathers its input, a
row-wise one reduce-scatters its output, and their gradients do the other. Latent attention gathers what it compressed. Experts
send tokens to and fro by all-to-all, one row more per expert with safe tokens. The loss is reduced over the vocabulary.
"""

from collections.abc import Iterable, Iterator

from ms_symtensor.targets.mindformers_pynative import compressed
from ms_symtensor.targets.mindformers_pynative.calls import Call, Calls, counted
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.layers import EXCHANGES, Kind, ends, kinds_of, starts
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

_BF16, _FP32 = "bfloat16", "float32"
_OTHER_WAY = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_to_all": "all_to_all"}


def calls_of(shape: ModelShape, degrees: Degrees, stage: int) -> Calls:
    """MindFormers' own calls of a rank of `stage`, in one micro-batch."""
    return _counted(_stage(shape, degrees, stage))


def context_calls_of(shape: ModelShape, degrees: Degrees, stage: int) -> Calls:
    """hyper-parallel's calls of context parallelism, in one micro-batch."""
    return _counted(_stage_contexts(shape, degrees, stage))


def _counted(calls: Iterator[tuple[Call, int]]) -> Calls:
    return counted((call, count) for call, count in calls if call.ranks > 1)


def tokens(shape: ModelShape, degrees: Degrees) -> int:
    """Tokens of a micro-batch on the ranks of one group of tensor parallelism together."""
    return shape.sequence // degrees.context * degrees.local_batch


def routed_rows(shape: ModelShape, degrees: Degrees) -> int:
    """Rows that a rank sends to experts: each token to each of its own, and safe tokens."""
    experts = shape.experts
    assert experts is not None
    safe = experts.count if degrees.safe_tokens and degrees.expert > 1 else 0
    return (tokens(shape, degrees) // degrees.tensor + safe) * experts.per_token


def _stage(shape: ModelShape, degrees: Degrees, stage: int) -> Iterator[tuple[Call, int]]:
    yield from _times(edge_calls(shape, degrees, starts(shape, degrees, stage), ends(shape, degrees, stage)), 1)
    for kind, count in kinds_of(shape, degrees, stage).items():
        yield from _times(kind_calls(shape, degrees, kind), count)


def edge_calls(shape: ModelShape, degrees: Degrees, starting: bool, ending: bool) -> Iterator[Call]:
    """Calls of the embedding and of the loss, each once more for predicted tokens."""
    predicted = shape.predicted_tokens if ending else 0
    for _ in range(starting + predicted):
        yield from _with_gradient(_embedding(shape, degrees))
    for _ in range(ending + predicted):
        yield from _head(shape, degrees)


def kind_calls(shape: ModelShape, degrees: Degrees, kind: Kind) -> Iterator[Call]:
    """MindFormers' calls of a layer, both ways."""
    parts = {"self_attention": attention(shape, degrees), "mlp": _feed_forward(shape, degrees, kind.routed)}
    for name, both in parts.items():
        yield from both
        forward = [call for call in both if call.phase == "forward"]
        if kind.repeats(name):  # a module alone stops once it has what its gradient reads
            recomputation = forward[: len(forward) - len(kind.kept)] if name == "mlp" else forward
            yield from (_in("recompute", call) for call in recomputation if kind.whole or call.kind != "reduce_scatter")
    if kind.predicts and kind.whole:
        yield from (_in("recompute", call) for call in _embedding(shape, degrees))


def kind_contexts(shape: ModelShape, degrees: Degrees, kind: Kind) -> Iterator[Call]:
    """hyper-parallel's calls of a layer for context parallelism, both ways."""
    if degrees.context == 1:
        return
    forward = contexts(shape, degrees)
    yield from _with_gradient(forward)
    if kind.repeats("self_attention"):
        yield from (_in("recompute", call) for call in forward)


def _stage_contexts(shape: ModelShape, degrees: Degrees, stage: int) -> Iterator[tuple[Call, int]]:
    for kind, count in kinds_of(shape, degrees, stage).items():
        yield from _times(kind_contexts(shape, degrees, kind), count)


def _times(calls: Iterable[Call], count: int) -> Iterator[tuple[Call, int]]:
    return ((call, count) for call in calls)


def _gather(degrees: Degrees, elements: int, dtype: str = _BF16, item_B: int = 2) -> Call:
    """The gather of `elements` of all ranks together, of which this one has its part."""
    return Call("forward", "all_gather", dtype, elements * item_B // degrees.tensor, degrees.tensor)


def _scatter(degrees: Degrees, elements: int, dtype: str = _BF16, item_B: int = 2) -> Call:
    return Call("forward", "reduce_scatter", dtype, elements * item_B, degrees.tensor)


def _embedding(shape: ModelShape, degrees: Degrees) -> list[Call]:
    """The embedding's weights are float32, and so is its sum over the ranks."""
    return [_scatter(degrees, tokens(shape, degrees) * shape.hidden, _FP32, 4)]


def _head(shape: ModelShape, degrees: Degrees) -> Iterator[Call]:
    count = tokens(shape, degrees)
    yield from _with_gradient([_gather(degrees, count * shape.hidden)])
    yield from [Call("forward", "all_reduce", _FP32, count * 4, degrees.tensor)] * 3  # maximum, sum, target


def attention(shape: ModelShape, degrees: Degrees) -> list[Call]:
    """Of tensor parallelism, both ways."""
    count = tokens(shape, degrees)
    if shape.compressed is not None:
        return [*compressed.calls(shape, count, degrees.tensor)]
    latent = shape.latent
    widths = (shape.hidden,) if latent is None else (latent.query, latent.key_value, latent.rope)
    gathers = [_gather(degrees, count * width) for width in widths]
    return [*_with_gradient([*gathers, _scatter(degrees, count * shape.hidden)])]


def _feed_forward(shape: ModelShape, degrees: Degrees, routed: bool) -> list[Call]:
    count = tokens(shape, degrees) * shape.hidden
    if not routed:
        return [*_with_gradient([_gather(degrees, count), _scatter(degrees, count)])]
    experts = shape.experts
    assert experts is not None
    found = []
    if experts.balanced:
        statistics_B = degrees.local_batch * experts.count * 4
        found += [Call("forward", "all_reduce", _FP32, 2 * statistics_B, degrees.tensor)]
        found += [Call("forward", "all_reduce", _FP32, statistics_B, degrees.context)]
    rows_B = routed_rows(shape, degrees) * shape.hidden * 2
    found += [Call("forward", "all_to_all", _FP32, experts.count * 4, degrees.expert)]
    exchange = Call("forward", "all_to_all", _BF16, rows_B, degrees.expert)
    # Exchanges are the last forward: `kind_calls` leaves out as many as are kept.
    return [*_with_gradient(found + [exchange] * len(EXCHANGES))]


def contexts(shape: ModelShape, degrees: Degrees) -> list[Call]:
    """Of context parallelism, forward: heads for sequence, then keys and values of the other ranks."""
    rows, heads = tokens(shape, degrees), shape.heads // degrees.tensor
    if shape.latent is None:
        groups = shape.key_value_heads // degrees.tensor
        query, key, value, out = (count * shape.head for count in (heads, groups, groups, heads))
    else:
        query = key = heads * (shape.latent.nope + shape.latent.rope)
        value = out = heads * shape.latent.value
    ulysses = degrees.ulysses_degree
    found = [Call("forward", "all_to_all", _BF16, rows * width * 2, ulysses) for width in (query, key, value, out)]
    rest = degrees.context // ulysses
    return found + [Call("forward", "all_gather", _BF16, rows * width * 2, rest) for width in (key, value)]


def _with_gradient(forward: list[Call]) -> Iterator[Call]:
    """Calls, and those of their gradients: counts have none, a sum is one either way."""
    for call in forward:
        yield call
        if call.kind == "all_reduce":
            yield _in("backward", call)
        elif call.kind != "all_to_all" or call.dtype != _FP32:
            scale = {"all_gather": call.ranks, "reduce_scatter": 1 / call.ranks}.get(call.kind, 1)
            yield Call("backward", _OTHER_WAY[call.kind], call.dtype, int(call.size_B * scale), call.ranks)


def _in(phase: str, call: Call) -> Call:
    return Call(phase, call.kind, call.dtype, call.size_B, call.ranks)
