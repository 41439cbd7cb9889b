"""A block of the network as a drawing: its operators with their cuts, what is redistributed between them, what is recomputed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ms_symtensor.cost.move import VIEWS
from ms_symtensor.program.program import COLLECTIVES, Node, Phase, Program, Role
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.report.html.markup import Html, element
from ms_symtensor.report.html.svg import drawing, rectangle, slices, text
from ms_symtensor.report.operators import sections
from ms_symtensor.report.text import size
from ms_symtensor.tensor.graph import Graph, Op, makers_of
from ms_symtensor.tensor.names import short_name
from ms_symtensor.timeline.step import Step

BOX_WIDTH, BOX_HEIGHT, GAP, ROW = 188.0, 44.0, 18.0, 92.0
STRIP = 11 * ROW
"""A page of paper takes so much of a drawing."""
SWEEPS = 6


@dataclass(frozen=True)
class Box:
    """An operator of the drawing: what it reads of others (`makers`), its cuts, collectives before and behind it."""

    name: str
    label: str
    type: str
    cut: str
    makers: tuple[str, ...]
    before: tuple[str, ...]
    behind: tuple[str, ...]
    is_recomputed: bool


def kinds_of_blocks(step: Step) -> Mapping[str, tuple[str, ...]]:
    """The first block of every kind, with all blocks of that kind: those of the same operators."""
    found: dict[tuple[str, ...], list[str]] = {}
    of_block: dict[str, list[str]] = {}
    for op in step.graph.ops:
        if op.block is not None:
            of_block.setdefault(op.block, []).append(f"{op.type} {short_name(op)}")
    for block, ops in of_block.items():
        found.setdefault(tuple(ops), []).append(block)
    return {blocks[0]: tuple(blocks) for blocks in found.values()}


def block_graph(step: Step, block: str) -> Html:
    """The drawing of `block`."""
    boxes = list(_boxes(step, block))
    if not boxes:
        return element("p", "The block has no operators that take a strategy.")
    layers = _layers(boxes)
    place = _places(layers, {box.name: box for box in boxes})
    width = max(x for x, _ in place.values()) + BOX_WIDTH + 10
    height = max(y for _, y in place.values()) + BOX_HEIGHT + 34
    drawn = [edge for box in boxes for edge in _edges(box, place)]
    drawn += [part for box in boxes for part in _drawn(box, *place[box.name])]
    name = f"graph-{block}"
    whole = drawing(width, height, element("g", *drawn, id=name), label=f"operators of {block}", class_="graph whole")
    return element("div", whole, slices(name, width, height, STRIP, "graph strip"), class_="scroll")


def _program_of(step: Step, block: str) -> Program:
    for program in step.programs:
        micro = program.micro if isinstance(program, StageProgram) else program
        if any(node.block == block for node in micro.nodes):
            return micro
    return program.micro if isinstance(program, StageProgram) else program


def _boxes(step: Step, block: str) -> Iterator[Box]:
    program = _program_of(step, block)
    cuts = _cuts(step, block)
    nodes: dict[str, list[Node]] = {}
    for node in program.nodes:
        nodes.setdefault(node.op, []).append(node)
    inside = {op.name: op for op in step.graph.ops if op.block == block}
    shown = {name for name, op in inside.items() if op.type not in VIEWS}
    for name in inside:
        if name in shown:
            yield _box(step.graph, inside, shown, name, nodes.get(name, []), program, cuts)


def _box(
    graph: Graph, inside: Mapping[str, Op], shown: set[str], name: str, nodes: Sequence[Node], program: Program,
    cuts: Mapping[str, str],
) -> Box:  # fmt: skip
    op = inside[name]
    forward = [node for node in nodes if node.phase is Phase.FORWARD and node.kind in COLLECTIVES]
    label = short_name(op)
    return Box(
        name, label, op.type, cuts.get(label, ""),
        tuple(dict.fromkeys(m for maker in makers_of(op) for m in _through_views(inside, shown, maker))),
        tuple(_said(node, program) for node in forward if node.role in (Role.MOVE, Role.WEIGHT)),
        tuple(_said(node, program) for node in forward if node.role is Role.COMBINE),
        any(node.phase is Phase.RECOMPUTE and node.role is Role.WORK for node in nodes),
    )  # fmt: skip


def _through_views(inside: Mapping[str, Op], shown: set[str], name: str) -> Iterator[str]:
    """The operators that are drawn whose results `name`, a view of them or one of them, hands on."""
    if name in shown:
        yield name
    elif name in inside:
        for maker in makers_of(inside[name]):
            yield from _through_views(inside, shown, maker)


def _said(node: Node, program: Program) -> str:
    size_B = max(program.tensors[t].size_B for t in (*node.inputs, *node.outputs))
    ranks = node.group.size if node.group is not None else 0
    what = "weight " if node.role is Role.WEIGHT else ""
    return f"{what}{node.kind} {ranks} × {size(size_B)}"


def _cuts(step: Step, block: str) -> Mapping[str, str]:
    for section in sections(step.graph, step.plan.whole):
        if block in section.blocks:
            return {one.operator: one.cuts for one in section.operators}
    return {}


def _layers(boxes: Sequence[Box]) -> list[list[str]]:
    """Every operator one row below the lowest of those that it reads."""
    depth: dict[str, int] = {}
    for box in boxes:
        depth[box.name] = 1 + max((depth[m] for m in box.makers if m in depth), default=-1)
    for box in reversed(boxes):  # what reads nothing here stands above its first reader
        readers = [depth[other.name] for other in boxes if box.name in other.makers]
        if readers and not box.makers:
            depth[box.name] = min(readers) - 1
    found: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name, row in depth.items():
        found[row].append(name)
    return found


def _places(layers: Sequence[list[str]], boxes: Mapping[str, Box]) -> Mapping[str, tuple[float, float]]:
    """Left upper corners: each below the middle of what it reads, as far as there is room."""
    readers: dict[str, list[str]] = {name: [] for name in boxes}
    for box in boxes.values():
        for maker in box.makers:
            readers[maker].append(box.name)
    width = max(map(len, layers)) * (BOX_WIDTH + GAP)
    x: dict[str, float] = {}
    for row in layers:
        for i, name in enumerate(row):
            x[name] = width * (i + 0.5) / len(row)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in layers if down else reversed(layers):
            for name in row:
                beside = boxes[name].makers if down else readers[name]
                if beside:
                    x[name] = sum(x[other] for other in beside) / len(beside)
            row.sort(key=lambda name: x[name])
            _apart(row, x)
    left = min(x.values()) - BOX_WIDTH / 2 - 4
    return {
        name: (x[name] - BOX_WIDTH / 2 - left, 30 + ROW * number) for number, row in enumerate(layers) for name in row
    }


def _apart(row: Sequence[str], x: dict[str, float]) -> None:
    """Shift the boxes of a row so that none lies over another, and their middle stays."""
    before = sum(x[name] for name in row) / len(row)
    for left, right in pairwise(row):
        x[right] = max(x[right], x[left] + BOX_WIDTH + GAP)
    after = sum(x[name] for name in row) / len(row)
    for name in row:
        x[name] -= after - before


def _edges(box: Box, place: Mapping[str, tuple[float, float]]) -> Iterator[Html]:
    x, y = place[box.name]
    for maker in box.makers:
        from_x, from_y = place[maker]
        x1, y1, x2, y2 = from_x + BOX_WIDTH / 2, from_y + BOX_HEIGHT, x + BOX_WIDTH / 2, y
        bend = max(24.0, (y2 - y1) / 2)
        d = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 - bend:.1f} {x2:.1f} {y2:.1f}"
        yield element(
            "path", d=d, class_="edge moved" if any(not said.startswith("weight") for said in box.before) else "edge"
        )


def _drawn(box: Box, x: float, y: float) -> Iterator[Html]:
    state = "op again" if box.is_recomputed else "op"
    detail = "; ".join([f"{box.label} ({box.type})", *box.before, *box.behind])
    yield rectangle(x, y, BOX_WIDTH, BOX_HEIGHT, state, detail, 7)
    yield text(x + BOX_WIDTH / 2, y + 18, _short(box.label, 24), "name", "middle")
    mark = " ↻" if box.is_recomputed else ""
    yield text(x + BOX_WIDTH / 2, y + 34, _short(box.cut or box.type, 30) + mark, "cut", "middle")
    for above, said in ((True, box.before), (False, box.behind)):
        if said:
            more = f" +{len(said) - 1}" if len(said) > 1 else ""
            words = _short(said[0], 30 - len(more)) + more
            wide = 6.1 * len(words) + 14
            top = y - 20 if above else y + BOX_HEIGHT + 3
            kind = "pill weight" if said[0].startswith("weight") else "pill"
            yield rectangle(x + (BOX_WIDTH - wide) / 2, top, wide, 17, kind, "; ".join(said), 8.5)
            yield text(x + BOX_WIDTH / 2, top + 12.5, words, "pilltext", "middle")


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else "…" + words[1 - most :]
