"""Operators of serving on a paged cache of keys and values, [blocks, tokens, kv_heads, head_dim], with MindSpore 2.10.0.

A device has its heads of every block; blocks and their tokens stay whole, and so do the tokens that are written: MindSpore wants
a slot for every token, and does not cut the slots.
"""

from typing import Any

from ms_symtensor.ops.rule import rule
from ms_symtensor.ops.signature import OpView, Unit

_HEADS, _KV_HEADS, _VALUE_SIZE = -6, -4, -1  # among the trailing compile-time arguments of PagedAttention


def paged_work(op: OpView) -> dict[str, Any]:
    """Every query and key that meet take 2 FLOPs per element of a query's head and of a value's; all blocks of the tables count
    as full. Of the caches only these are read; values that are a part of the keys (latent attention) are read with them.
    """
    heads, kv_heads, own = op.arguments[_HEADS], op.arguments[_KV_HEADS], op.arguments[_VALUE_SIZE]
    assert isinstance(heads, int) and isinstance(kv_heads, int) and isinstance(own, int)
    cache, table = op.inputs[1], op.inputs[3]
    keys, widths = table.shape[1] * cache.shape[1], cache.shape[3] + (own or cache.shape[3])
    read = min(1.0, table.element_num / cache.shape[0])
    return {
        "head_dim": widths // 2,
        "keys": keys,
        "flops_per_point": 2.0 * widths * keys * heads / kv_heads,
        "sizes": {"n": kv_heads},
        "read_shares": (1, read, 0 if own else read, *(1 for _ in op.inputs[3:])),
    }


RULES = {
    # Of the caches only what is written is moved: as much as the new keys and values.
    "ReshapeAndCache": rule(
        "~1 1 n%, ~1 1 n%, ~1 1 n 1, ~1 1 n 1, ~1 -> 1 1 n%", mesh="n", read_shares=(1, 1, 0, 0, 1), differentiable=()
    ),
    "PagedAttention": rule(
        "~b s n%, ~1 1 n 1, ~1 1 n 1, ~b 1, ~1 -> b s n%",
        work=paged_work,
        mesh="b s n",
        unit=Unit.CUBE,
        differentiable=(),
    ),
}
