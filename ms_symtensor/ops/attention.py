"""Fused attention."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ms_symtensor.errors import InputError
from ms_symtensor.ops.signature import Dims, OpView, Signature, Unit, always, named

# FlashAttentionScore's optional tensors, by input position
_REAL_SHIFT, _DROP_MASK, _PADDING_MASK, _ATTENTION_MASK, _PREFIX = 3, 4, 5, 6, 7
_HEAD_NUM, _BEFORE, _AFTER, _LAYOUT, _SPARSE_MODE = -8, -5, -4, -2, -1  # among the trailing compile-time arguments
_LAYOUT_BY_NUMBER = ("BSH", "BNSD", "SBH", "BSND", "TND")
_QUERY_DIMS: dict[str, Dims] = {
    "BSH": ("b", "s", "n"), "SBH": ("s", "b", "n"), "BNSD": ("b", "n", "s", None), "BSND": ("b", "s", "n", None),
    "TND": ("b", "n", None),
}  # fmt: skip
_MESH = {"BNSD": ("b", "n", "s"), "SBH": ("s", "b", "n")}  # the others: ("b", "s", "n")
_COMPRESSED_MASKS = (2, 3, 4)  # sparse modes whose mask is a fixed 2048 x 2048 pattern
_CAUSAL_MODES = (2, 3)
_BAND_MODE = 4
_RINGS = ("enable_ring_attention", "enable_flash_sp")
"""Marks with which MindSpore leaves keys and values where they are and sends them from rank to rank."""


def flash_attention_score(op: OpView) -> Signature:
    """softmax(q k^T) v: batch b, heads n and the query's sequence s may be cut; every device needs all keys and values.

    A cut of the heads must divide the key-value heads too; a single key-value head is read by all. Where the sequence is cut
    under a causal mask, MindSpore tells every slice which keys it sees (`next_tokens`, sparse mode 4), the last one nearly
    all. Outputs: maximum and sum of the softmax, an unused one, the attention.

    Every query and key that meet take 2 FLOPs per element of a query's head and of a value's; under a causal mask half of
    them meet, and of a band those in it. Of packed samples (TND) each is counted by itself where their ends are tuples;
    where these are known on the device alone, all tokens are counted as one sample, an upper bound.
    """
    _require_no_ring(op)
    query, key, value = op.inputs[:3]
    layout = _layout(op)
    heads, sparse_mode = _number(op, _HEAD_NUM), _number(op, _SPARSE_MODE)
    dims = _QUERY_DIMS[layout]
    head = dims.index("n")
    width = query.shape[-1] if None in dims else query.shape[-1] // heads
    key_heads = key.shape[head] if None in dims else key.shape[head] // width
    key_dims: Dims = tuple(None if d == "s" or (d == "n" and key_heads == 1) else d for d in dims)
    optional: dict[int, Dims] = {
        _REAL_SHIFT: ("b", "n", "s", None),
        _DROP_MASK: ("b", "n", "s", None),
        _PREFIX: ("b",),
    }
    rows = None if sparse_mode in _COMPRESSED_MASKS else "s"
    inputs: list[Dims] = [dims, key_dims, key_dims]
    for position, tensor in zip(op.positions[3:] or range(3, len(op.inputs)), op.inputs[3:], strict=True):
        if position == _ATTENTION_MASK:
            inputs.append((rows, None) if len(tensor.shape) == 2 else ("b", "n", rows, None))
        elif position in optional:
            inputs.append(optional[position])
        else:
            inputs.append((None,) * len(tensor.shape))
    statistics: Dims = dims if layout == "TND" else ("b", "n", "s", None)
    # lengths of packed sequences given as tuples count as entries of the strategy
    sequence_ends = [a for a in op.arguments[:-8] if isinstance(a, tuple)]
    batch = math.gcd(query.shape[dims.index("b")], *(len(ends) for ends in sequence_ends))
    cuttable_heads = heads if key_heads == 1 else key_heads
    value_width = value.shape[-1] if None in dims else value.shape[-1] // key_heads
    causal = sparse_mode in _CAUSAL_MODES
    seen = 0.5 if causal else 1.0
    if sparse_mode == _BAND_MODE and layout != "TND":
        lengths = query.shape[dims.index("s")], key.shape[dims.index("s")]
        seen = _share_in_band(*lengths, _number(op, _BEFORE), _number(op, _AFTER))
    if layout == "TND":
        packed = _packed_meetings(query.shape[0], key.shape[0], sequence_ends)
        meetings, keys = packed / batch, packed / query.shape[0]
    else:
        meetings = keys = key.shape[dims.index("s")]
    flops = 2.0 * (width + value_width) * (heads / cuttable_heads) * meetings * seen
    rising = "s" if causal and "s" in dims and query.shape[dims.index("s")] > 1 else None
    found = named(
        op, inputs, [statistics, statistics, (None,), dims],
        sizes={"n": cuttable_heads, "b": batch}, mesh=_MESH.get(layout, ("b", "s", "n")),
        unit=Unit.CUBE, flops_per_point=flops, head_dim=(width + value_width) // 2, keys=seen * keys,
        rising=rising,
        keeps_inputs=tuple(range(len(op.inputs))), keeps_outputs=(0, 1, 2, 3), differentiable=(0, 1, 2),
    )  # fmt: skip
    # Without a strategy MindSpore cuts the first dims of all inputs, which a mask that all samples share does not take.
    if (rows, None) in inputs[3:] or layout in ("SBH", "TND"):
        found = replace(found, needs_strategy=always)
    # the lengths of packed sequences count as entries of the strategy
    return replace(found, entries=(*found.inputs, *[("b",)] * len(sequence_ends)))


def _require_no_ring(op: OpView) -> None:
    """InputError where MindSpore sends keys and values from rank to rank: its causal mask is there only if sequences are cut."""
    for mark in _RINGS:
        if op.attributes.get(mark):
            raise InputError(
                f"{op.name} (FlashAttentionScore) is marked {mark}: ring attention, which MindSpore will give up, is not planned;"
                " take the mark away and give it a causal mask (sparse_mode=2 or 3): sequences are then cut by gathering keys and"
                " values, or by exchanging tokens for heads"
            )


def _share_in_band(queries: int, keys: int, before: int, after: int) -> float:
    """The share of all pairs in a band: a query sees `before` keys before its own and `after` behind it, fewer at the ends."""
    before, after = min(before, keys), min(after, keys)
    pairs = queries * (before + 1 + after) - before * (before + 1) // 2 - after * (after + 1) // 2
    return min(1.0, max(0.0, pairs / (queries * keys)))


def _packed_meetings(tokens: int, keys: int, ends: Sequence[tuple]) -> int:
    """Pairs of a query and a key of one sample, of `tokens` and `keys` in all.

    `ends` of the samples: among the queries, then among the keys; none if unknown.
    """
    if not ends:
        return tokens * keys
    lengths = [[end - start for start, end in pairwise((0, *one))] for one in ends]
    return sum(q * k for q, k in zip(lengths[0], lengths[-1], strict=True))


def _layout(op: OpView) -> str:
    value = op.arguments[_LAYOUT] if len(op.arguments) >= 8 else op.attributes.get("input_layout")
    name = _LAYOUT_BY_NUMBER[value] if isinstance(value, int) and 0 <= value < len(_LAYOUT_BY_NUMBER) else value
    if name not in _QUERY_DIMS:
        raise InputError(
            f"{op.name} (FlashAttentionScore): unknown input_layout {value!r}; known: {', '.join(_QUERY_DIMS)}"
        )
    return str(name)


def _number(op: OpView, position: int) -> int:
    value = op.arguments[position]
    assert isinstance(value, int), (op.name, op.arguments)
    return value


RULES = {"FlashAttentionScore": flash_attention_score}
