"""cloudmatrix384.csv: tokens a second of DeepSeek-R1 in 8 bits on CloudMatrix384, by phase (arXiv 2506.12708).

An NPU there is a package of two dies, and a die is a device here. Prefill lies on 32 dies, decode on 320, all for experts, as the
paper has them; a decode step verifies one guessed token.
"""

from dataclasses import replace

import numpy as np

from ms_symtensor.serving.layer import Array, Step
from ms_symtensor.serving.phases import passes_of
from ms_symtensor.serving.strategy import Strategy
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.common import number_in
from ms_symtensor.validation.readers.served_networks import Asked, request_of, served_network
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = ("system", "accelerator", "phase", "setting", "metric", "value", "unit")
CLUSTER, DIES = "cloudmatrix384", 2
EXPERT_DEVICES = {"prefill": 32, "decode": 320}
"""Of an instance: sections 4.2 and 4.3 of the paper (16 and 160 NPUs)."""
ACCEPTED = 0.7
"""Of guessed tokens, as the paper takes it (and the row with EP320 says)."""
_MOST = 1 << 20


def timing(row: Row) -> Timing:
    """UnusableRowError for other accelerators, gains, and times of parts."""
    phase, setting = row.text("phase"), row.text("setting")
    if "910C" not in row.text("accelerator"):
        raise UnusableRowError("does not say on how many devices: no cluster stands for it")
    if phase not in EXPERT_DEVICES or not row.text("metric").startswith("throughput"):
        raise UnusableRowError(f"{row.text('metric')} of {phase} is not predicted")
    keys = (number_in(setting, r"(?:KV )?(\d+)K\b") or 4) << 10
    devices = number_in(setting, r"\bEP(\d+)") or EXPERT_DEVICES[phase]
    each = number_in(setting, r"([\d,]+) tokens a device" if phase == "prefill" else r"\bbatch (\d+)")
    if each is None or max(keys, each, devices) > _MOST:
        raise UnusableRowError("does not say how many tokens, or requests, an NPU has")
    config = served_network("deepseek-r1")
    if "perfect EPLB" in row.text("system") and config.experts is not None:
        config = replace(config, experts=replace(config.experts, load_imbalance=1.0))
    one = Strategy(dp=devices, ep=devices)
    count: Array = np.array([each / DIES], dtype=np.float64)
    if phase == "prefill":
        step, gained = Step(count, count / keys, keys / 2, is_decode=False), each / DIES
    else:
        step, gained = Step(2 * count, count, keys, is_decode=True), each / DIES * (1 + ACCEPTED)
    request = request_of(config, CLUSTER, devices, keys, 1, weights="int8")
    # A pass of the phase on a die: of an NPU for a token.
    run = Asked(request, lambda of: float(passes_of(of, one, step, step.requests).pass_s[0]) / (gained * DIES))
    return Timing(row.line, phase, CLUSTER, run, 1 / row.positive("value"))


FORM = Form("cloudmatrix384", COLUMNS, timing)
