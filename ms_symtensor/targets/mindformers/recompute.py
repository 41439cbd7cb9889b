"""Recomputation in MindFormers' lists: how many of the first blocks of every model chunk, a row for each chunk of a stage.

LayerSetting (parallel_core/training_graph/transformer/utils.py) recomputes the first blocks of a chunk as a whole; of patterns it
counts the first blocks too, those included that are recomputed as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.uniform.layout import Mark, Selection, UniformLayout

Rows = tuple[tuple[int, ...], ...]
"""A number for every stage, in a row for every model chunk of a stage."""

PATTERNS: Mapping[Selection, tuple[str, ...]] = {
    Selection.ATTENTION_CORE: (r"self_attention\.core_attention",),
    Selection.ACTIVATION: (r"mlp\.mul", r"mlp\.activation_func\.(silu|mul|swiglu)"),
}
"""Operators of mcore's blocks: of silu as of swiglu, in one operator or in several (mlp.py, activation.py)."""

SHARED: Mapping[Selection, tuple[str, ...]] = {
    Selection.ACTIVATION: (r"mlp\.shared_experts\.mul", r"mlp\.shared_experts\.activation_func\.(silu|mul|swiglu)"),
}
"""Those of blocks with experts, beside them. The experts themselves always recompute their activation (moe/ffn.py)."""


def patterns_of(part: Selection, has_experts: bool) -> tuple[str, ...]:
    """What select_recompute calls `part`."""
    return (*PATTERNS[part], *(SHARED.get(part, ()) if has_experts else ()))


@dataclass(frozen=True)
class Lists:
    """How many blocks every model chunk holds, how many of them are recomputed as a whole, and of how many the first so many
    recompute a part.
    """

    held: Rows
    whole: Rows
    parts: Mapping[Selection, Rows]


def lists_of(config: TransformerConfig, layout: UniformLayout) -> Lists:
    """The lists of `layout`. CannotSayError for other blocks than the first ones of chunks, and parts without a pattern."""
    chunks = layout.marks_of_chunks(config.num_layers)
    every = {part for of_stage in chunks for chunk in of_stage for mark in chunk for part in mark or ()}
    for part in sorted(every, key=lambda one: one.value):
        if part not in PATTERNS:
            raise CannotSayError(f"no pattern of select_recompute is known for {part.value}")
    held = _rows([[len(chunk) for chunk in of_stage] for of_stage in chunks])
    whole = _rows([[_first(chunk, None) for chunk in of_stage] for of_stage in chunks])
    parts = {
        part: _rows([[_first(chunk, part) for chunk in of_stage] for of_stage in chunks])
        for part in Selection
        if part in every
    }
    return Lists(held, whole, parts)


def _first(chunk: tuple[Mark, ...], part: Selection | None) -> int:
    """How many first blocks of `chunk` are recomputed as a whole, or at least the `part` of them."""
    recomputation = [mark is None or part in mark for mark in chunk]
    if not part:
        recomputation = [mark is None for mark in chunk]
    number = sum(recomputation)
    if not all(recomputation[:number]):
        raise CannotSayError("recomputation is counted over the first blocks of every model chunk")
    if part and number == sum(mark is None for mark in chunk):
        return 0  # none beyond those that are recomputed as a whole
    return number


def _rows(of_stages: list[list[int]]) -> Rows:
    return tuple(zip(*of_stages, strict=True))
