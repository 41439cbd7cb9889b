"""Recomputation as MindSpeed counts it: the first blocks of every model chunk as a whole, and a part of all that are left.

Sources: megatron/core/transformer/transformer_block.py (`_checkpointed_forward`, method block: layers of one chunk);
mindspeed/core/memory/recompute/recompute_common.py (`should_recompute`: activation functions of the blocks behind these).
"""

from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.uniform.layout import Selection, UniformLayout

_NONE: frozenset[Selection] = frozenset()
_SAYABLE = (_NONE, frozenset({Selection.ATTENTION_CORE}), frozenset({Selection.ACTIVATION}))


@dataclass(frozen=True)
class Counted:
    """`whole` first blocks of every model chunk, or all that it has, and the `part` of all others, if any."""

    whole: int
    part: Selection | None


def counted(config: TransformerConfig, layout: UniformLayout) -> Counted:
    """What `layout` recomputes. CannotSayError for other blocks or parts."""
    chunks, rest = [chunk for of_stage in layout.marks_of_chunks(config.num_layers) for chunk in of_stage], set()
    whole = [sum(mark is None for mark in chunk) for chunk in chunks]
    number = max(whole)
    for chunk, first in zip(chunks, whole, strict=True):
        if first != min(number, len(chunk)) or any(mark is not None for mark in chunk[:first]):
            raise CannotSayError("recompute-num-layers counts the first blocks of every model chunk, as many of each")
        rest |= {mark for mark in chunk[first:] if mark is not None}
    if len(rest) > 1 or not rest <= set(_SAYABLE):
        raise CannotSayError(
            "blocks recompute one part, all the same: the core of attention or the activation function"
        )
    part = next((part for parts in rest for part in parts), None)
    if number and part is Selection.ATTENTION_CORE:
        raise CannotSayError("recompute-granularity is full or selective: blocks as a whole, or the core of attention")
    return Counted(number, part)
