"""What of the blocks is recomputed, in words."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from ms_symtensor.program.program import COLLECTIVES, Node, Phase, Role
from ms_symtensor.program.recomputation import is_selectable
from ms_symtensor.program.settings import Recompute
from ms_symtensor.report.text import run_text
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name


def in_short(recompute: Mapping[str, Recompute]) -> str:
    """`3 blocks, 29 selective`, or `none`."""
    part = sum(chosen.in_part for chosen in recompute.values())
    whole = len(recompute) - part
    shown = [f"{whole} blocks"] if whole else []
    shown += [f"{part} {'' if whole else 'blocks '}selective"] if part else []
    return ", ".join(shown) or "none"


def recomputation_text(graph: Graph, recompute: Mapping[str, Recompute], nodes: Iterable[Node]) -> str:
    """Which blocks are recomputed, and which operators where that is selective; `nodes` are those of the program."""
    recomputation: dict[str | None, list[Node]] = {}
    for node in nodes:
        if node.phase is Phase.RECOMPUTE:
            recomputation.setdefault(node.block, []).append(node)
    lines = ["Recomputed in the backward pass"]
    for chosen, run in groupby(recompute.items(), key=lambda pair: pair[1]):
        names = [name for name, _ in run]
        blocks = _in_runs(names, graph.blocks) + (f" ({len(names)} blocks)" if len(names) > 1 else "")
        if chosen.in_part:
            lines += [f"  {blocks}: {_operators(graph, recomputation.get(names[0], ()))}"]
            kept = "everything else" if chosen.only else ", ".join(chosen.kept)
            lines += [f"    kept: {kept}"] if kept else []
        else:
            lines.append(f"  {blocks}: everything" + ("" if chosen.communication else " but communication"))
    return "\n".join(lines)


def _in_runs(names: Sequence[str], every: Sequence[str]) -> str:
    """Blocks of `every`, those that follow each other as one run: `layers.0 … 3, layers.8 … 9`."""
    place = {name: number for number, name in enumerate(every)}
    runs = [
        [name for _, name in run] for _, run in groupby(enumerate(names), key=lambda pair: place[pair[1]] - pair[0])
    ]
    return ", ".join(run_text(run[0], run[-1]) for run in runs)


def _operators(graph: Graph, nodes: Sequence[Node]) -> str:
    """The operators whose work `nodes` do, and how many collectives stand among them."""
    done = {n.op for n in nodes if n.role is Role.WORK}
    work = dict.fromkeys(short_name(op) for op in graph.ops if op.name in done and is_selectable(op))
    sent = sum(n.kind in COLLECTIVES and n.role is not Role.WEIGHT for n in nodes)
    return ", ".join([*work, *([f"{sent} collectives"] if sent else [])]) or "nothing"
