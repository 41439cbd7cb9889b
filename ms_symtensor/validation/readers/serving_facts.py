"""vllm_ascend_facts.csv: single times and rates of engines on Ascend, from vllm-ascend's guides and issues."""

import re
from dataclasses import replace
from functools import partial

import numpy as np

from ms_symtensor.serving.closed_loop import Engine, prompt_s, step_s
from ms_symtensor.serving.layer import Step
from ms_symtensor.serving.phases import longest_rank, passes_of
from ms_symtensor.serving.request import Request, Tokens
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.common import number_in
from ms_symtensor.validation.readers.devices import cluster_of
from ms_symtensor.validation.readers.nightly import engine_of
from ms_symtensor.validation.readers.served_networks import MOST, Asked, request_of, served_network, stored_as
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = ("model", "hardware", "npus", "prefill", "decode", "setting", "metric", "value", "unit")
UNIT_S = {"s": 1.0, "ms": 1e-3}
RATE, FIRST, TOKEN = "input throughput", "TTFT", "TPOT"
_CHUNK = 1 << 17


def _measured_s(metric: str, engine: Engine, concurrency: int, cached: float, request: Request) -> float:
    """To the first token, per token, or of a device for a token of a prompt, with `concurrency` requests at once, of which a
    share of the prompt is `cached`.
    """
    one = engine.one
    each = max(1.0, concurrency / one.dp)
    if metric == TOKEN:
        return step_s(request, engine, each)
    if metric == FIRST:
        return prompt_s(request, engine, cached, 1)
    # stages have requests in flight each
    whole, prompts = request.tokens.input, np.array([max(1.0, each / one.pp)])
    new = whole * (1 - cached)
    uneven = longest_rank(request, one, prompts)
    context = prompts * (whole - new)
    keys = (whole - new / 2) * (1 + request.tokens.deviation**2)  # longer prompts have more tokens, that see more
    step = Step(prompts * new, prompts, keys, is_decode=False, **uneven, context=context)
    stage_s = float(passes_of(request, one, step, prompts).stage_s[0])
    return stage_s * one.device_num / (one.dp * float(prompts[0]) * whole)


def timings(row: Row) -> tuple[Timing, ...]:
    """One for each value of the row. UnusableRowError where it does not say what ran, with how many requests."""
    metric, values = row.text("metric"), [text.strip() for text in row.text("value").split("/")]
    metrics = [text.strip() for text in metric.split("/")]
    if not set(metrics) <= {RATE, FIRST, TOKEN} or not all(re.fullmatch(r"\d+(\.\d+)?", text) for text in values):
        raise UnusableRowError(f"{metric} is not predicted")
    loads = re.search(r"concurrency ([\d /]+)", row.text("setting"))
    lengths = re.search(r"(?:mean )?\b(\d[\d.]*)(k?) ?(?:in\b|,)", _ends(row.text("setting")), re.IGNORECASE)
    if loads is None or lengths is None:
        raise UnusableRowError("does not say how many requests there are, or how long prompts are")
    counts = [int(text) for text in loads[1].split("/")]
    config = served_network(row.text("model").partition(" ")[0])
    known = cluster_of(row.text("hardware"))
    prompt = round(float(lengths[1]) * (1000 if lengths[2] else 1))
    ends = re.search(r"(\d+)k to (\d+)k in", row.text("setting"))
    least, most = (1000 * int(ends[1]), 1000 * int(ends[2])) if ends else (prompt, prompt)
    if len(values) != max(len(metrics), len(counts)) or max(prompt, *counts) > MOST or min(prompt, *counts) < 1:
        raise UnusableRowError("has not one value for each metric, or each number of requests")
    out = re.search(r"in (\d+)(k?) out", row.text("setting"), re.IGNORECASE)
    output = int(out[1]) * (1000 if out[2] else 1) if out else 1
    cached = min(number_in(row.text("setting"), r"prefix hit (\d+) ?%") or 0, 100) / 100
    weights = stored_as(row.text("model"))
    found = []
    for number, value in enumerate(values):
        name = metrics[number % len(metrics)]
        engine = _engine(row, name, config)
        request = request_of(config, known, engine.one.device_num, prompt, output, weights=weights)
        request = replace(request, tokens=Tokens(least, most, output))
        run = Asked(request, partial(_measured_s, name, engine, counts[number % len(counts)], cached))
        found.append(Timing(row.line, name, known, run, _seconds(row, value)))
    return tuple(found)


FORM = Form("vllm_ascend_facts", COLUMNS, timings, has_choices=True)


def _ends(setting: str) -> str:
    """`4k to 64k in, mean 32k, …`: from the mean on, where there is one."""
    return setting[setting.index("mean ") :] if "mean " in setting else setting


def _engine(row: Row, metric: str, config: object) -> Engine:
    """The one that the row describes for the phase of `metric`; of a row that describes none, experts on all of its devices."""
    text = row.text("decode" if metric == TOKEN else "prefill").lower()
    if not text:
        devices = row.optional_count("npus")
        if devices is None or metric != TOKEN:
            raise UnusableRowError("does not say how the engine is cut")
        text = f"tp{devices}"
    return engine_of(config, f"{text} ep tokens{_CHUNK}")  # type: ignore[arg-type]


def _seconds(row: Row, value: str) -> float:
    unit = row.text("unit")
    number = float(value)
    if unit in UNIT_S and number > 0:
        return number * UNIT_S[unit]
    if unit.startswith("tokens/s") and number > 0:
        return 1 / number
    raise UnusableRowError(f"a value of {value} in {unit!r}, which is neither s, ms nor tokens/s")
