"""What MindSpore's CPU lacks of MindFormers' operators, by definition: for the small networks of a proof, in float32."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, mint, nn, ops

from ms_symtensor.bridge.pynative.on_meta import add_detach


def install() -> None:
    """Put the definitions of functions in their places. Before MindFormers is imported."""
    for name, function in _MINT.items():
        setattr(mint, name, function)
    mint.nn.functional.embedding = lambda ids, table, *_, **__: ops.gather(table, ids.astype(mindspore.int32), 0)
    mint.nn.functional.one_hot = lambda ids, count: Tensor(np.eye(count, dtype=np.int64)[ids.asnumpy()])
    mint.nn.functional.softplus = lambda x: mint.log(1 + mint.exp(x))
    add_detach()
    ops.swiglu, ops.rms_norm = _swiglu, _rms_norm
    mindspore.DeviceCtx = lambda *_, **__: nullcontext()


def install_in_mindformers() -> None:
    """And those of operators that MindFormers refers to by itself."""
    import mindformers.pynative.layers.flash_attention as flash
    import mindformers.pynative.layers.layer_norm as norm
    import mindformers.pynative.transformers.attention as attention
    import mindformers.pynative.transformers.moe.experts as experts
    import mindformers.pynative.transformers.multi_latent_attention as latent
    from mindformers.pynative.base_models.gpt import parallelize

    norm.rms_norm = _rms_norm
    flash.FlashAttentionScore = parallelize.FlashAttentionScore = FlashAttention
    experts.GroupedMatmul = GroupedMatmul
    for module in (attention, latent):
        if hasattr(module, "mstype"):
            module.mstype = _WithoutHalf()


class _WithoutHalf:
    """MindSpore's dtypes, float32 in the place of float16, which attention would fall back to."""

    def __getattr__(self, name: str) -> Any:
        return mindspore.float32 if name == "float16" else getattr(mindspore, name)


class FlashAttention(nn.Cell):
    """Causal attention of BNSD operands."""

    def __init__(self, head_num: int = 1, scale_value: float = 1.0, **_: Any):
        super().__init__()
        self.scale = scale_value

    def construct(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        times = query.shape[1] // key.shape[1]
        if times > 1:
            key, value = mint.repeat_interleave(key, times, 1), mint.repeat_interleave(value, times, 1)
        scores = mint.matmul(query, key.swapaxes(-1, -2)) * self.scale
        length = scores.shape[-1]
        later = Tensor(np.triu(np.full((length, length), -1e9, np.float32), 1))[-scores.shape[-2] :]
        return None, None, None, mint.matmul(mint.nn.functional.softmax(scores + later, -1), value)


class GroupedMatmul:
    """Rows by groups, each times its own weight; the last argument has the groups' ends."""

    def __init__(self, *_: Any, **__: Any):
        pass

    def __call__(self, rows: Any, weights: Any, *rest: Any) -> Any:
        found, begin = [], 0
        for expert, end in enumerate(int(value) for value in rest[-1].asnumpy()):
            if end > begin:
                found.append(mint.matmul(rows[0][begin:end], weights[0][expert]))
            begin = end
        return [mint.cat(found, dim=0)]


def _swiglu(x: Any, dim: int = -1) -> Any:
    gate, up = mint.chunk(x, 2, dim)
    return gate * mint.sigmoid(gate) * up


def _rms_norm(x: Any, weight: Any, eps: float) -> tuple[Any, None]:
    return x * mint.rsqrt(mint.mean(x * x, -1, True) + eps) * weight, None


def _part(x: Any, dim: int, begin: int, end: int) -> Any:
    chosen = [slice(None)] * x.ndim
    chosen[dim] = slice(begin, end)
    return x[tuple(chosen)]


def _split(x: Any = None, sizes: Any = None, dim: int = 0, **named: Any) -> Any:
    x = next(value for value in (x, named.get("tensor"), named.get("input")) if value is not None)
    sizes = named.get("split_size_or_sections") if sizes is None else sizes
    dim %= x.ndim
    sizes = [sizes] * (x.shape[dim] // sizes) if isinstance(sizes, int) else sizes
    ends = np.cumsum(sizes).tolist()
    return tuple(_part(x, dim, end - size, end) for size, end in zip(sizes, ends, strict=True))


def _sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    values = x.asnumpy()
    index = np.argsort(-values if descending else values, axis=dim, kind="stable")
    return Tensor(np.take_along_axis(values, index, dim)), Tensor(index.astype(np.int64))


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    index = np.argsort(-x.asnumpy(), axis=dim, kind="stable").take(range(k), axis=dim)
    chosen = Tensor(index.astype(np.int64))
    return mint.gather(x, dim, chosen), chosen


def _repeat_interleave(x: Any, times: Any, dim: int | None = None, output_size: Any = None) -> Any:
    axis = dim or 0
    numbers = times if isinstance(times, int) else times.asnumpy().astype(np.int64)
    index = np.repeat(np.arange(x.shape[axis]), numbers)
    return ops.gather(x, Tensor(index.astype(np.int32)), axis)


def _arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    values = np.arange(start) if end is None else np.arange(start, end, step)
    return Tensor(values, dtype or (mindspore.int64 if values.dtype.kind == "i" else mindspore.float32))


def _filled(value: float) -> Callable[..., Any]:
    def like(x: Any, dtype: Any = None, **_: Any) -> Any:
        return Tensor(np.full(tuple(x.shape), value, np.float32), dtype or x.dtype)

    return like


def _max(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    if dim is None:
        return _MINT_MAX(x)
    return ops.stop_gradient(Tensor(np.max(x.asnumpy(), axis=dim, keepdims=keepdim))), None


def _roll(x: Any, shifts: int, dims: int) -> Any:
    return mint.cat(
        [_part(x, dims, x.shape[dims] - shifts, x.shape[dims]), _part(x, dims, 0, x.shape[dims] - shifts)], dims
    )


def _scatter_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    values, where = x.asnumpy().copy(), list(np.indices(index.shape))
    where[dim % x.ndim] = index.asnumpy()
    np.add.at(values, tuple(where), source.asnumpy())
    return Tensor(values)


def _floor_divide(a: Any, b: Any) -> Any:
    return Tensor(a.asnumpy() // (b.asnumpy() if hasattr(b, "asnumpy") else b))


def _histc(x: Any, bins: int = 100, min: int = 0, max: int = 0) -> Any:
    return Tensor(np.bincount(x.asnumpy().astype(np.int64).reshape(-1), minlength=bins)[:bins].astype(np.float32))


def _triangle(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, diagonal=0: Tensor(of(x.asnumpy(), diagonal))


_MINT_MAX = mint.max
_MINT: dict[str, Callable[..., Any]] = {
    "index_select": lambda x, dim, index: ops.gather(x, index.astype(mindspore.int32), dim),
    "arange": _arange,
    "full": lambda size, value, dtype=None, **_: Tensor(
        np.full(tuple(size), value, np.float32), dtype or mindspore.float32
    ),
    "ones_like": _filled(1.0),
    "zeros_like": _filled(0.0),
    "outer": lambda a, b: a.reshape(-1, 1) * b.reshape(1, -1),
    "triu": _triangle(np.triu),
    "tril": _triangle(np.tril),
    "sort": _sort,
    "argsort": lambda x, dim=-1, descending=False, stable=False: _sort(x, dim, descending)[1],
    "histc": _histc,
    "cumsum": lambda x, dim, dtype=None: Tensor(np.cumsum(x.asnumpy(), axis=dim), dtype or x.dtype),
    "floor_divide": _floor_divide,
    "repeat_interleave": _repeat_interleave,
    "topk": _topk,
    "split": _split,
    "chunk": lambda x, count, dim=0: _split(x, x.shape[dim] // count, dim),
    "stack": lambda parts, dim=0: mint.cat([ops.expand_dims(part, dim) for part in parts], dim),
    "roll": _roll,
    "max": _max,
    "scatter_add": _scatter_add,
}
"""By name; all but those of layout have no gradient that a network needs."""
