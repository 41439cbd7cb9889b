"""A rank's memory over a step, a chart for every stage, and what is alive at the peak."""

from collections.abc import Sequence

from ms_symtensor.cost.step import MEMORIES
from ms_symtensor.report.html.markup import Html, Row, bytes_B, count, element, joined, table
from ms_symtensor.report.html.svg import drawing, line, marks, rectangle, text
from ms_symtensor.report.text import seconds, share, size
from ms_symtensor.timeline.memory import ACTIVATIONS, StageMemory

MOST_STAGES, MOST_POINTS, MOST_ALIVE = 8, 300, 14
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 480.0, 190.0, 52.0, 22.0, 166.0
GIB = 1 << 30


def memory_charts(memory: Sequence[StageMemory], step_s: float, limit_B: int) -> Html:
    """The stages over time; of many, the fullest, the first, the last and some between them."""
    chosen = range(len(memory))
    if len(memory) > MOST_STAGES:
        fullest = max(chosen, key=lambda n: memory[n].peak_B)
        spread = {round(i * (len(memory) - 1) / (MOST_STAGES - 2)) for i in range(MOST_STAGES - 1)}
        chosen = sorted(spread | {fullest})  # type: ignore[assignment]
    top_B = max([limit_B, *(one.peak_B for one in memory)])
    charts = [_chart(memory[n], f"stage {n}" if len(memory) > 1 else "", step_s, limit_B, top_B) for n in chosen]
    return element("div", *charts, class_="charts" if len(charts) > 1 else "charts one")


def _chart(of: StageMemory, name: str, step_s: float, limit_B: int, top_B: int) -> Html:
    right = WIDTH - 8

    def to_y(bytes_: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * bytes_ / top_B

    def to_x(at_s: float) -> float:
        return LEFT + (right - LEFT) * at_s / step_s

    drawn: list[Html] = []
    for mark in marks(top_B / GIB, 4):
        drawn.append(line(LEFT, to_y(mark * GIB), right, to_y(mark * GIB), "grid"))
        drawn.append(text(LEFT - 6, to_y(mark * GIB) + 4, f"{mark:g}", "axis", "end"))
    below = 0
    for part in MEMORIES:
        if part != ACTIVATIONS and (size_B := of.at_rest_B.get(part, 0)):
            y = to_y(below + size_B)
            drawn.append(rectangle(LEFT, y, right - LEFT, to_y(below) - y, f"fill {part}", f"{part} {size(size_B)}"))
            below += size_B
    path = f"M{LEFT:.1f} {to_y(below):.1f}"
    for at_s, size_B in _thinned(of.curve, step_s):
        path += f"H{to_x(at_s):.1f}V{to_y(below + size_B):.1f}"
    drawn.append(element("path", d=f"{path}H{right:.1f}V{to_y(below):.1f}z", class_=f"fill {ACTIVATIONS}"))
    drawn.append(line(LEFT, to_y(limit_B), right, to_y(limit_B), "limit"))
    x = min(max(to_x(of.peak_s), LEFT + 40), right - 40)
    drawn.append(element("circle", cx=f"{to_x(of.peak_s):.1f}", cy=f"{to_y(of.peak_B):.1f}", r="3", class_="peak"))
    drawn.append(text(x, TOP - 8, f"{name} peak {size(of.peak_B)}".strip(), "note", "middle"))
    for mark in marks(step_s, 4)[1:]:
        drawn.append(text(to_x(mark), BOTTOM + 15, seconds(mark), "axis", "middle"))
    drawn.append(text(LEFT, BOTTOM + 15, "GiB", "axis", "end"))
    return drawing(WIDTH, HEIGHT, *drawn, label=f"memory over time {name}", class_="memory")


def _thinned(curve: Sequence[tuple[float, int]], step_s: float) -> Sequence[tuple[float, int]]:
    """At most so many points: of those close together the largest."""
    if len(curve) <= MOST_POINTS:
        return curve
    found: dict[int, tuple[float, int]] = {}
    for at_s, size_B in curve:
        bucket = int(MOST_POINTS * at_s / step_s)
        found[bucket] = max(found.get(bucket, (at_s, size_B)), (at_s, size_B), key=lambda point: point[1])
    return list(found.values())


def alive_table(of: StageMemory) -> Html:
    """What is alive at the peak, the largest first, and the sum of the rest."""
    shown, rest = of.alive[:MOST_ALIVE], of.alive[MOST_ALIVE:]
    rows: list[Row] = [
        Row((one.name, count(one.count), bytes_B(one.size_B), share(one.size_B, of.activations_B))) for one in shown
    ]
    if rest:
        rest_B = sum(one.size_B for one in rest)
        rows.append(
            Row(
                (
                    f"{len(rest)} others",
                    count(sum(one.count for one in rest)),
                    bytes_B(rest_B),
                    share(rest_B, of.activations_B),
                )
            )
        )
    rows.append(Row(("activations at the peak", "", bytes_B(of.activations_B), ""), "sum"))
    return joined([table(("made by", "tensors", "bytes", "share"), rows)])
