"""The passes of a step over time, a lane for every stage; and what one stage does in one micro-batch."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.node_time import NodeTime
from ms_symtensor.cost.stage_time import pass_of
from ms_symtensor.report.html.markup import Html, element, joined, key_value
from ms_symtensor.report.html.svg import WIDTH, boxes, drawing, text, time_axis
from ms_symtensor.report.text import seconds
from ms_symtensor.timeline.replay import Kind, Span, StepTimeline
from ms_symtensor.timeline.trace import PASS_ORDER

LEFT, RIGHT, TOP = 70.0, 988.0, 6.0
MOST_BOXES = 6000
"""Of more passes, columns are drawn, each as what most of it is."""
MOST_COLUMNS, TURNS, ALMOST = 460, "turns", 0.85
SHADES = 4
"""Model chunks beyond so many share their shades."""
NAMES = {
    Kind.START: "weights gathered, cast", Kind.FORWARD: "forward", Kind.BACKWARD: "backward",
    Kind.END: "gradients summed, update", Kind.WAIT: "waiting (bubble)",
}  # fmt: skip


def timeline_chart(timeline: StepTimeline, has_stages: bool) -> Html:
    """The spans of every stage."""
    lanes, step_s = timeline.stages, timeline.step_s
    height = max(5.0, min(26.0, 400.0 / len(lanes))) if has_stages else 34.0
    gap = 3.0 if height > 12 else 1.0
    bottom = TOP + len(lanes) * (height + gap)
    to_x = (RIGHT - LEFT) / step_s
    merged = sum(map(len, lanes)) > MOST_BOXES
    groups: dict[str, list[tuple[float, float, float, float]]] = {}
    words: list[Html] = []
    for stage, lane in enumerate(lanes):
        y = TOP + stage * (height + gap)
        if height >= 10 or stage % 8 == 0:
            words.append(
                text(LEFT - 8, y + height / 2 + 4, f"stage {stage}" if has_stages else "passes", "axis", "end")
            )
        if merged:
            for kind, start_s, time_s in _columns(lane, step_s, min(MOST_COLUMNS, MOST_BOXES // len(lanes))):
                groups.setdefault(f"fill {kind}", []).append((LEFT + start_s * to_x, y, time_s * to_x, height))
            continue
        for span in lane:
            box = LEFT + span.start_s * to_x, y, span.time_s * to_x, height
            shade = f" run{span.run % SHADES}" if span.kind in (Kind.FORWARD, Kind.BACKWARD) else ""
            groups.setdefault(f"fill {span.kind.value}{shade}", []).append(box)
            words += _words(span, box, has_stages)
    drawn = [*time_axis(LEFT, RIGHT, TOP, bottom, step_s), *(boxes(of, name) for name, of in groups.items()), *words]
    used = dict.fromkeys(span.kind for lane in lanes for span in lane)
    shown = [key_value(kind.value, NAMES[kind]) for kind in NAMES if kind in used]
    shown += [key_value(TURNS, "forward and backward in turn")] if merged else []
    keys = element("p", *shown, class_="keys")
    label = f"{len(lanes)} stages over {seconds(step_s)}"
    return joined([keys, drawing(WIDTH, bottom + 20, *drawn, label=label, class_="passes")])


def operators_chart(operators: Sequence[NodeTime]) -> Html:
    """What computes and what communicates, one after the other."""
    ordered = sorted(operators, key=lambda one: (PASS_ORDER.index(pass_of(one.key)), one.position))
    whole_s = sum(one.time_s for one in ordered)
    if not whole_s:
        return Html("")
    to_x, now_s = (RIGHT - LEFT) / whole_s, 0.0
    lanes = {part: number for number, part in enumerate(p for p in Part if any(o.key.part is p for o in ordered))}
    groups: dict[Part, list[tuple[float, float, float, float]]] = {part: [] for part in lanes}
    for one in ordered:
        x, width, y = LEFT + now_s * to_x, one.time_s * to_x, TOP + 20.0 * lanes[one.key.part]
        before = groups[one.key.part][-1] if groups[one.key.part] else None
        if before is not None and x - (before[0] + before[2]) < 0.15:
            groups[one.key.part][-1] = (before[0], y, x + width - before[0], 16.0)
        else:
            groups[one.key.part].append((x, y, width, 16.0))
        now_s += one.time_s
    bottom = TOP + 20.0 * len(lanes)
    names = {Part.BORDER: "send"}
    drawn = [
        *time_axis(LEFT, RIGHT, TOP, bottom, whole_s),
        *(boxes(of, f"fill part-{part.value}") for part, of in groups.items()),
        *(text(LEFT - 8, TOP + 20 * n + 12, names.get(part, part.value), "axis", "end") for part, n in lanes.items()),
    ]
    return drawing(WIDTH, bottom + 20, *drawn, label="computation and communication over time", class_="timeline")


def _words(span: Span, box: tuple[float, float, float, float], has_stages: bool) -> Iterator[Html]:
    x, y, width, height = box
    if not has_stages:
        if width > 70:
            yield text(
                x + width / 2, y + height / 2 + 4, f"{span.kind.value} {seconds(span.time_s)}", "inside", "middle"
            )
    elif span.kind in (Kind.FORWARD, Kind.BACKWARD) and width > 15 and height > 12:
        yield text(x + width / 2, y + height / 2 + 3.5, str(span.micro_batch), "inside small", "middle")


def _columns(lane: Sequence[Span], step_s: float, number: int) -> Iterator[tuple[str, float, float]]:
    """Where so many spans cannot be seen: what most of every one of `number` columns is, those that are alike as one (kind, start
    and length in seconds). Forward and backward passes in turn are "turns".
    """
    width_s = step_s / number
    spent: list[dict[Kind, float]] = [{} for _ in range(number)]
    for span in lane:
        first, last = (min(number - 1, int(at_s / width_s)) for at_s in (span.start_s, span.end_s))
        for column in range(first, last + 1):
            inside_s = min(span.end_s, (column + 1) * width_s) - max(span.start_s, column * width_s)
            spent[column][span.kind] = spent[column].get(span.kind, 0.0) + max(0.0, inside_s)
    for kind, alike in groupby(range(number), key=lambda column: _mostly(spent[column])):
        columns = list(alike)
        yield kind, columns[0] * width_s, len(columns) * width_s


def _mostly(spent: Mapping[Kind, float]) -> str:
    """What a column is drawn as."""
    passes_s = spent.get(Kind.FORWARD, 0.0) + spent.get(Kind.BACKWARD, 0.0)
    most = max(spent, key=lambda kind: spent[kind])
    if spent[most] > passes_s or not passes_s:
        return most.value
    forward = spent.get(Kind.FORWARD, 0.0) / passes_s
    return Kind.FORWARD.value if forward > ALMOST else Kind.BACKWARD.value if forward < 1 - ALMOST else TURNS
