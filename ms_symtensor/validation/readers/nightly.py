"""vllm_ascend_nightly.csv: tokens a second that vllm-ascend's nightly benchmarks ask for, by model.

The times that are compared are seconds of a device per generated token: what `serve` chooses by. Rows of a model on one chip are
judged together.
"""

import re
from dataclasses import replace
from functools import partial

from model_zoo.config import TransformerConfig
from ms_symtensor.serving.closed_loop import Engine, Load, mixed_rate, split_rate
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.strategy import Strategy, why_not
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.common import number_in
from ms_symtensor.validation.readers.served_networks import MOST, Asked, request_of, served_network, stored_as
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = (
    "model", "nodes", "npu_per_node", "dataset", "out_len", "concurrency", "request_rate", "baseline_output_tokens_per_s",
    "mixed", "prefill", "decode",
)  # fmt: skip
_NODES_OF_A2, _SEQS, _BATCHED = 8, 256, 8192
"""A node of Atlas A2 has 8 devices, one of A3 16. vLLM's defaults of --max-num-seqs and --max-num-batched-tokens."""


def _token_s(engines: tuple[Engine, ...], load: Load, request: Request) -> float:
    """Of a device for a generated token, of one engine that does both, or of one for each phase."""
    one, last = engines[0], engines[-1]
    return request.device_num / (
        mixed_rate(request, one, load) if one is last else split_rate(request, one, last, load)
    )


def timing(row: Row) -> Timing:
    """UnusableRowError for a model whose dimensions are not known here, and a data set that does not name a prompt's length."""
    name, data = row.text("model"), row.text("dataset")
    if "310" in name.lower():
        raise UnusableRowError("on Atlas 300I, of which no cluster is known")
    config = served_network(name)
    length = re.search(r"in(\d+)(k|M|)", data)
    if length is None:
        raise UnusableRowError("the data set does not say how long prompts are")
    prompt = int(length[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[length[2]]
    output, concurrency = row.count("out_len"), row.count("concurrency")
    said = [text for text in (row.text("mixed"), row.text("prefill"), row.text("decode")) if text]
    if len(said) not in (1, 2):
        raise UnusableRowError("neither one engine nor one for each phase is described")
    longest = number_in(said[0], r"\blen(\d+)")
    if max(prompt, output, concurrency) > MOST or (longest is not None and prompt > longest):
        raise UnusableRowError("prompts are longer than what the engine takes")
    engines = tuple(engine_of(config, text) for text in said)
    each = row.optional_count("npu_per_node")
    devices = row.count("nodes") * each if each else sum(one.one.device_num for one in engines)
    if len(engines) == 2:
        rest = devices - engines[1].one.device_num
        engines = (replace(engines[0], count=max(1, rest // engines[0].one.device_num)), engines[1])
    cached = 0.0 if "noprefix" in said[0] else min(number_in(data, r"prefix(\d+)") or 0, 100) / 100
    rate = row.optional_number("request_rate") or 0.0
    of_a2 = each == _NODES_OF_A2 or any(re.search(r"\bA2\b", row.cells.get(at, "")) for at in ("name", "source"))
    cluster = "atlas_800t_a2" if of_a2 else "atlas_800t_a3"
    cache = "int8" if name.lower().endswith("c8") else "bfloat16"
    request = request_of(config, cluster, devices, prompt, output, weights=stored_as(name), cache=cache)
    run = Asked(request, partial(_token_s, engines, Load(concurrency, rate, cached)))
    short = name.rpartition("/")[2]
    kind = f"{short} on A2" if of_a2 else short
    return Timing(row.line, kind, cluster, run, devices / row.positive("baseline_output_tokens_per_s"), model=short)


FORM = Form("vllm_ascend_nightly", COLUMNS, timing, has_models=True, has_choices=True)


def engine_of(config: TransformerConfig, text: str) -> Engine:
    """`dp4 tp8 ep seqs16 tokens4096 mtp1 …`: what an engine is started with. UnusableRowError for what cannot be."""
    found = dict(re.findall(r"\b(dp|tp|pp|seqs|tokens|mtp)(\d+)", text))
    dp, tp, pp = (int(found.get(name, 1)) for name in ("dp", "tp", "pp"))
    ep = dp * tp if config.experts is not None and re.search(r"\bep\b", text) else 1
    one = Strategy(pp, dp, tp, ep, tp if config.experts is not None else dp * tp)
    if reason := why_not(config, one):
        raise UnusableRowError(reason)
    return Engine(one, 1, int(found.get("seqs", _SEQS)), int(found.get("tokens", _BATCHED)), int(found.get("mtp", 0)))
