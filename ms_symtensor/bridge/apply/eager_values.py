"""What functions of `mint` give where MindSpore's CPU has no kernel for them, by numpy: constructors make constants of them.

Each takes what the `__call__` of MindSpore's primitive of that name takes (2.7 to 2.10). Values stay on the host; random ones are
the same at every call of a factory. They import mindspore at once: reached through `constructing` only.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor

BFLOAT16 = mindspore.bfloat16


def values(tensor: Any) -> Any:
    """The numbers of a tensor, or what is no tensor as it is."""
    if not isinstance(tensor, Tensor):
        return tensor
    return (tensor.astype(mindspore.float32) if tensor.dtype == BFLOAT16 else tensor).asnumpy()


def made(array: Any, dtype: Any = None) -> Tensor:
    """A tensor of `array`, of MindSpore's `dtype` or its own; what numpy made of 64 bit on its own is of 32."""
    array = np.ascontiguousarray(array)
    if dtype is None:
        return Tensor(array.astype(np.float32) if array.dtype == np.float64 else array)
    return Tensor(array.astype(np.float32), dtype) if dtype == BFLOAT16 else Tensor(array, dtype)


def _like(found: Any, tensor: Any, dtype: Any = None) -> Tensor:
    return made(found, dtype or tensor.dtype)


def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


def _arange(start: Any, end: Any, step: Any, dtype: Any = None) -> Tensor:
    return made(np.arange(values(start), values(end), values(step)), dtype)


def _full(size: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    return made(np.full(size, values(fill_value)), dtype)


def _linspace(start: Any, end: Any, steps: Any, dtype: Any = None) -> Tensor:
    return made(np.linspace(values(start), values(end), int(values(steps)), dtype=np.float32), dtype)


def _stack(tensors: Any, dim: int) -> Tensor:
    return _like(np.stack([values(one) for one in tensors], dim), tensors[0])


def _cumsum(input: Any, dim: int, dtype: Any = None) -> Tensor:
    return _like(np.cumsum(values(input), dim), input, dtype)


def _repeated(input: Any, repeats: Any, dim: Any = None, output_size: Any = None) -> Tensor:
    return _like(np.repeat(values(input), values(repeats), dim), input)


def _padded(input: Any, padding: Any, value: Any = 0.0) -> Tensor:
    pairs = [tuple(padding[i : i + 2]) for i in range(0, len(padding), 2)]
    widths = [(0, 0)] * (input.ndim - len(pairs)) + pairs[::-1]
    inside = [(max(0, a), max(0, b)) for a, b in widths]
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(widths, input.shape, strict=True))
    return _like(np.pad(values(input)[cut], inside, constant_values=value), input)


def _diagonal(input: Any, diagonal: int = 0) -> Tensor:
    return _like(np.diag(values(input), diagonal), input)


def _indexed(input: Any, dim: int, index: Any) -> Tensor:
    return _like(np.take(values(input), values(index), dim), input)


def _rolled(input: Any, shifts: Any, dims: Any) -> Tensor:
    return _like(np.roll(values(input), shifts, _axes(dims) or None), input)


def _one_hot(tensor: Any, num_classes: int, on_value: Any, off_value: Any, axis: int) -> Tensor:
    given = values(tensor)
    number = num_classes if num_classes >= 0 else int(given.max()) + 1
    hot = given[..., None] == np.arange(number)
    return _like(np.moveaxis(np.where(hot, values(on_value), values(off_value)), -1, axis), on_value)


def _sorted(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Tensor, Tensor]:
    given = values(input)
    order = np.argsort(-given if descending else given, dim, kind="stable")
    return _like(np.take_along_axis(given, order, dim), input), made(order, mindspore.int64)


def _top(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, ...]:
    found = [values(one) for one in _sorted(input, dim, largest)]
    return _like(found[0].take(range(k), dim), input), made(found[1].take(range(k), dim), mindspore.int64)


def _place(of: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda input, dim=None, keepdim=False: made(of(values(input), dim, keepdims=keepdim), mindspore.int64)


def _norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    given = values(x)
    found = np.linalg.norm(given.ravel() if dim is None else given, ord, _axes(dim), keepdim and dim is not None)
    return _like(found.reshape((1,) * x.ndim) if keepdim and dim is None else found, x, dtype)


def _spread(of: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda input, dim=None, correction=1, keepdim=False: _like(
        of(values(input), _axes(dim) or None, ddof=correction, keepdims=keepdim), input
    )


def _log_sum_exp(input: Any, dim: Any, keepdim: bool = False) -> Tensor:
    return _like(np.log(np.sum(np.exp(values(input)), _axes(dim), keepdims=keepdim)), input)


def _in_floats(of: Callable[[Any], Any]) -> Callable[..., Tensor]:
    """`of` the numbers, which of whole numbers are float32: CPU's kernels take none."""

    def found(input: Any) -> Tensor:
        numbers = values(input)
        return _like(of(numbers), input, None if numbers.dtype.kind == "f" else mindspore.float32)

    return found


_OF_FLOATS: dict[str, Callable[[Any], Any]] = {
    "Exp": np.exp, "Expm1": np.expm1, "Log": np.log, "Log1p": np.log1p, "Log2": np.log2, "Log10": np.log10, "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x), "Reciprocal": lambda x: 1 / x, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan,
    "Tanh": np.tanh,
}  # fmt: skip


class Eager:
    """The functions, with random numbers that begin anew."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the name of the primitive."""
        return {
            **{name: _in_floats(of) for name, of in _OF_FLOATS.items()},
            "Arange": _arange,
            "FillScalar": _full,
            "FillTensor": _full,
            "LinSpaceExt": _linspace,
            "StackExt": _stack,
            "TrilExt": lambda input, diagonal=0: _like(np.tril(values(input), diagonal), input),
            "Outer": lambda input, vec2: _like(np.outer(values(input), values(vec2)), input),
            "CumsumExt": _cumsum,
            "RepeatInterleaveInt": _repeated,
            "RepeatInterleaveTensor": _repeated,
            "ZerosLikeExt": lambda input, dtype=None: _like(np.zeros(input.shape, np.float32), input, dtype),
            "OnesLikeExt": lambda input, dtype=None: _like(np.ones(input.shape, np.float32), input, dtype),
            "FullLike": lambda input, fill_value, dtype=None: _like(np.full(input.shape, fill_value), input, dtype),
            "Atan2Ext": lambda input, other: _like(np.arctan2(values(input), values(other)), input),
            "AsinExt": lambda input: _like(np.arcsin(values(input)), input),
            "ConstantPadND": _padded,
            "DiagExt": _diagonal,
            "IndexSelect": _indexed,
            "Roll": _rolled,
            "OneHotExt": _one_hot,
            "SortExt": _sorted,
            "ArgSort": lambda *arguments, **named: _sorted(*arguments, **named)[1],
            "TopkExt": _top,
            "ArgMaxExt": _place(np.argmax),
            "ArgMinExt": _place(np.argmin),
            "LinalgVectorNorm": _norm,
            "Std": _spread(np.std),
            "Var": _spread(np.var),
            "LogSumExp": _log_sum_exp,
            "TraceExt": lambda input: _like(np.trace(values(input)), input),
            "MatrixInverseExt": lambda input: _like(np.linalg.inv(values(input)), input),
            "Dot": lambda input, other: _like(np.dot(values(input), values(other)), input),
            "EqualExt": lambda input, other: bool(np.array_equal(values(input), values(other))),
            "CountNonZero": lambda input, dim=None: made(np.count_nonzero(values(input), _axes(dim)), mindspore.int64),
            "NormalFloatFloat": lambda mean, std, size, *_: self._normal(mean, std, size),
            "NormalFloatTensor": lambda mean, std, *_: self._normal(mean, std, std.shape),
            "NormalTensorFloat": lambda mean, std, *_: self._normal(mean, std, mean.shape),
            "NormalTensorTensor": lambda mean, std, *_: self._normal(mean, std, mean.shape),
            "Randn": lambda shape, *_, dtype=None, **__: self._normal(0.0, 1.0, shape, dtype),
            "RandnLike": lambda input, *_, dtype=None, **__: self._normal(0.0, 1.0, input.shape, dtype or input.dtype),
            "RandExt": lambda shape, *_, dtype=None, **__: made(self._random.random(shape), dtype),
            "RandLikeExt": lambda tensor, *_, dtype=None, **__: _like(self._random.random(tensor.shape), tensor, dtype),
            "RandInt": lambda low, high, shape, *_, dtype=None, **__: made(
                self._random.integers(low, high, shape), dtype
            ),
            "RandIntLike": lambda input, low, high, *_, dtype=None, **__: _like(
                self._random.integers(low, high, input.shape), input, dtype
            ),
            "RandpermExt": lambda n, *_, dtype=mindspore.int64, **__: made(self._random.permutation(n), dtype),
            "InplaceZero": lambda input: _set(input, lambda: np.zeros(input.shape, np.float32)),
            "InplaceFillScalar": lambda input, value: _set(input, lambda: np.full(input.shape, value)),
            "InplaceNormal": lambda input, mean, std, *_: _set(
                input, lambda: self._random.normal(values(mean), values(std), input.shape)
            ),
            "InplaceUniform": lambda input, from_, to, *_: _set(
                input, lambda: self._random.uniform(values(from_), values(to), input.shape)
            ),
            "InplaceErfinv": lambda input: _set(input, lambda: _inverse_erf(values(input))),
            "InplaceClampScalar": lambda input, min=None, max=None: _set(
                input, lambda: np.clip(values(input), min, max)
            ),
            "InplaceMaskedFillScalar": lambda input, mask, value: _set(
                input, lambda: np.where(values(mask), value, values(input))
            ),
            "Clone": lambda input: _like(values(input), input),
            "Repeat": _tiled,
            "NewFull": lambda input, size, fill_value, *, dtype=None: _like(np.full(size, fill_value), input, dtype),
        }

    def _normal(self, mean: Any, std: Any, shape: Any, dtype: Any = None) -> Tensor:
        return made(self._random.normal(values(mean), values(std), shape), dtype)


def _tiled(input: Any, *repeats: Any) -> Tensor:
    times = repeats[0] if len(repeats) == 1 and not isinstance(repeats[0], int) else repeats
    return _like(np.tile(values(input), times), input)


def _inverse_erf(numbers: Any) -> Any:
    inverse = NormalDist().inv_cdf
    return np.vectorize(lambda y: inverse((y + 1) / 2) / 2**0.5 if -1 < y < 1 else np.copysign(np.inf, y))(numbers)


def _set(tensor: Any, numbers: Callable[[], Any]) -> Any:
    """`tensor` with other numbers; one without any, as a parameter of a network that is not initialised, is left so."""
    if not tensor.has_init:
        tensor.assign_value(_like(numbers(), tensor))
    return tensor


METHODS = {
    "clone": "Clone", "zero_": "InplaceZero", "fill_": "InplaceFillScalar", "masked_fill_": "InplaceMaskedFillScalar",
    "repeat": "Repeat", "new_full": "NewFull",
}  # fmt: skip
"""Methods of Tensor that do not go through the `__call__` of their primitive."""
