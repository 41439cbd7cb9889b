"""vidur_operator_times.csv: times of a decoder layer's operators on GPUs, by model, tensor parallelism and number of tokens."""

from ms_symtensor.cost.kernel import Kernel, pass_s, product_s
from ms_symtensor.errors import InputError
from ms_symtensor.validation.dataset import Form
from ms_symtensor.validation.readers.devices import gpu_cluster
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = (
    "device", "model", "tp", "num_tokens", "hidden", "heads", "kv_heads", "ffn", "gated", "input_layernorm_ms",
    "attn_pre_proj_ms", "attn_rope_ms", "attn_post_proj_ms", "post_attention_layernorm_ms", "mlp_up_proj_ms", "mlp_act_ms",
    "mlp_down_proj_ms", "add_ms",
)  # fmt: skip
_ELEMENT_B = 2
_CORES = {"a100_80g": 108, "h100_80g": 132, "b200": 148}
"""Multiprocessors (NVIDIA's white papers). Norms, rotation and activation have a block of threads for each token (csrc of
vLLM and Sarathi), so that fewer tokens than cores take as long as one for each. A norm reads its row twice (rms_norm_kernel).
"""
_PASSES = "norms, rotation, activation, sum"


def timings(row: Row) -> tuple[Timing, ...]:
    """Each product, and together the passes over memory, where all of them have a time."""
    cluster = gpu_cluster(row.text("device"))
    tp, tokens, hidden, heads = (row.count(name) for name in ("tp", "num_tokens", "hidden", "heads"))
    kv_heads, ffn = row.count("kv_heads"), row.count("ffn")
    if hidden % heads or heads % tp or ffn % tp:
        raise row.malformed("tp", "does not divide the heads and the feed-forward")
    head = hidden // heads
    queries, keys = heads // tp * head, max(kv_heads // tp, 1) * head
    width = ffn // tp
    up = 2 * width if _gated(row) else width
    products = {
        "attn_pre_proj_ms": _product(tokens, queries + 2 * keys, hidden),
        "attn_post_proj_ms": _product(tokens, hidden, queries),
        "mlp_up_proj_ms": _product(tokens, up, hidden),
        "mlp_down_proj_ms": _product(tokens, hidden, width),
    }
    found = [
        Timing(
            row.line, name.removesuffix("_ms"), cluster, (kernel,), row.positive(name) * 1e-3, model=row.text("model")
        )
        for name, kernel in products.items()
        if row.optional_number(name)
    ]
    rows = max(tokens, _CORES[cluster])
    passes = {
        "input_layernorm_ms": 3 * rows * hidden,
        "post_attention_layernorm_ms": 3 * rows * hidden,
        "attn_rope_ms": 2 * rows * (queries + keys),
        "mlp_act_ms": rows * (up + width),
        "add_ms": 3 * tokens * hidden,
    }
    if all(row.optional_number(name) for name in passes):
        kernels = tuple(Kernel(pass_s, {"traffic_B": float(n * _ELEMENT_B)}) for n in passes.values())
        time_s = sum(row.positive(name) for name in passes) * 1e-3
        found.append(Timing(row.line, _PASSES, cluster, kernels, time_s, model=row.text("model")))
    if not found:
        raise InputError(
            f"{row.table}: row {row.line}, column {next(iter(products))}: has no time, nor have the others"
        )
    return tuple(found)


FORM = Form("vidur_operators", COLUMNS, timings, has_models=True)


def _gated(row: Row) -> bool:
    text = row.text("gated").lower()
    if text not in ("true", "false"):
        raise row.malformed("gated", "is neither True nor False")
    return text == "true"


def _product(rows: int, columns: int, depth: int) -> Kernel:
    traffic_B = _ELEMENT_B * (rows * columns + rows * depth + columns * depth)
    arguments = {"elements": float(rows * columns), "depth": float(depth), "flops": 2.0, "traffic_B": float(traffic_B)}
    return Kernel(product_s, arguments)
