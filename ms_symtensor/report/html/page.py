"""`report.html`, put together: one file without scripts, fonts or images of others, for light and dark screens and for paper."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ms_symtensor.cost.bill import Part
from ms_symtensor.report.alternatives import Alternative
from ms_symtensor.report.html.block_graph import block_graph, kinds_of_blocks
from ms_symtensor.report.html.choices import alternatives_section, pareto_section
from ms_symtensor.report.html.exchanges import exchanges_section
from ms_symtensor.report.html.files import files_section
from ms_symtensor.report.html.formulas import formulas_section
from ms_symtensor.report.html.markup import Html, element, folded, html, key_value, section, table, time_s
from ms_symtensor.report.html.memory_chart import alive_table, memory_charts
from ms_symtensor.report.html.overview import head, parts_section, settings_table, stages_section
from ms_symtensor.report.html.timeline_chart import operators_chart, timeline_chart
from ms_symtensor.report.html.trust import badges, trust_section
from ms_symtensor.report.operators import sections as operator_sections
from ms_symtensor.report.plan_report import plan_json
from ms_symtensor.strategy.folder import PlanFolder
from ms_symtensor.strategy.loss import loss_note
from ms_symtensor.strategy.record import PARETO_FILE, recorded
from ms_symtensor.timeline.step import Step
from ms_symtensor.version import VERSION

STYLE, SCRIPT = (Path(__file__).with_name(name) for name in ("style.css", "script.js"))
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""The page may load nothing from anywhere."""
MOST_KINDS = 3
"""Kinds of blocks that are drawn."""


def page(folder: PlanFolder, step: Step, others: Sequence[Alternative], place: str) -> str:
    """The page of the plan in `folder`, whose step is `step`; `others`: strategies written by hand; `place`: its path, for
    commands.
    """
    plan = step.plan
    parts = [
        parts_section(step), _timeline(step), _memory(step), stages_section(step), _blocks(step),
        alternatives_section(plan, others), pareto_section(recorded(folder, PARETO_FILE)), exchanges_section(step),
        trust_section(folder, plan, place), formulas_section(step), files_section(folder, place),
        section("settings", "Settings and search", "", settings_table(step)),
    ]  # fmt: skip
    title = f"{plan.model} on {plan.device_num} devices of {plan.cluster}"
    data = plan_json(plan, step.graph)
    return "\n".join(
        [
            "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">', '<link rel="icon" href="data:,">',
            f"<title>{html(title)}</title>", f"<style>{STYLE.read_text(encoding='utf-8')}</style>", "</head>", "<body>",
            _header(folder, step).text, _contents(parts).text, "<main>", *(part.text for part in parts if part.text),
            "</main>", f"<footer>ms_symtensor {html(VERSION)} · predicted, not measured on NPUs</footer>",
            f'<script type="application/json" id="plan">{_safe(data)}</script>',
            f"<script>{SCRIPT.read_text(encoding='utf-8')}</script>", "</body>", "</html>", "",
        ]
    )  # fmt: skip


def _safe(data: Any) -> str:
    """JSON that ends no script element."""
    return json.dumps(data, allow_nan=False).replace("</", "<\\/")


def _header(folder: PlanFolder, step: Step) -> Html:
    plan = step.plan
    sequence = f", sequence {plan.seq_length:,}" if plan.seq_length > 1 else ""
    own = " (own file)" if plan.own_cluster is not None else ""
    about = f"{plan.device_num:,} devices of {plan.cluster}{own}, global batch {plan.global_batch_size:,}{sequence}"
    note = [element("p", f"loss: {said}", class_="small")] if (said := loss_note(plan.loss)) else []
    theme = element("button", "light / dark", type="button", id="theme")
    return element(
        "header", element("p", "Parallel plan", class_="kicker"), theme, element("h1", plan.model),
        element("p", about, class_="about"), badges(folder), head(step), *note,
    )  # fmt: skip


def _contents(parts: Sequence[Html]) -> Html:
    links = []
    for part in parts:
        if part.text:
            name = part.text.split('id="', 1)[1].split('"', 1)[0]
            title = part.text.split("<h2>", 1)[1].split("</h2>", 1)[0]
            links.append(element("a", Html(title), href=f"#{name}"))
    return element("nav", *links)


def _timeline(step: Step) -> Html:
    timeline, plan = step.timeline, step.plan
    apart = timeline.replayed_s / timeline.step_s - 1
    order = "" if plan.pipeline is None else f" ({plan.pipeline.scheduler})"
    lead = f"Every stage takes its passes in order{order}, each as soon as what it reads has come."
    if plan.pipeline is None:
        lead = "One stage, one batch: forward, backward, update."
    elif abs(apart) > 5e-4:
        how = "the stages wait" if apart < 0 else "drawn shorter by that share"
        side = "before" if apart < 0 else "after"
        lead += f" So the passes are done {abs(100 * apart):.2g} % {side} the step's formula: {how}."
    lead += " timeline.json has it for Perfetto and MindStudio Insight."
    busiest = max(range(len(step.seconds)), key=lambda n: step.seconds[n].each_s)
    of = (
        f"One micro-batch on stage {busiest}, the slowest"
        if plan.pipeline is not None
        else "Computation and communication"
    )
    used = dict.fromkeys(one.key.part for one in step.operators[busiest])
    keys = element("p", *(key_value(f"part-{part.value}", part.value) for part in Part if part in used), class_="keys")
    return section(
        "timeline", "Timeline of one step", lead, timeline_chart(timeline, len(timeline.stages) > 1), element("h3", of), keys,
        operators_chart(step.operators[busiest]),
    )  # fmt: skip


def _memory(step: Step) -> Html:
    found = step.plan.prediction
    fullest = max(range(len(step.memory)), key=lambda n: step.memory[n].peak_B)
    keys = element("p", *(key_value(part, part) for part in found.memory_B), class_="keys")
    title = "Alive at the peak" + (f" of stage {fullest}" if len(step.memory) > 1 else "")
    peak_s = step.memory[fullest].peak_s
    return section(
        "memory", "Memory over time", "Bytes of a rank; the dashed line is the limit.", keys,
        memory_charts(step.memory, step.timeline.step_s, found.limit_B),
        element("h3", title, ", ", time_s(peak_s), " into the step"),
        alive_table(step.memory[fullest]),
    )  # fmt: skip


def _blocks(step: Step) -> Html:
    inside: list[Html] = []
    for first, alike in list(kinds_of_blocks(step).items())[:MOST_KINDS]:
        others = f", and {len(alike) - 1} more blocks like it, up to {alike[-1]}" if len(alike) > 1 else ""
        inside.append(element("h3", f"{first}{others}"))
        inside.append(block_graph(step, first))
    tables = []
    for one in operator_sections(step.graph, step.plan.whole):
        rows = [
            (o.operator, o.type, o.cuts + (" (MindSpore's default)" if o.by_default else ""), o.strategy_text)
            for o in one.operators
        ]
        tables += [element("h4", one.title), table(("operator", "type", "cut", "strategy"), rows, left=4)]
    inside.append(folded("All operators, with the strategy that shard() takes", *tables))
    keys = element(
        "p", element("span", element("i", class_="key op"), " kept", class_="legend"),
        element("span", element("i", class_="key again"), " recomputed in the backward pass ↻", class_="legend"),
        element("span", element("i", class_="key pill"), " collective of the forward pass", class_="legend"), class_="keys",
    )  # fmt: skip
    lead = (
        "Operators with the cuts of their dims (dim/slices). A pill above an operator is what its inputs are brought by,"
        " one below what its result is summed by."
    )
    return section("blocks", "A block of the network", lead, keys, *inside)
