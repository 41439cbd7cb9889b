"""What else could be done: other step layouts, hand-written strategies, and the front of time against memory."""

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ms_symtensor.report.alternatives import Alternative
from ms_symtensor.report.considered import reason, ways
from ms_symtensor.report.html.markup import (
    Cell,
    Html,
    Row,
    bytes_B,
    copied,
    count,
    element,
    folded,
    joined,
    number,
    section,
    table,
    time_s,
)
from ms_symtensor.report.html.svg import WIDTH, drawing, line, marks, text
from ms_symtensor.report.text import seconds, size
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.plan import Plan

LAYOUT = ("stages", "micro-batches", "chunks", "mesh")
_PARTS = ("work", "recompute", "bubble", "once")
GIB = 1 << 30


def alternatives_section(plan: Plan, others: Sequence[Alternative]) -> Html:
    """The step layouts that were screened, the best of each kind, and what people write by hand."""
    lead = (
        "The best plan of every number of stages, micro-batches and model chunks, as the search screened it. A copied command"
        " plans it. Click a column to sort."
    )
    inside: list[Html] = []
    worked_out, ruled_out = _rows(plan)
    if worked_out:
        inside.append(table((*LAYOUT, "step", "ratio", *_PARTS, "peak", "pins"), worked_out, sortable=True, left=0))
    if ruled_out:
        lost = table((*LAYOUT, "why not", "pins"), ruled_out, sortable=True, left=0)
        inside.append(folded(f"{len(ruled_out)} that were not worked out", lost))
    if others:
        rows = [
            (
                one.name, time_s(one.step_time_s),
                number(one.step_time_s / plan.prediction.step_time_s, f"{one.step_time_s / plan.prediction.step_time_s:.2f}"),
                bytes_B(one.peak_memory_B), "yes" if one.peak_memory_B <= plan.prediction.limit_B else "no",
                _fix(plan, _by_hand(one.name)),
            )
            for one in others
        ]  # fmt: skip
        inside += [
            element("h3", "As written by hand (Megatron's strategies, the same optimizer sharding and recomputation)"),
            table(("strategy", "step", "ratio", "peak", "fits", "pins"), rows, sortable=True),
        ]
    if not inside:
        inside.append(element("p", "Nothing else was considered."))
    return section("alternatives", "Alternatives", lead, *inside)


def _rows(plan: Plan) -> tuple[list[Row], list[Row]]:
    """Layouts with a step, and those that a bound ruled out, the best of every kind."""
    place = {id(one): number for number, one in enumerate(plan.search.considered)}
    kinds: dict[tuple[int, int, int], Considered] = {}
    for one in ways(plan):
        kinds.setdefault((one.pipeline_stages, one.micro_batch_num, one.pp_interleave_num), one)
    ours = plan.pipeline_stages, plan.micro_batch_num, plan.pp_interleave_num
    worked_out, ruled_out = [], []
    for kind, best in kinds.items():
        key = f"search.considered.{place[id(best)]}" if id(best) in place else ""
        pins = dict(zip(("pipeline_stages", "micro_batch_num", "pp_interleave_num"), kind, strict=True))
        layout: tuple[Cell, ...] = (*(count(n) for n in kind), " × ".join(map(str, best.mesh)))
        if best.step_time_s is not None:
            worked_out.append(
                Row(
                    (*layout, *_step(plan, best, best.step_time_s, key), _fix(plan, pins)),
                    "ours" if kind == ours else "",
                )
            )
        else:
            least_s = best.bound_s if best.fits else math.inf
            why = element("data", reason(best), value="inf" if math.isinf(least_s) else repr(least_s))
            ruled_out.append(Row((*layout, why, _fix(plan, pins))))
    return worked_out, ruled_out


def _step(plan: Plan, one: Considered, step_s: float, key: str) -> tuple[Cell, ...]:
    ratio = step_s / plan.prediction.step_time_s
    parts = (
        time_s(one.time_s[part], f"{key}.time_s.{part}" if key else "") if part in one.time_s else "" for part in _PARTS
    )
    return (
        time_s(step_s, f"{key}.step_time_s" if key else ""), number(ratio, f"{ratio:.2f}"), *parts,
        bytes_B(one.peak_memory_B or 0, f"{key}.peak_memory_B" if key else ""),
    )  # fmt: skip


def _by_hand(name: str) -> Mapping[str, int]:
    """The degrees in the name of a hand-written strategy (`Model.by_hand`)."""
    words = name.split()
    return {
        "pipeline_stages": 1, "micro_batch_num": 1, "data_parallel": int(words[1]), "model_parallel": int(words[4]),
    }  # fmt: skip


def _fix(plan: Plan, pins: Mapping[str, int]) -> Html:
    """The pins in short, and a button that copies the command."""
    fix = [f"--fix {name}={value}" for name, value in pins.items()]
    return joined([element("code", " ".join(fix), class_="pins"), copied(command(plan, fix))])


def command(plan: Plan, fix: Sequence[str]) -> str:
    """The command that plans the same network with these pins."""
    model = plan.source.get("model") or plan.source.get("factory") or plan.model
    options = [
        f"--device-num {plan.device_num}", f"--cluster {shlex.quote(plan.cluster)}",
        f"--global-batch-size {plan.global_batch_size}",
    ]  # fmt: skip
    if "model" in plan.source:
        options += [f"--seq-length {plan.seq_length}", f"--num-layers {plan.source['num_layers']}"]
    if plan.runtime != "mindspore_graph":
        options.append(f"--runtime {plan.runtime}")
    if plan.hide:
        options.append(f"--hide {plan.hide}")
    return " ".join(["symtensor plan", shlex.quote(model), *options, *fix, "--out plan/other"])


def pareto_section(front: Sequence[Mapping[str, Any]] | None) -> Html:
    """Time against memory, where the plan was made with --pareto."""
    if not front:
        return Html("")
    names = list(front[0])[2:]
    rows = [
        (
            bytes_B(one["peak_memory_B"]), time_s(one["step_time_s"]),
            number(one["step_time_s"] / front[0]["step_time_s"], f"{one['step_time_s'] / front[0]['step_time_s']:.2f}"),
            *(count(one[name]) for name in names),
        )
        for one in front
    ]  # fmt: skip
    head = ("peak", "step", "ratio", *names)
    return section(
        "pareto", "Time against memory", "The fastest plans within less and less memory.", _front(front),
        table(head, rows, sortable=True, left=0),
    )  # fmt: skip


def _front(front: Sequence[Mapping[str, Any]]) -> Html:
    left, right, top, bottom = 60.0, WIDTH - 20.0, 14.0, 200.0
    most_B, most_s = max(one["peak_memory_B"] for one in front) * 1.05, max(one["step_time_s"] for one in front) * 1.08
    drawn: list[Html] = []
    for mark in marks(most_s, 4):
        y = bottom - (bottom - top) * mark / most_s
        drawn += [line(left, y, right, y, "grid"), text(left - 6, y + 4, seconds(mark) if mark else "0", "axis", "end")]
    for mark in marks(most_B / GIB, 8):
        x = left + (right - left) * mark * GIB / most_B
        drawn.append(text(x, bottom + 16, f"{mark:g} GiB", "axis", "middle"))
    points = [
        (left + (right - left) * one["peak_memory_B"] / most_B, bottom - (bottom - top) * one["step_time_s"] / most_s)
        for one in front
    ]
    d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    drawn.append(element("path", d=d, class_="curve"))
    for (x, y), one in zip(points, front, strict=True):
        title = element("title", f"{seconds(one['step_time_s'])}, {size(one['peak_memory_B'])}")
        drawn.append(element("circle", title, cx=f"{x:.1f}", cy=f"{y:.1f}", r="5", class_="peak"))
    return drawing(WIDTH, bottom + 24, *drawn, label="time against memory", class_="pareto")
