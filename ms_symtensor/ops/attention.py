"""Fused attention: softmax(q k^T) v. Batch b, heads n and the query's sequence s may be cut; every device needs all keys and
values.

A cut of the heads must divide the key-value heads too; a single key-value head is read by all. Where the sequence is cut under a
causal mask, MindSpore tells every slice which keys it sees (`next_tokens`, sparse mode 4), the last one nearly all. Outputs:
maximum and sum of the softmax, an unused one, the attention.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.ops.quirks import Quirks, attended
from ms_symtensor.ops.rule import Choice, LineRule, rule
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.tensor.graph import Attribute

# compile-time arguments, from the last
_HEAD_NUM, _BEFORE, _AFTER, _LAYOUT, _SPARSE_MODE = -8, -5, -4, -2, -1
_LAYOUT_BY_NUMBER = ("BSH", "BNSD", "SBH", "BSND", "TND")
_LINES = {
    "BSH": "@b s (n d), @b 1 (n% d), @b 1 (n% e), {} -> @b n s 1, @b n s 1, @1, @b s (n e) | n = size head_num -8",
    "SBH": "@s b (n d), @1 b (n% d), @1 b (n% e), {} -> @b n s 1, @b n s 1, @1, @s b (n e) | n = size head_num -8",
    "BNSD": "@b n s 1, @b n%? 1 1, @b n%? 1 1, {} -> @b n s 1, @b n s 1, @1, @b n s 1",
    "BSND": "@b s n 1, @b 1 n%? 1, @b 1 n%? 1, {} -> @b n s 1, @b n s 1, @1, @b s n 1",
    "TND": "@b n 1, @b% n%? 1, @b% n%? 1, {} -> @b n 1, @b n 1, @1, @b n 1",
}
"""By layout: query, keys, values -> maximum, sum, an unused one, the attention."""
_OPTIONAL = "?@~b? n? s? 1, ?@~b? n? s? 1, ?@~1..., ?@~{}, ?@~b?" + ", ?@~1..." * 4
"""Shift, dropout's mask, padding's mask, attention's mask, prefix, …"""
_MASK, _COMPRESSED_MASK = "b? n? s? 1", "b? n? 1 1"
_REJECTED = ("SBH", "TND")
"""Layouts that MindSpore rejects without a strategy."""
_COMPRESSED_MASKS = (2, 3, 4)  # sparse modes whose mask is a fixed 2048 x 2048 pattern
_CAUSAL_MODES = (2, 3)
_BAND_MODE = 4
_RINGS = ("enable_ring_attention", "enable_flash_sp")
"""Marks with which MindSpore leaves keys and values where they are and sends them from rank to rank."""


def attention_work(op: OpView) -> Mapping[str, Any]:
    """The work of a query and a key that meet, and how many do.

    Each such pair takes 2 FLOPs per element of a query's head and of a value's; under a causal mask half of them meet, and of a
    band those in it. Of packed samples (TND) each is counted by itself where their ends are tuples; where these are known on the
    device alone, all tokens are counted as one sample, an upper bound.
    """
    query, key, value = op.inputs[:3]
    _require_no_ring(op)
    given = op.argument(_LAYOUT, "input_layout")
    layout = _LAYOUT_BY_NUMBER[given] if isinstance(given, int) else str(given)
    dims = _LINES[layout].partition(",")[0].lstrip("@").replace("(n d)", "n").split()
    heads, head, is_joined = _number(op, _HEAD_NUM), dims.index("n"), "(n d)" in _LINES[layout]
    width = query.shape[-1] // heads if is_joined else query.shape[-1]
    key_heads = key.shape[head] // width if is_joined else key.shape[head]
    value_width = value.shape[-1] // key_heads if is_joined else value.shape[-1]
    sparse_mode = _number(op, _SPARSE_MODE)
    causal = sparse_mode in _CAUSAL_MODES
    seen, ends = 0.5 if causal else 1.0, sequence_ends(op)
    batch = math.gcd(query.shape[dims.index("b")], *(len(one) for one in ends))
    rising = None
    if layout == "TND":
        packed = _packed_meetings(query.shape[0], key.shape[0], ends)
        meetings, keys = packed / batch, packed / query.shape[0]
    else:
        queries = query.shape[dims.index("s")]
        meetings = keys = key.shape[dims.index("s")]
        rising = "s" if causal and queries > 1 else None
        if sparse_mode == _BAND_MODE:
            seen = _share_in_band(queries, key.shape[dims.index("s")], _number(op, _BEFORE), _number(op, _AFTER))
    per_cut = heads / (heads if key_heads == 1 else key_heads)
    return {
        "flops_per_point": 2.0 * (width + value_width) * per_cut * meetings * seen,
        "head_dim": (width + value_width) // 2, "keys": seen * keys, "rising": rising, "sizes": {"b": batch},
    }  # fmt: skip


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


def sequence_ends(op: OpView) -> list[tuple]:
    """Ends of packed samples that are given as tuples: among the queries, then among the keys."""
    return [a for a in op.arguments[:-8] if isinstance(a, tuple)]


def _number(op: OpView, position: int) -> int:
    value = op.arguments[position]
    assert isinstance(value, int), (op.name, op.arguments)
    return value


def unknown_layout(op: OpView) -> Signature:
    """InputError for a layout that is none."""
    value = op.argument(_LAYOUT, "input_layout")
    raise InputError(f"{op.name} (FlashAttentionScore): unknown input_layout {value!r}; known: {', '.join(_LINES)}")


def _lines(mask: str) -> Choice:
    found: dict[Attribute, LineRule] = {}
    for layout, line in _LINES.items():
        quirks = Quirks(needs_strategy=layout in _REJECTED, adjust=attended)
        mesh = {"BNSD": "b n s", "SBH": "s b n"}.get(layout, "b s n")
        text = line.format(_OPTIONAL.format(mask))
        one = rule(text, quirks, by_position=True, work=attention_work, unit=Unit.CUBE, mesh=mesh)
        found |= {layout: one, _LAYOUT_BY_NUMBER.index(layout): one}
    return Choice("input_layout", _LAYOUT, found, unknown_layout)


RULES = {
    "FlashAttentionScore": Choice(
        "sparse_mode", _SPARSE_MODE, dict.fromkeys(_COMPRESSED_MASKS, _lines(_COMPRESSED_MASK)), _lines(_MASK)
    )
}
