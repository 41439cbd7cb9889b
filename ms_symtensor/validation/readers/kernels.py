"""ascend_kernels.csv: published times of single kernels on Ascend, each with its shape."""

import json
from typing import Any

from ms_symtensor.cost.kernel import Kernel, pass_s
from ms_symtensor.cost.operator import kernels_of
from ms_symtensor.ops.signature import OpView
from ms_symtensor.tensor.graph import TensorType
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.devices import named_cluster
from ms_symtensor.validation.table import LARGEST_COUNT, Row
from ms_symtensor.validation.timings import Timing

COLUMNS = ("device", "operator", "kind", "shape", "dtype", "direction", "time_us", "floor_us", "method", "dims")
LARGE_FLOP, LARGE_B = 1e10, 9e7
ONE_INPUT = {"SiLU": "SiLU", "GELU": "GeLU", "Softmax": "Softmax", "Exp": "Exp", "Sigmoid": "Sigmoid", "Tanh": "Tanh"}
TWO_INPUTS = {"Add": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "RealDiv"}
PRECISIONS = {"float16": "16 bit", "bfloat16": "16 bit", "float32": "float32"}
STATISTICS = 8
"""Lanes of float32 that FlashAttentionScore writes for the maximum and the sum of every row."""


def timing(row: Row) -> Timing:
    """UnusableRowError for a kernel without its shape, a backward pass, or a chip that no cluster file describes."""
    cluster = named_cluster(row.text("device"))
    if row.text("direction") != "forward":
        raise UnusableRowError(f"direction {row.text('direction')}: only forward passes have a formula by themselves")
    dims = _Dims(row)
    if not dims.values or row.text("time_us").lower() in ("", "nan"):
        raise UnusableRowError("no shape and time, but a rate or words")
    if row.text("dtype") not in PRECISIONS:
        raise UnusableRowError(f"element type {row.text('dtype') or 'not given'} has no formula")
    kind, kernels = _kernels(row, dims)
    time_s, floor_s = row.positive("time_us") * 1e-6, (row.optional_number("floor_us") or 0.0) * 1e-6
    if floor_s >= time_s:
        raise row.malformed("floor_us", "is not below time_us")
    return Timing(row.line, kind, cluster, kernels, time_s, floor_s, "synchronised" in row.text("method"))


FORM = Form("ascend_kernels", COLUMNS, timing)


class _Dims:
    """The cell `dims`: sizes by name, and few other entries."""

    def __init__(self, row: Row) -> None:
        self.row = row
        try:
            found = json.loads(row.text("dims") or "{}")
        except (ValueError, RecursionError):
            raise row.malformed("dims", "is no JSON") from None
        if not isinstance(found, dict):
            raise row.malformed("dims", "is no mapping of names to sizes")
        self.values: dict[str, Any] = found

    def size(self, name: str, otherwise: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.values.get(name, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_COUNT:
            raise self.row.malformed("dims", f"has no size {name!r} of at least 1")
        return value


def _kernels(row: Row, dims: _Dims) -> tuple[str, tuple[Kernel, ...]]:
    """The kind that the row is judged with, and its kernels."""
    dtype = row.text("dtype")
    match row.text("kind"):
        case "matmul" | "batch_matmul":
            return _product(dims, dtype)
        case "grouped_matmul":
            return "grouped product", kernels_of(_grouped(dims, dtype))[0]
        case "attention":
            return "attention", kernels_of(_attention(dims, dtype))[0]
        case "vector":
            return _over_memory(row, dims, dtype)
    raise UnusableRowError(f"kind {row.text('kind') or 'not given'} has no formula")


def _product(dims: _Dims, dtype: str) -> tuple[str, tuple[Kernel, ...]]:
    b, m, k, n = dims.size("b", 1), dims.size("m"), dims.size("k"), dims.size("n")
    batch = (b,) if b > 1 else ()
    result = dims.values.get("out_dt", dtype)
    inputs = (TensorType((*batch, m, k), dtype), TensorType((*batch, k, n), dtype))
    outputs = (TensorType((*batch, m, n), result if result in PRECISIONS else dtype),)
    kernels, flops = kernels_of(
        OpView("BatchMatMul" if batch else "MatMul", "product", inputs, outputs, (False, False), {})
    )
    size = "10 GFLOP and more" if flops >= LARGE_FLOP else "below 10 GFLOP"
    return f"{'product of heads' if batch else 'product'}, {PRECISIONS[dtype]}, {size}", kernels


def _grouped(dims: _Dims, dtype: str) -> OpView:
    m, k, n, experts = (dims.size(name) for name in ("m", "k", "n", "experts"))
    inputs = (TensorType((m, k), dtype), TensorType((experts, k, n), dtype), TensorType((experts,), "int64"))
    return OpView("GroupedMatmul", "experts", inputs, (TensorType((m, n), dtype),), (), {})


def _attention(dims: _Dims, dtype: str) -> OpView:
    b, h, rows, keys, d = (dims.size(name) for name in ("b", "h", "sq", "sk", "d"))
    key_heads = dims.size("kvh", h)
    if h % key_heads:
        raise dims.row.malformed("dims", f"has {h} heads, which do not divide by {key_heads} key-value heads")
    query, key = TensorType((b, h, rows, d), dtype), TensorType((b, key_heads, keys, d), dtype)
    statistics = TensorType((b, h, rows, STATISTICS), "float32")
    outputs = (statistics, statistics, TensorType((1,), dtype), query)
    causal = 2 if dims.values.get("causal") else 0
    options = (*(None,) * 7, h, 1.0, d**-0.5, 2147483647, 2147483647, 0, "BNSD", causal)
    return OpView("FlashAttentionScore", "attention", (query, key, key), outputs, options, {}, (0, 1, 2))


def _over_memory(row: Row, dims: _Dims, dtype: str) -> tuple[str, tuple[Kernel, ...]]:
    """Element by element or along rows. What is not named above, or has other bytes than tensors of its shape, takes a pass over
    its bytes.
    """
    traffic_B, name = dims.size("bytes"), row.text("operator")
    kind = f"pass over memory, {'90 MB and more' if traffic_B >= LARGE_B else 'below 90 MB'}"
    shape = row.text("shape").split(",")
    inputs = 1 if name in ONE_INPUT else 2
    if name in (*ONE_INPUT, *TWO_INPUTS) and all(size.strip().isdecimal() for size in shape):
        tensor = TensorType(tuple(map(int, shape)), dtype)
        if tensor.size_B * (inputs + 1) == traffic_B:
            known = ONE_INPUT.get(name) or TWO_INPUTS[name]
            axis = (-1,) if known == "Softmax" else ()
            return kind, kernels_of(OpView(known, "pass", (tensor,) * inputs, (tensor,), axis, {}))[0]
    return kind, (Kernel(pass_s, {"traffic_B": float(traffic_B)}),)
