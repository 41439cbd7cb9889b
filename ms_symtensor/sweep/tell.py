"""A sweep as text, JSON, CSV, and a page with plots."""

from collections.abc import Callable, Sequence
from typing import Any

from ms_symtensor.files.writing import csv_of
from ms_symtensor.report.html.markup import Cell, Html, element, key_value, number, section, table
from ms_symtensor.report.html.page import POLICY, SCRIPT, STYLE
from ms_symtensor.report.html.svg import WIDTH, drawing, line, marks, text
from ms_symtensor.report.text import seconds, size
from ms_symtensor.report.text import table as text_table
from ms_symtensor.sweep.points import Point, by_curve
from ms_symtensor.sweep.run import DEGREES, Row

SHOWN_ELASTICITIES = 6
_SHORT = dict(zip(DEGREES, ("dp", "tp", "cp", "ep", "pp", "mb", "vpp"), strict=True))
PLOTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("step_time_s", "step", seconds),
    ("tokens_per_s_device", "tokens/s a device", lambda value: f"{value:,.0f}"),
    ("mfu", "MFU", lambda value: f"{100 * value:.0f} %"),
    ("marginal_gain", "gain of the last doubling (1: twice as fast)", lambda value: f"{value:.2f}"),
    ("tokens_per_J", "tokens per joule", lambda value: f"{value:.3g}"),
    ("cost_per_1e12_tokens", "cost per 1e12 tokens", lambda value: f"{value:,.0f}"),
)


def sweep_json(
    model: str, points: Sequence[Point], rows: Sequence[Row], reasons: Sequence[str], known: int
) -> dict[str, Any]:
    """All points by key; times in seconds, sizes in bytes."""
    return {"model": model, "points": list(rows), "rises": list(reasons), "resumed": known}


def sweep_text(model: str, points: Sequence[Point], rows: Sequence[Row], reasons: Sequence[str]) -> str:
    """A table, why curves rise, and what the steps hang on."""
    shown = [_cells(point, row) for point, row in zip(points, rows, strict=True)]
    head = ("where", "devices", "batch", "step", "tokens/s", "MFU", "gain", "tokens/J", "cost/1e12", "peak", "degrees")
    parts = [f"{model}: {len(rows)} points (tokens/s: of a device)\n" + text_table(shown, head, right=range(1, 10))]
    if reasons:
        parts.append("Where curves rise\n" + "\n".join(f"  {one}" for one in reasons))
    if lines := _hangs_on(points, rows):
        parts.append(
            "What the step hangs on: d ln T / d ln x of the largest\n" + text_table(lines, ("where", "devices", ""))
        )
    return "\n\n".join(parts)


def _cells(point: Point, row: Row) -> tuple[str, ...]:
    first = point.said, str(point.device_num), str(row["global_batch_size"] or "")
    if "why" in row:
        return (*first, *("",) * 7, _short(row["why"]))
    gain = row["marginal_gain"]
    return (
        *first, seconds(row["step_time_s"]), f"{row['tokens_per_s_device']:,.0f}", f"{100 * row['mfu']:.1f} %",
        "" if gain is None else f"{gain:.2f}", _optional(row["tokens_per_J"]), _optional(row["cost_per_1e12_tokens"]),
        size(row["peak_memory_B"]), degrees(row),
    )  # fmt: skip


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def degrees(row: Row) -> str:
    """The degrees above 1, and on which level their parts lie: `tp 8 (node) pp 4 (roce)`."""
    level = row["levels"]
    parts = {
        "model_parallel": "tensor", "context_parallel": "tensor", "expert_parallel": "expert",
        "data_parallel": "gradients", "pipeline_stages": "point_to_point",
    }  # fmt: skip
    found = [
        f"{_SHORT[name]} {row[name]}" + (f" ({level[parts[name]]})" if parts.get(name) in level else "")
        for name in DEGREES
        if row[name] > 1
    ]
    return " ".join(found) or "one device does all"


def _short(why: str) -> str:
    return why if len(why) <= 70 else why[:69] + "…"


def _hangs_on(points: Sequence[Point], rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    found = []
    for point, row in zip(points, rows, strict=True):
        if "why" not in row:
            largest = sorted(row["elasticities"].items(), key=lambda item: -abs(item[1]))[:SHOWN_ELASTICITIES]
            said = ", ".join(f"{path} {value:+.3f}" for path, value in largest)
            found.append((point.said, str(point.device_num), said))
    return found


def sweep_csv(points: Sequence[Point], rows: Sequence[Row]) -> str:
    """A row for every point; parts of the step and elasticities as columns of their own."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    return csv_of(columns, ([row.get(name) for name in columns] for row in flat))


def _flat(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def sweep_page(model: str, points: Sequence[Point], rows: Sequence[Row], reasons: Sequence[str]) -> str:
    """One self-contained page: plots over the number of devices, the table, reasons and elasticities."""
    plots = [
        element("div", element("h3", title), _plot(points, rows, name, said))
        for name, title, said in PLOTS
        if any(row.get(name) is not None for row in rows)
    ]
    curves = list(by_curve(points).values())
    keys = element("p", *(key_value(f"level{i % 4}", points[of[0]].said) for i, of in enumerate(curves)), class_="keys")
    head = ("where", "degrees", "devices", "batch", "step", "tokens/s", "MFU", "gain", "tokens/J", "cost/1e12", "peak")
    shown = [_row(point, row) for point, row in zip(points, rows, strict=True)]
    paths = sorted({path for row in rows for path in row.get("elasticities", {})})
    planned = [(point, row) for point, row in zip(points, rows, strict=True) if "why" not in row]
    hangs = [
        (
            path,
            *(
                number(row["elasticities"].get(path, 0.0), f"{row['elasticities'].get(path, 0.0):+.4f}")
                for _, row in planned
            ),
        )
        for path in paths
    ]
    said = [element("li", one) for one in reasons] or [element("li", "No curve rises.")]
    parts = [
        section("plots", "Plots", "", keys, element("div", *plots, class_="charts")),
        section("rises", "Where curves rise", "", element("ul", *said)),
        section("points", "Points", "Predicted, not measured.", table(head, shown, sortable=True, left=2)),
        section(
            "elasticities", "What the step hangs on",
            "Elasticity of the step in every number of the cluster: by so many percent it grows where the number grows by one"
            " percent. Those of times less those of rates are 1.",
            table(("number", *(f"{point.said} {point.device_num}" for point, _ in planned)), hangs, sortable=True),
        ),
    ]  # fmt: skip
    title = element("title", f"{model}, swept")
    return "\n".join(
        [
            "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">', '<link rel="icon" href="data:,">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">', title.text,
            f"<style>{STYLE.read_text(encoding='utf-8')}</style>", "</head>", "<body>",
            element(
                "header", element("p", "Sweep", class_="kicker"), element("button", "light / dark", type="button", id="theme"),
                element("h1", model), element("p", f"{len(rows)} points", class_="about"),
            ).text,
            "<main>", *(part.text for part in parts), "</main>",
            f"<script>{SCRIPT.read_text(encoding='utf-8')}</script>", "</body>", "</html>", "",
        ]
    )  # fmt: skip


def _row(point: Point, row: Row) -> list[Cell]:
    """Cells with exact numbers, the degrees second."""
    where, *cells, last = _cells(point, row)
    exact = (
        float(point.device_num), row["global_batch_size"],
        *(row.get(name) for name in ("step_time_s", "tokens_per_s_device", "mfu", "marginal_gain", "tokens_per_J")),
        row.get("cost_per_1e12_tokens"), row.get("peak_memory_B"),
    )  # fmt: skip
    return [
        where, last,
        *("" if value is None else number(value, cell) for value, cell in zip(exact, cells, strict=True)),
    ]  # fmt: skip


def _plot(points: Sequence[Point], rows: Sequence[Row], name: str, said: Callable[[float], str]) -> Html:
    """Lines over the logarithm of the number of devices."""
    left, right, top, bottom = 80.0, WIDTH / 2 - 16, 10.0, 190.0
    counts = sorted({point.device_num for point in points})
    values = [row[name] for row in rows if row.get(name) is not None]
    most = 1.08 * max(values) if max(values) > 0 else 1.0

    def to_x(devices: int) -> float:
        return left + (right - left) * (counts.index(devices) + 0.5) / len(counts)

    def to_y(value: float) -> float:
        return bottom - (bottom - top) * max(value, 0.0) / most

    drawn: list[Html] = []
    for mark in marks(most, 4):
        drawn += [
            line(left, to_y(mark), right, to_y(mark), "grid"),
            text(left - 6, to_y(mark) + 4, said(mark), "axis", "end"),
        ]
    drawn += [text(to_x(devices), bottom + 16, str(devices), "axis", "middle") for devices in counts]
    for i, of in enumerate(by_curve(points).values()):
        spots = [(to_x(points[n].device_num), to_y(rows[n][name]), n) for n in of if rows[n].get(name) is not None]
        if spots:
            d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in spots)
            drawn.append(element("path", d=d, class_=f"line{i % 4}"))
        for x, y, n in spots:
            title = element("title", f"{points[n].said}, {points[n].device_num} devices: {said(rows[n][name])}")
            drawn.append(element("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", class_=f"level{i % 4}"))
    return drawing(WIDTH / 2, bottom + 22, *drawn, label=name, class_="plot")
