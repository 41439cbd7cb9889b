"""Kernels of DeepSeek-V4's attention on one rank, as MindFormers runs it: fused, or of small operations."""

from ms_symtensor.cost.kernel import Kernel, attention_s, pass_s, product_float32_s
from ms_symtensor.targets.mindformers_pynative.compressed import of, overlap
from ms_symtensor.targets.mindformers_pynative.module import ATTENTION_BACKWARD, Module, module_of, product
from ms_symtensor.targets.mindformers_pynative.shape import INDEXED, ModelShape

_ITEM_B, _FP32_B = 2, 4
_QUERY_PASSES = 9
"""Times that all queries or outputs are read and written: five for the norm of heads, three for both rotations, one to group
heads (deepseek_v4_hybrid_attention.py).
"""
_POOL_PASSES = 6
"""Times that what is compressed is, in float32: cast, position, softmax, overlap, product, sum (compressor.py)."""
_SCORE_PASSES = 6
"""Times that all scores of unfused attention are: scale, mask, maximum, exponential, sum, division (csa.py)."""
_INDEX_PASSES = 4
"""Times that the indexer's scores are, of all its heads: ReLU, weights, sum, copy (indexer.py)."""
_LOSS_PASSES = 4
"""Times that all scores over compressed keys are for the indexer's loss: mask, cast, softmax, sum over heads (indexer.py)."""


def attention(shape: ModelShape, ratio: int, rows: int, tensor: int) -> Module:
    """The attention of a layer of this ratio for `rows` tokens, whose queries alone are cut by `tensor`."""
    c, hidden = of(shape), shape.hidden
    heads = float(rows * shape.heads)
    products = [
        (float(rows), float(hidden), float(c.query + c.head)),
        (float(rows), float(c.query), shape.heads * c.head / tensor),
        (float(rows * c.groups), shape.heads * c.head / c.groups, float(c.output)),
        (float(rows), float(c.groups * c.output), float(hidden)),
    ]
    passes_B = [2.0 * rows * (hidden + c.query + c.head) * _ITEM_B, *[2 * heads * c.head * _ITEM_B] * _QUERY_PASSES]
    compressors = ([c.head] if ratio else []) + ([c.index_head] if c.indexes(ratio) else [])
    for head in compressors:
        width = overlap(ratio) * head
        products.append((float(rows), float(hidden), 2.0 * width))
        passes_B += [2.0 * rows * width * _FP32_B] * _POOL_PASSES
    if c.indexes(ratio):
        products += [
            (float(rows), float(c.query), float(c.index_heads * c.index_head)),
            (float(rows), float(hidden), float(c.index_heads)),
        ]
    core = _fused(shape, ratio, rows) if c.fused else _unfused(shape, ratio, rows)
    return module_of(products, passes_B, core)


def _fused(shape: ModelShape, ratio: int, rows: int) -> Module:
    """Kernels that read the keys of a query alone. Of what is compressed a query sees half on average, before any choice."""
    c = of(shape)
    seen = shape.sequence / ratio / 2 if ratio else 0.0
    keys = c.window + (min(c.choices, seen) if c.indexes(ratio) else seen)
    size = {"rows": rows * shape.heads, "keys": keys, "head_dim": c.head}
    size["traffic_B"] = 2.0 * rows * (shape.heads + 1) * c.head * _ITEM_B
    forward, backward = [Kernel(attention_s, size)], [Kernel(attention_s, size, ATTENTION_BACKWARD)]
    flops = 4.0 * rows * shape.heads * keys * c.head
    if c.indexes(ratio):
        scores = product(rows * c.index_heads * seen, c.index_head, rows * c.index_heads, seen)
        choice = Kernel(pass_s, {"traffic_B": 2.0 * rows * seen * _FP32_B})
        forward += [scores, choice]
        backward += [scores] * 3  # the loss has them once more
        flops += 2.0 * rows * c.index_heads * seen * c.index_head
    return Module((*forward,), (*backward,), flops)


def _unfused(shape: ModelShape, ratio: int, rows: int) -> Module:
    """Keys are gathered for every query, and all products with them are float32."""
    c = of(shape)
    heads, keys = rows * shape.heads, c.keys(ratio, shape.sequence)
    both = [_float32(heads * keys, c.head, rows * keys * c.head), _float32(heads * c.head, keys, rows * keys * c.head)]
    passes_B = [2.0 * rows * keys * c.head * _FP32_B] * 3 + [2.0 * heads * keys * _FP32_B] * _SCORE_PASSES
    flops = 4.0 * heads * keys * c.head
    if c.indexes(ratio):
        compressed = shape.sequence / INDEXED
        scores = rows * c.index_heads * compressed
        both.append(_float32(scores, c.index_head, rows * c.index_heads * c.index_head))
        passes_B += [2 * scores * _FP32_B] * _INDEX_PASSES + [2.0 * rows * compressed * _FP32_B]
        passes_B += [2 * heads * compressed * _FP32_B] * _LOSS_PASSES
        flops += 2.0 * scores * c.index_head
        loss = product(heads * compressed, c.head, heads, compressed)  # its gradient ends at the choice
        return module_of([], passes_B, Module((*both, loss), (*both, *both), flops))
    return module_of([], passes_B, Module((*both,), (*both, *both), flops))


def _float32(elements: float, depth: float, operands: float) -> Kernel:
    """A float32 product that reads so many numbers."""
    size = {"elements": elements, "depth": depth, "flops": 2, "traffic_B": _FP32_B * (operands + elements)}
    return Kernel(product_float32_s, size)
