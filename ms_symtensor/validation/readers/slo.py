"""sglang_ascend_slo.csv: limits of the time per token that SGLang's best practices keep on Ascend, by model and lengths.

They say neither batches nor degrees: what is predicted is the least time per token of one request that any strategy reaches.
"""

import re

import numpy as np

from ms_symtensor.cluster.load import load
from ms_symtensor.serving.layer import Step
from ms_symtensor.serving.phases import most_requests, passes_of
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.strategy import strategies
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.devices import cluster_of
from ms_symtensor.validation.readers.served_networks import Asked, request_of, served_network, stored_as
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = ("model", "hardware", "cards", "deployment", "lengths", "tpot_ms", "precision")
DIES = {"atlas_800t_a3": 2}
"""Devices of a card: the 910C has two dies, and each is a device."""
_MOST_CARDS = 1 << 12


def _least_s(request: Request) -> float:
    """A decode step of one request, under the fastest strategy that has room for it. UnusableRowError where none has."""
    one = np.array([1.0])
    keys = request.tokens.input + request.tokens.output / 2
    times = [
        float(passes_of(request, cut, Step(one, one, keys, is_decode=True), one).pass_s[0])
        for cut in strategies(request.config, request.device_num, {"dp": 1})
        if most_requests(request, cut)
    ]
    if not times:
        raise UnusableRowError(f"{request.config.name} does not fit {request.device_num} devices")
    return min(times)


def timing(row: Row) -> Timing:
    """UnusableRowError for a network whose dimensions are not known."""
    name, cards = row.text("model"), row.count("cards")
    lengths = re.fullmatch(r"([\d.]+)K\+([\d.]+)K", row.text("lengths"))
    if lengths is None:
        raise UnusableRowError("lengths are not such as 3.5K+1.5K, of prompts and outputs")
    if cards > _MOST_CARDS:
        raise row.malformed("cards", f"is above {_MOST_CARDS}")
    known = cluster_of(row.text("hardware"))
    prompt, output = (max(1, round(float(text) * 1000)) for text in lengths.groups())
    limit_B, devices = int(load(known).device.hbm_usable_B), cards * DIES.get(known, 1)
    weights = stored_as(row.text("precision"))
    request = request_of(served_network(name), known, devices, prompt, output, limit_B, weights=weights)
    limit_ms = row.positive("tpot_ms")
    kind = f"limit of {'at most' if limit_ms <= LOW_MS else 'more than'} {LOW_MS} ms"
    return Timing(row.line, kind, known, Asked(request, _least_s), limit_ms * 1e-3, is_limit=True)


LOW_MS = 20
"""SGLang's guide divides its pages so: low latency there, high throughput above."""
FORM = Form("sglang_ascend_slo", COLUMNS, timing)
