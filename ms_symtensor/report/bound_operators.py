"""Which operators a search cannot cut as it likes, because of how the network is written."""

from collections import Counter

from ms_symtensor.ops.registry import signatures
from ms_symtensor.ops.signature import view
from ms_symtensor.tensor.graph import Graph, Op

SHOWN = 5
"""So many names are shown."""
_LOOK_UPS = frozenset({"Gather", "SparseGatherV2", "Embedding", "GatherD", "OneHot", "OneHotExt"})


def bound_operators_text(graph: Graph) -> str:
    """Functional operators, those that share a primitive, and look-ups by 64-bit indices; nothing where there are none."""
    lines = []
    known = signatures(graph)
    ops = [op for op in graph.ops if op.body is None and known[op.name][1].shardable]
    kinds = Counter(op.type for op in ops if op.is_on_the_fly)
    if kinds:
        lines.append(
            f"  {kinds.total()} operators are functional (x + y, ops.…) and cut as MindSpore does by itself; as primitives"
            f" of their cells they could be cut otherwise: {_some([f'{n} {kind}' for kind, n in kinds.most_common()])}"
        )
    shared = _shared(ops)
    if shared:
        names = [f"{name} ({n} operators)" for name, n in shared.items()]
        lines.append(
            "  One primitive has one strategy, whatever operators it is used for; with one for each they could differ:"
            f" {_some(names)}"
        )
    wide = [op.name for op in ops if op.type in _LOOK_UPS and any(t.dtype == "int64" for t in view(graph, op).inputs)]
    if wide:
        lines.append(
            "  MindSpore cuts what is looked up, as the rows of a table, for 32-bit indices alone; of int64 are those of"
            f" {_some(wide)}"
        )
    return "\n".join(["Bound by how the network is written", *lines]) if lines else ""


def _shared(ops: list[Op]) -> dict[str, int]:
    """How many operators each primitive is, of those that are several; of alike blocks the first."""
    paths = Counter((*op.cell, op.primitive) for op in ops if op.primitive)
    found: dict[tuple[str, ...], tuple[str, int]] = {}
    for path, n in paths.items():
        if n > 1:
            alike = tuple("*" if part.isdigit() else part for part in path)
            found.setdefault(alike, (".".join(path), n))
    return dict(found.values())


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
