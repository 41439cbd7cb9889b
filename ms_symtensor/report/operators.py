"""Who is cut how: the operators of a graph with their named cuts, identical blocks shown once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ms_symtensor.ops.placement import OpStrategy, cuts_of
from ms_symtensor.ops.registry import signatures
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.program.meanings import default_strategy
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.report.text import run_text, table
from ms_symtensor.tensor.graph import Graph, Op
from ms_symtensor.tensor.names import short_name


@dataclass(frozen=True)
class OperatorCut:
    """An operator under a plan: dims that are cut, its strategy as MindSpore takes it, and whether the matrix unit does it."""

    operator: str
    type: str
    cuts: str
    strategy: OpStrategy
    by_default: bool
    is_product: bool = False

    @property
    def strategy_text(self) -> str:
        outputs = f" -> {_degrees(self.strategy.outputs)}" if self.strategy.outputs is not None else ""
        return _degrees(self.strategy.inputs) + outputs


@dataclass(frozen=True)
class Section:
    """Consecutive operators of identical blocks, or of no block (`blocks` empty)."""

    blocks: tuple[str, ...]
    operators: tuple[OperatorCut, ...]

    @property
    def title(self) -> str:
        if not self.blocks:
            return "outside the blocks"
        run = run_text(self.blocks[0], self.blocks[-1])
        return run if len(self.blocks) == 1 else f"{run} ({len(self.blocks)} blocks alike)"


def sections(graph: Graph, plan: StagePlan) -> tuple[Section, ...]:
    """The operators that take a strategy, in graph order; consecutive blocks with the same cuts make one section."""
    known = signatures(graph)
    runs = [
        (block, tuple(_cut(plan, op, *known[op.name]) for op in ops if known[op.name][1].shardable))
        for block, ops in groupby(graph.ops, key=lambda op: op.block)
    ]
    merged: list[Section] = []
    for block, cuts in _joined(runs):
        before = merged[-1] if merged else None
        if block is not None and before is not None and before.blocks and before.operators == cuts:
            merged[-1] = Section((*before.blocks, block), cuts)
        elif cuts:
            merged.append(Section((block,) if block is not None else (), cuts))
    return tuple(merged)


def operators_text(found: Sequence[Section]) -> str:
    """The sections as tables."""
    parts = []
    for section in found:
        rows = [
            (o.operator, o.type, o.cuts + (" (MindSpore's default)" if o.by_default else ""), o.strategy_text)
            for o in section.operators
        ]
        parts.append(f"{section.title}\n" + table(rows, ("operator", "type", "cut", "strategy")))
    return "\n\n".join(parts)


ROWS, NAMES = 8, 8
"""So many rows, and operators in a row, are shown at a glance."""


def products_text(found: Sequence[Section]) -> str:
    """Products and attention at a glance: those of `found` that are cut alike in one row; empty where there are none."""
    rows = []
    for section in found:
        alike: dict[str, list[str]] = {}
        for one in section.operators:
            if one.is_product:
                alike.setdefault(one.cuts, []).append(one.operator.removesuffix(".matmul"))
        for cuts, names in alike.items():
            others = f", {len(names) - NAMES} others" if len(names) > NAMES else ""
            rows.append((section.title, cuts, ", ".join(names[:NAMES]) + others))
    if len(rows) > ROWS:
        rows[ROWS:] = [(f"{len(rows) - ROWS} others", "", "")]
    return "Products and attention (dim/slices)\n" + table(rows) if rows else ""


def _joined(
    runs: list[tuple[str | None, tuple[OperatorCut, ...]]],
) -> Iterator[tuple[str | None, tuple[OperatorCut, ...]]]:
    """Runs of one block that operators of no block interrupt, put together where the block begins."""
    whole: dict[str, tuple[OperatorCut, ...]] = {}
    for block, cuts in runs:
        if block is not None:
            whole[block] = whole.get(block, ()) + cuts
    seen = set()
    for block, cuts in runs:
        if block is None:
            yield None, cuts
        elif block not in seen:
            seen.add(block)
            yield block, whole[block]


def _cut(plan: StagePlan, op: Op, seen: OpView, sig: Signature) -> OperatorCut:
    given = plan.strategies.get(op.name)
    strategy = given if given is not None else default_strategy(seen, sig, plan.settings.device_num)
    cuts = cuts_of(seen, sig, strategy, plan.settings.device_num)
    named = ", ".join(f"{dim}/{degree}" for dim, degree in cuts.items() if degree > 1)
    return OperatorCut(short_name(op), op.type, named or "whole", strategy, given is None, sig.unit is Unit.CUBE)


def _degrees(tensors: tuple[tuple[int, ...], ...]) -> str:
    return " ".join(f"({','.join(map(str, degrees))})" for degrees in tensors)
