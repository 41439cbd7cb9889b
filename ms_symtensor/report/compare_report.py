"""A plan beside a run of it, for people and for programs."""

from collections.abc import Callable, Iterator
from typing import Any

from ms_symtensor.measured.comparison import Comparison, Pair
from ms_symtensor.report.rates import rate_unit
from ms_symtensor.report.text import seconds, size, table

HEAD = ("predicted", "measured", "ratio")
NEAR = 0.02
"""A part that is off by less of the step is not named (empirical: steps of one run differ by so much)."""


def comparison_json(found: Comparison) -> dict[str, Any]:
    """The keys that `symtensor compare --json` promises: seconds and bytes; None where nothing was predicted or measured."""
    run, tokens = found.run, found.tokens_per_s
    return {
        "model": found.plan.model,
        "cluster": found.plan.cluster,
        "device_num": found.plan.device_num,
        "runs": list(run.paths),
        "steps": sum(log.steps for log in run.logs),
        "step_time_s": _pair(found.step),
        "tokens_per_s": _pair(tokens),
        "tokens_per_s_per_device": _pair(_each(tokens, found.plan.device_num)),
        "parts_s": {name: _pair(pair) for name, pair in found.parts.items()},
        "hidden_communication_s": found.hidden_s,
        "operators_s": {kind: _pair(pair) for kind, pair in found.operators.items()},
        "collectives": {
            kind: {"count": _pair(one.count), "time_s": _pair(one.time_s), "wait_s": one.wait_s}
            for kind, one in found.exchanges.items()
        },
        "peak_memory_B": _pair(found.peak_B),
        "reserved_memory_B": run.memory.reserved_B,
        "memory_limit_B": found.plan.prediction.limit_B,
    }


def comparison_text(found: Comparison) -> str:
    """Tables of the step, of its parts, of operators, collectives and memory, and what was wrong by how much."""
    plan, (first, *others) = found.plan, found.run.paths
    more = f" and {len(others)} more" if others else ""
    title = f"{plan.model} on {plan.device_num} devices of {plan.cluster}, beside {first}{more}"
    return "\n\n".join([title, *_tables(found), "\n".join(_wrong(found))])


def _tables(found: Comparison) -> Iterator[str]:
    each = _each(found.tokens_per_s, found.plan.device_num)
    rows = [
        _row("step", found.step, seconds),
        _row(rate_unit(found.plan), found.tokens_per_s, _count),
        _row("per device", each, _count),
    ]
    yield table([*rows, *_memory(found)], ("", *HEAD), right=(1, 2, 3))
    if any(pair.measured is not None for pair in found.parts.values()):
        yield "Parts of a step, mean of the ranks that were profiled\n" + _seconds(found, found.parts)
    if found.operators:
        yield "Operators of a step by kind\n" + _seconds(found, found.operators)
    if found.exchanges:
        rows = [
            (
                kind, *_cells(one.count, _count)[:2], *_cells(one.time_s, seconds),
                "" if one.wait_s is None else seconds(one.wait_s),
            )
            for kind, one in found.exchanges.items()
        ]  # fmt: skip
        head = ("", "count", "measured", "time", "measured", "ratio", "of it waiting")
        yield "Collectives of a step by kind\n" + table(rows, head, right=range(1, 7))


def _memory(found: Comparison) -> Iterator[tuple[str, ...]]:
    yield _row("peak memory", found.peak_B, _bytes)
    if found.run.memory.allocated_B is not None and found.run.memory.reserved_B is not None:
        yield _row("with fragments", Pair(None, found.run.memory.reserved_B), _bytes)


def _seconds(found: Comparison, pairs: Any) -> str:
    step_s = found.run.profiled_step_s or found.run.step_time_s
    rows = [(*_row(name, pair, seconds), _off(pair, step_s)) for name, pair in pairs.items()]
    return table(rows, ("", *HEAD, "of the step"), right=(1, 2, 3, 4))


def _wrong(found: Comparison) -> Iterator[str]:
    """Sentences: the step, the part that is most off, memory, and what makes the two hard to compare."""
    run, step = found.run, found.step
    if step.ratio is not None:
        yield f"The predicted step is {_percent(step.ratio)} the measured one."
        measured = {name: pair for name, pair in found.parts.items() if pair.measured is not None}
        off = {name: (pair.predicted or 0.0) - (pair.measured or 0.0) for name, pair in measured.items()}
        step_s = run.profiled_step_s
        if step_s is not None and off:
            named = sorted((n for n in off if abs(off[n]) > NEAR * step_s), key=lambda n: -abs(off[n]))
            parts = ", ".join(f"{n} {seconds(abs(off[n]))} too {'long' if off[n] > 0 else 'short'}" for n in named)
            yield f"By part: {parts or f'none is off by more than {100 * NEAR:.0f} % of the step'}."
    if found.peak_B.ratio is not None:
        yield f"The predicted peak is {_percent(found.peak_B.ratio)} the measured one."
    profiled_s = run.profiled_step_s
    if run.logs and profiled_s is not None and run.step_time_s is not None and profiled_s != run.step_time_s:
        yield f"The profiled step took {seconds(profiled_s)}: {_percent(profiled_s / run.step_time_s)} that of the log."
    if found.hidden_s:
        yield f"The run hid {seconds(found.hidden_s)} of communication beside computation."
    for kind, one in found.exchanges.items():
        if one.count.predicted != one.count.measured:
            yield (
                f"The run has {_number(one.count.measured)} {kind} where the plan has {_number(one.count.predicted)}: its program"
                " is another one."
            )


def _pair(pair: Pair) -> dict[str, float | None]:
    return {"predicted": pair.predicted, "measured": pair.measured, "ratio": pair.ratio}


def _each(pair: Pair, number: int) -> Pair:
    return Pair(*(None if value is None else value / number for value in (pair.predicted, pair.measured)))


def _row(name: str, pair: Pair, shown: Callable[[float], str]) -> tuple[str, ...]:
    return (name, *_cells(pair, shown))


def _cells(pair: Pair, shown: Callable[[float], str]) -> tuple[str, str, str]:
    texts = ("" if value is None else shown(value) for value in (pair.predicted, pair.measured))
    return (*texts, "" if pair.ratio is None else _ratio(pair.ratio))  # type: ignore[return-value]


def _off(pair: Pair, step_s: float | None) -> str:
    """By how much of the measured step the prediction is off."""
    if pair.measured is None or not step_s:
        return ""
    return f"{100 * ((pair.predicted or 0.0) - pair.measured) / step_s:+.1f} %"


def _percent(ratio: float) -> str:
    off = 100 * (ratio - 1)
    return f"{abs(off):.1f} % {'above' if off >= 0 else 'below'}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.3g}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _number(value: float | None) -> str:
    return _count(value or 0)


def _bytes(value: float) -> str:
    return size(int(value))
