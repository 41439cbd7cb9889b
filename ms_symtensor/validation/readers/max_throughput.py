"""trtllm_max_throughput.csv: the most tokens a second of TensorRT-LLM's in-flight batching, by lengths of prompts and outputs.

FP8 is priced as 8-bit weights and an 8-bit cache. FP4 is priced as 4-bit weights, whose products run in 16 bit here.
"""

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.serving.deployment import MIXED
from ms_symtensor.serving.search import search
from ms_symtensor.serving.strategy import strategies
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.devices import gpu_cluster
from ms_symtensor.validation.readers.served_networks import MOST, Asked, request_of, served_network
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = ("model", "device", "precision", "tp", "pp", "input_len", "output_len", "total_out_tokens_per_s")
PRECISIONS = {"FP8": ("int8", "int8"), "FP4": ("int4", "int8"), "BF16": ("bfloat16", "bfloat16")}
"""Of weights and cache, as TensorRT-LLM's checkpoints of that name have them."""


def timing(row: Row) -> Timing:
    """UnusableRowError for a device without a cluster file, and a network whose dimensions are not known."""
    cluster, name = gpu_cluster(row.text("device")), row.text("model")
    if row.text("precision") not in PRECISIONS:
        raise UnusableRowError(f"precision {row.text('precision')!r} is none of {', '.join(PRECISIONS)}")
    weights, cache = PRECISIONS[row.text("precision")]
    tp, pp, prompt, output = (row.count(column) for column in ("tp", "pp", "input_len", "output_len"))
    if max(tp, pp) > 1 << 10 or max(prompt, output) > MOST:
        raise UnusableRowError("degrees, or lengths, that nobody serves")
    fixed = {"tp": tp, "pp": pp, "dp": 1}
    config, limit_B = served_network(name), int(load(cluster).device.hbm_usable_B)
    try:
        next(strategies(config, tp * pp, fixed))
    except InputError as error:
        raise UnusableRowError(str(error)) from None
    both = {"prefill": fixed, "decode": fixed}
    request = request_of(config, cluster, tp * pp, prompt, output, limit_B, weights=weights, cache=cache, fixed=both)
    # The engine that gives most tokens of all: of a device for a generated token.
    run = Asked(request, lambda of: 1 / search(of, (MIXED,)).best.tokens_per_s_device)
    measured_s = tp * pp / row.positive("total_out_tokens_per_s")
    return Timing(row.line, f"{name}, {row.text('device')}", cluster, run, measured_s, model=name)


FORM = Form("trtllm_max_throughput", COLUMNS, timing, has_models=True)
