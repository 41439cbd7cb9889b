"""A step in the Trace Event Format, which Perfetto, Chromium and MindStudio Insight draw.

Source of the format: "Trace Event Format" of Chromium's Catapult project (docs.google.com/document/d/
1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU): complete events (ph X) with ts and dur in microseconds, counters (C) and
metadata (M).

A process is a pipeline stage. Its thread "step" holds the passes: they follow each other from 0 to the end of the step. Its
counter is the memory of a rank. A second process of a stage shows what is done once and one micro-batch operator by operator,
from 0 on, and then the rest of the step as one span.

Spans begin on whole nanoseconds. Perfetto counts in these, cuts off what is below, and drops a span that begins before the
one before it has ended.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ms_symtensor.cost.node_time import NodeTime
from ms_symtensor.cost.stage_time import StageSeconds, pass_of
from ms_symtensor.program.program import Role
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name
from ms_symtensor.timeline.replay import Kind, Span, StepTimeline
from ms_symtensor.timeline.step import Step

Event = dict[str, Any]
MICROSECONDS, NANOSECONDS = 1e6, 1e9
STEP, OPERATORS = 0, 1
"""Numbers of threads."""
REST = "other micro-batches, and waiting"
ROUNDING = 1e-9
PASS_ORDER = ("start", "forward", "backward", "end")


def trace_of(step: Step) -> dict[str, Any]:
    """The trace of `step`, as plain JSON data."""
    plan, timeline = step.plan, step.timeline
    events: list[Event] = []
    for stage in range(len(timeline.stages)):
        ranks = plan.stages[stage].settings.device_num
        events += _named(stage, f"stage {stage}, ranks {stage * ranks} to {(stage + 1) * ranks - 1}", STEP, "step")
        events += _passes(timeline, stage, step.seconds[stage], plan.micro_batch_num > 1)
        events += _memory(stage, step)
    for stage in range(len(timeline.stages)):
        process = len(timeline.stages) + stage
        events += _named(process, f"stage {stage}, {_one_of(plan.micro_batch_num)} by operator", OPERATORS, "operators")
        events += _operators(process, step, stage)
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "model": plan.model, "cluster": plan.cluster, "device_num": plan.device_num, "step_time_s": timeline.step_s,
            "replayed_s": timeline.replayed_s, "what": "predicted, not measured",
        },
        "traceEvents": events,
    }  # fmt: skip


def _one_of(micro_batch_num: int) -> str:
    return "one micro-batch" if micro_batch_num > 1 else "the step"


def _named(process: int, name: str, thread: int, of_thread: str) -> list[Event]:
    return [
        {"ph": "M", "name": "process_name", "pid": process, "tid": thread, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": process, "tid": thread, "args": {"sort_index": process}},
        {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": of_thread}},
    ]


def _passes(timeline: StepTimeline, stage: int, seconds: StageSeconds, has_micro_batches: bool) -> Iterator[Event]:
    spans = timeline.stages[stage]
    for span, (begin, length) in zip(spans, _placed([span.start_s for span in spans], timeline.step_s), strict=True):
        name = span.kind.value
        if has_micro_batches and span.kind in (Kind.FORWARD, Kind.BACKWARD):
            name = f"{name} {span.micro_batch}"
        yield {
            "ph": "X", "name": name, "cat": span.kind.value, "pid": stage, "tid": STEP,
            "ts": begin, "dur": length, "args": _parts(span, seconds),
        }  # fmt: skip


def _parts(span: Span, seconds: StageSeconds) -> dict[str, Any]:
    """What a pass spends its seconds on, by the price, all its model chunks alike."""
    if span.kind is Kind.WAIT:
        return {}
    spent = {kind: s for (place, kind), s in seconds.spent_s.items() if place == span.kind.value and s}
    whole_s = sum(spent.values())
    shares: dict[str, Any] = {f"{kind}_s": span.time_s * s / whole_s for kind, s in spent.items()} if whole_s else {}
    if span.kind in (Kind.FORWARD, Kind.BACKWARD):
        shares |= {"micro_batch": span.micro_batch, "model_chunk": span.run}
    return shares


def _memory(stage: int, step: Step) -> Iterator[Event]:
    memory = step.memory[stage]
    at_rest = {f"{part}_B": size_B for part, size_B in memory.at_rest_B.items()}
    for at_s, size_B in memory.curve:
        yield {
            "ph": "C", "name": "memory of a rank", "cat": "memory", "pid": stage, "tid": STEP, "ts": at_s * MICROSECONDS,
            "args": {**at_rest, "activations_B": size_B},
        }  # fmt: skip


def _operators(process: int, step: Step, stage: int) -> Iterator[Event]:
    """The nodes of the stage's program, its update, and the rest of the step: other micro-batches, and waiting."""
    ordered = sorted(step.operators[stage], key=lambda one: (PASS_ORDER.index(pass_of(one.key)), one.position))
    spans = [(_name(step.graph, one), one.key.part.value, one.time_s, _arguments(one)) for one in ordered]
    spans.append(("update of the parameters", "optimizer", step.seconds[stage].spent_s["end", "optimizer"], {}))
    rest_s = step.timeline.step_s - sum(time_s for _, _, time_s, _ in spans)
    if rest_s > ROUNDING * step.timeline.step_s:
        spans.append((REST if step.plan.micro_batch_num > 1 else "waiting", Kind.WAIT.value, rest_s, {}))
    *begins_s, end_s = accumulate((time_s for _, _, time_s, _ in spans), initial=0.0)
    for (name, category, _, arguments), (begin, length) in zip(spans, _placed(begins_s, end_s), strict=True):
        yield {
            "ph": "X", "name": name, "cat": category, "pid": process, "tid": OPERATORS, "ts": begin, "dur": length,
            "args": arguments,
        }  # fmt: skip


def _placed(begins_s: Sequence[float], end_s: float) -> Iterator[tuple[float, float]]:
    """Begin and length in microseconds of spans that follow each other: begins on the nearest nanosecond, the end as it is."""
    begins_ns = [round(one * NANOSECONDS) for one in begins_s]
    for begin_ns, next_ns in pairwise(begins_ns):
        yield _microseconds(begin_ns), _microseconds(next_ns - begin_ns)
    last = _microseconds(begins_ns[-1])
    yield last, max(0.0, end_s * MICROSECONDS - last)


def _microseconds(whole_ns: int) -> float:
    """So many that 1,000 times as much is not below `whole_ns`."""
    found = whole_ns / 1000
    return found if int(found * 1000) == whole_ns else math.nextafter(found, math.inf)


def _name(graph: Graph, one: NodeTime) -> str:
    op = graph.op_by_name.get(one.node.op)
    name = one.node.op if op is None else short_name(op)
    return name if one.node.role is Role.WORK else f"{one.node.kind} ({name})"


def _arguments(one: NodeTime) -> dict[str, Any]:
    node = one.node
    return {
        "kind": node.kind, "pass": pass_of(one.key), "block": node.block or "",
        **({"parameter": node.parameter} if node.parameter else {}),
        **({"ranks": node.group.size} if node.group is not None else {}),
    }  # fmt: skip
