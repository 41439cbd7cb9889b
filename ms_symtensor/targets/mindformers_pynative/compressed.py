"""DeepSeek-V4's attention on one rank: its parameters, its calls, and what it keeps for the backward pass.

A query reads the keys of a window and of what a compressor made of all tokens before: softmax sums of windows of `ratio` tokens.
In layers of ratio 4 an indexer chooses among these (mindformers/pynative/transformers/experimental_attention_variant). Tensor
parallelism cuts the projection of queries alone; the rest runs on every rank for all tokens (parallelize.py).
"""

from collections.abc import Iterator

from ms_symtensor.targets.mindformers_pynative.calls import Call
from ms_symtensor.targets.mindformers_pynative.shape import INDEXED, Compressed, ModelShape

_BF16, _FP32 = "bfloat16", "float32"
_ITEM_B, _FP32_B, _INDEX_B, _LONG_B = 2, 4, 4, 8


def of(shape: ModelShape) -> Compressed:
    """The dims of a network that has such attention."""
    assert shape.compressed is not None
    return shape.compressed


def parameters(shape: ModelShape, ratio: int, tensor: int) -> list[tuple[str, tuple[int, ...], int]]:
    """Parameters of a layer's attention: dtype, dims, and over how many ranks of tensor parallelism its gradient is a sum."""
    c, hidden = of(shape), shape.hidden
    found = [
        (_BF16, (c.query, hidden), 1),
        (_FP32, (c.query,), 1),
        (_BF16, (shape.heads * c.head // tensor, c.query), 1),
        (_BF16, (c.head, hidden), 1),
        (_FP32, (c.head,), 1),
        (_FP32, (shape.heads,), 1),
        (_BF16, (c.groups * c.output, shape.heads * c.head // c.groups), 1),
        (_BF16, (hidden, c.groups * c.output), 1),
    ]
    if ratio:
        found += _compressor(shape, ratio, c.head, 1)
    if c.indexes(ratio):
        found += [(_BF16, (c.index_heads * c.index_head, c.query), tensor), (_BF16, (c.index_heads, hidden), tensor)]
        found += _compressor(shape, ratio, c.index_head, tensor)
    return found


def _compressor(shape: ModelShape, ratio: int, head: int, partial: int) -> list[tuple[str, tuple[int, ...], int]]:
    width = overlap(ratio) * head
    projections = [(_BF16, (width, shape.hidden), partial)] * 2
    return [*projections, (_BF16, (ratio, width), partial), (_FP32, (head,), partial)]


def overlap(ratio: int) -> int:
    """How many windows a token is in."""
    return 2 if ratio == INDEXED else 1


def calls(shape: ModelShape, rows: int, tensor: int) -> Iterator[Call]:
    """Calls of one layer both ways, of `rows` tokens of all ranks: its input, what queries are projected from, and queries are
    gathered; the gradient of its output is, and that of the second is summed.
    """
    c = of(shape)
    for width in (shape.hidden, c.query, shape.heads * c.head):
        yield Call("forward", "all_gather", _BF16, rows * width * _ITEM_B // tensor, tensor)
    for width in (shape.hidden, c.query):
        yield Call("backward", "all_gather", _BF16, rows * width * _ITEM_B // tensor, tensor)
    yield Call("backward", "reduce_scatter", _BF16, rows * c.query * _ITEM_B, tensor)


def kept_B(shape: ModelShape, ratio: int, rows: int) -> int:
    """Bytes that one layer's attention keeps of `rows` tokens."""
    c = of(shape)
    heads, normed = rows * shape.heads, rows * (c.query * 2 + c.head) * _ITEM_B + 2 * rows * _FP32_B
    queries = 3 * heads * c.head * _ITEM_B + heads * _ITEM_B  # as projected, squared, normed; the roots of their means
    rotated = c.rope * (2 * heads + rows) * _FP32_B  # queries, outputs, the key
    output = heads * c.head * _ITEM_B + rows * c.groups * c.output * _ITEM_B
    found = rows * shape.hidden * _ITEM_B + normed + queries + rotated + output
    found += _compressor_B(shape, ratio, c.head, rows) if ratio else 0
    found += _indexer_B(shape, rows) if c.indexes(ratio) else 0
    return found + (_fused_B(shape, ratio, rows) if c.fused else _unfused_B(shape, ratio, rows))


def _compressor_B(shape: ModelShape, ratio: int, head: int, rows: int) -> int:
    """The weights of its sums and what they weigh, and of every compressed key its norm and its rotation."""
    compressed, rope = rows // ratio, of(shape).rope
    pooled = compressed * (head * _ITEM_B + _FP32_B + rope * _FP32_B)
    return 2 * overlap(ratio) * rows * head * _FP32_B + pooled


def _indexer_B(shape: ModelShape, rows: int) -> int:
    """Its inputs, which are detached, its queries and keys as they are rotated."""
    c = of(shape)
    inputs = rows * (c.query + 3 * shape.hidden) * _ITEM_B
    queries = rows * c.index_heads * (c.rope * _FP32_B + c.index_head * _ITEM_B)
    keys = _compressor_B(shape, INDEXED, c.index_head, rows) + rows // INDEXED * c.index_head * _ITEM_B
    return inputs + queries + keys + 2 * c.index_head**2 * _ITEM_B


def _unfused_B(shape: ModelShape, ratio: int, rows: int) -> int:
    """Keys are gathered for every query, twice in float32; scores are kept three times; so are all scores of the indexer."""
    c = of(shape)
    heads, keys = rows * shape.heads, c.keys(ratio, shape.sequence)
    found = heads * c.head * _FP32_B + 2 * rows * keys * c.head * _FP32_B
    found += 3 * heads * keys * _FP32_B + heads * (_LONG_B + 3 * _FP32_B) + rows * keys * _LONG_B
    if not c.indexes(ratio):
        return found
    compressed = shape.sequence // ratio
    chosen = rows * (keys - c.window)
    scores = rows * c.index_heads * (c.index_head + compressed + 1) * _FP32_B + rows // ratio * c.index_head * _FP32_B
    loss = rows * compressed * (1 + (shape.heads + 1) * _FP32_B) + 3 * rows * _FP32_B
    terms = chosen * (3 + _INDEX_B + 2 * _LONG_B + 6 * _FP32_B)
    return found + rows * keys * _INDEX_B + scores + loss + terms


def _fused_B(shape: ModelShape, ratio: int, rows: int) -> int:
    """Operands and results of the kernel (csa.py, `save_for_backward`): the keys, the output with its sums of exponentials, and
    what the indexer scored and chose.
    """
    c = of(shape)
    compressed = rows // ratio if ratio else 0
    found = rows * shape.heads * (c.head * _ITEM_B + _FP32_B) + (rows + compressed) * c.head * _ITEM_B
    if c.indexes(ratio):
        chosen = min(c.choices, shape.sequence // ratio)
        found += (rows * c.index_heads + compressed) * c.index_head * _ITEM_B
        found += rows * (c.index_heads * _FP32_B + chosen * _INDEX_B)
    return found


def rotary_B(shape: ModelShape) -> int:
    """The tables of rotation that layers of one ratio share."""
    tokens = shape.sequence + sum(shape.sequence // ratio for ratio in {*of(shape).ratios} - {0})
    return tokens * of(shape).rope * _FP32_B
