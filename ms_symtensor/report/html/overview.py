"""The head of the page: what the plan is, how fast, how full; time and memory by part; the stages and settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from ms_symtensor.cost.step import MEMORIES, TIMES
from ms_symtensor.program.stage_memory import stage_in_flight
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.report.html.markup import (
    Cell,
    Html,
    Row,
    bytes_B,
    count,
    element,
    joined,
    key_value,
    number,
    percent,
    section,
    table,
    time_s,
)  # fmt: skip
from ms_symtensor.report.html.svg import stacked_bar
from ms_symtensor.report.rates import rates
from ms_symtensor.report.recomputation import in_short, recomputation_text
from ms_symtensor.report.text import run_text, seconds, share, size
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.timeline.step import Step

N = TypeVar("N", int, float)
DEGREES = (
    "data_parallel", "model_parallel", "context_parallel", "expert_parallel", "pipeline_stages", "micro_batch_num",
    "pp_interleave_num",
)  # fmt: skip


def head(step: Step) -> Html:
    """Title, figures and degrees."""
    plan, found = step.plan, step.plan.prediction
    rate, usable_B = rates(plan, step.graph), int(plan.planned_for.device.hbm_usable_B)
    left_B = max(0, usable_B - found.peak_memory_B)
    tokens = "tokens" if plan.seq_length > 1 else "samples"
    tiles = [
        _tile("step", time_s(found.step_time_s, "step_time_s"), "predicted, not measured"),
        _tile(
            f"{tokens}/s a device",
            number(rate["tokens_per_s_device"], f"{rate['tokens_per_s_device']:,.0f}", "tokens_per_s_device"),
            f"{rate['tokens_per_s_device'] * plan.device_num:,.0f} on all devices",
        ),
        _tile(
            "MFU", percent(rate["mfu"], "mfu"),
            joined([number(rate["tflops_device"], f"{rate['tflops_device']:.1f} TFLOP/s a device", "tflops_device")]),
        ),
        _tile(
            "peak memory", bytes_B(found.peak_memory_B, "peak_memory_B"),
            joined([bytes_B(left_B), Html(f" left of {size(usable_B)}{'' if found.fits else ' · does not fit'}")]),
        ),
    ]  # fmt: skip
    return joined([element("div", *tiles, class_="tiles"), _degrees(plan)])


def _tile(name: str, value: Html, note: Cell) -> Html:
    return element(
        "div", element("span", name, class_="what"), element("strong", value), element("span", note, class_="note"),
        class_="tile",
    )  # fmt: skip


def _degrees(plan: Plan) -> Html:
    chips = [
        element(
            "span",
            f"{name} ",
            element("b", count(getattr(plan, name), name)),
            class_="chip" if getattr(plan, name) > 1 else "chip one",
        )
        for name in DEGREES
    ]
    chips.append(
        element(
            "span",
            "sequence_parallel ",
            element("b", "yes" if plan.sequence_parallel else "no"),
            class_="chip" if plan.sequence_parallel else "chip one",
        )
    )
    level = int(plan.settings.optimizer_level)
    chips.append(
        element(
            "span",
            "optimizer_level ",
            element("b", count(level, "optimizer_level")),
            class_="chip" if level else "chip one",
        )
    )
    recomputation = in_short(plan.settings.recompute)
    chips.append(
        element(
            "span", "recompute ", element("b", recomputation), class_="chip" if recomputation != "none" else "chip one"
        )
    )
    pins = [f"{name} = {value}" for name, value in plan.fixed.items()]
    pins += [f"{name} <= {value}" for name, value in plan.at_most.items()]
    pinned = [element("p", "pinned: " + ", ".join(pins), class_="small")] if pins else []
    return element("div", element("p", *chips, class_="chips"), *pinned)


def parts_section(step: Step) -> Html:
    """Time and memory by part."""
    found = step.plan.prediction
    times, memory = _ordered(found.time_s, TIMES), _ordered(found.memory_B, MEMORIES)
    bar = stacked_bar([(part, s, f"{part} {seconds(s)}") for part, s in times], found.step_time_s, "time by part")
    rows: list[Row] = [
        Row((key_value(part, part), time_s(s, f"prediction.time_s.{part}"), share(s, found.step_time_s)))
        for part, s in times
    ]
    rows.append(Row(("step", time_s(found.step_time_s), ""), "sum"))
    rows += [
        Row((f"{part}, hidden beside computation", time_s(s, f"prediction.hidden_s.{part}"), ""))
        for part, s in found.hidden_s.items()
    ]
    of_time = element("div", element("h3", "Time of a step"), bar, table(("part", "seconds", "share"), rows))
    limit_B = found.limit_B
    memory_bar = stacked_bar(
        [(part, b, f"{part} {size(b)}") for part, b in memory], max(limit_B, found.peak_memory_B), "memory by part"
    )
    rows = [
        Row((key_value(part, part), bytes_B(b, f"prediction.memory_B.{part}"), share(b, found.peak_memory_B)))
        for part, b in memory
    ]
    rows.append(Row(("peak", bytes_B(found.peak_memory_B), ""), "sum"))
    rows.append(Row(("limit", bytes_B(limit_B, "prediction.limit_B"), share(found.peak_memory_B, limit_B) + " full")))
    if step.plan.settings.swap_optimizer:
        rows.append(
            Row(("optimizer offload (host memory)", bytes_B(found.host_memory_B, "prediction.host_memory_B"), ""))
        )
    of_memory = element(
        "div", element("h3", "Memory of the fullest device"), memory_bar, table(("part", "bytes", "share"), rows)
    )
    lead = "Times are those of an average stage." if len(step.seconds) > 1 else ""
    return section("parts", "Time and memory by part", lead, element("div", of_time, of_memory, class_="two"))


def _ordered(parts: Mapping[str, N], order: Sequence[str]) -> list[tuple[str, N]]:
    """`parts` in the order of `order`, others behind."""
    return sorted(parts.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))


def stages_section(step: Step) -> Html:
    """What every pipeline stage holds; and which operators are recomputed."""
    plan = step.plan
    inside: list[Html] = []
    if plan.pipeline is not None:
        rows = list(_stages(step))
        head_ = ("stage", "ranks", "blocks", "recomputed", "in flight", "forward", "backward", "once", "peak")
        inside.append(table(head_, rows, left=3))
    if plan.settings.recompute:
        nodes = (n for one in step.programs for n in (one.micro if isinstance(one, StageProgram) else one).nodes)
        inside.append(element("pre", recomputation_text(step.graph, plan.settings.recompute, nodes)))
    if not inside:
        return Html("")
    lead = (
        "Seconds of one micro-batch; in flight: micro-batches whose activations wait."
        if plan.pipeline is not None
        else ""
    )
    return section("stages", "Stages and recomputation", lead, *inside)


def _stages(step: Step) -> Iterator[Row]:
    names = step.graph.blocks
    for program, stage, spent, memory in zip(step.programs, step.plan.stages, step.seconds, step.memory, strict=True):
        assert isinstance(program, StageProgram)
        number_ = program.stage
        runs = program.pipeline.layers[number_]
        in_flight = stage_in_flight(program)
        yield Row((
            str(number_), Html(f"{program.ranks.start}&nbsp;…&nbsp;{program.ranks[-1]}"),
            ", ".join(run_text(names[run.start], names[run.stop - 1]) for run in runs),
            count(len(stage.settings.recompute)), number(in_flight, f"{in_flight:g}"), time_s(spent.forward_s),
            time_s(spent.backward_s), time_s(spent.once_s), bytes_B(memory.peak_B),
        ))  # fmt: skip


def settings_table(step: Step) -> Html:
    """The rest of what plan.json says in numbers."""
    plan = step.plan
    settings = plan.settings
    rows: list[tuple[Cell, ...]] = [
        ("global_batch_size", count(plan.global_batch_size, "global_batch_size")),
        ("seq_length", count(plan.seq_length, "seq_length")),
        ("device_num", count(plan.device_num, "device_num")),
        ("devices of a stage", count(settings.device_num, "stages.0.settings.device_num")),
        (
            "optimizer_weight_shard_size",
            count(settings.optimizer_weight_shard_size, "stages.0.settings.optimizer_weight_shard_size"),
        ),
        (
            "parallel_optimizer_threshold_KB",
            count(settings.parallel_optimizer_threshold_KB, "stages.0.settings.parallel_optimizer_threshold_KB"),
        ),
        ("gradient_fp32_sync", "yes" if settings.gradient_fp32_sync else "no"),
        ("run-time", plan.runtime + (f", hides {plan.hide}" if plan.hide else "")),
        ("candidates priced", count(plan.search.candidates, "search.candidates")),
        ("optimality gap", percent(plan.search.optimality_gap, "search.optimality_gap", 2)),
        ("search", plan.search.method),
        *((f"made with {name}", version) for name, version in sorted(plan.made_with.items())),
    ]  # fmt: skip
    return table(("setting", "value"), rows, left=2)
