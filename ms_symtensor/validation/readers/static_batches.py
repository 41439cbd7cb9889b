"""trtllm_static_batch.csv: static batches of TensorRT-LLM on GPUs: tokens a second, and the time to the first token.

FP8 is priced as 8-bit weights and an 8-bit cache: products run as fast, and as many bytes are read.
"""

from ms_symtensor.serving.phases import batch_s
from ms_symtensor.serving.strategy import Strategy, why_not
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.devices import gpu_cluster
from ms_symtensor.validation.readers.published import published_model
from ms_symtensor.validation.readers.served_networks import MOST, Asked, dense_network, request_of
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = ("device", "model", "batch", "tp", "input_len", "output_len", "metric", "value")
_RATE, _FIRST = "out_tokens_per_s_per_gpu", "first_token_ms"


def timing(row: Row) -> Timing:
    """UnusableRowError for a model whose dimensions are not known, and mixtures of experts."""
    words, name, metric = row.text("device"), row.text("model"), row.text("metric")
    cluster = gpu_cluster(words)
    requests, tp, prompt, output = (row.count(column) for column in ("batch", "tp", "input_len", "output_len"))
    if max(requests, tp, prompt, output) > MOST:
        raise UnusableRowError("a batch, or lengths, that nobody serves")
    config = dense_network(published_model(name), name)
    strategy = Strategy(tp=tp, ffn_tp=tp)
    if reason := why_not(config, strategy):
        raise UnusableRowError(reason)
    dtype = "int8" if "FP8" in words else "bfloat16"
    request = request_of(config, cluster, tp, prompt, output, weights=dtype, cache=dtype)
    run = Asked(request, lambda of: batch_s(of, strategy, requests))
    value = row.positive("value")
    if metric == _RATE:
        return Timing(row.line, "batch to its last token", cluster, run, requests * output / (value * tp), model=name)
    if metric == _FIRST:
        return Timing(row.line, "first token", cluster, run, value * 1e-3, model=name)
    raise UnusableRowError(f"metric {metric or 'not given'} is not predicted")


FORM = Form("static_batches", COLUMNS, timing, has_models=True)
