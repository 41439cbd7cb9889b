"""Operators of which counts are made, by their definition: what the count of a loss is at given inputs."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy

from ms_symtensor.tensor.graph import Constant, Graph, InputRef, OpOutput, Source, TensorType, TupleInput, flat

Array = numpy.ndarray
Definition = Callable[..., Any]
"""From an operator's inputs in MindSpore's order, tensors as arrays, to its result."""

_DTYPES = {"bfloat16": "float32", "float16": "float32"}


def value_of(graph: Graph, inputs: Mapping[str, Array]) -> Array:
    """What `graph`, whose operators are all in DEFINITIONS, makes of `inputs` (those that it reads)."""
    known: dict[Source, Array] = {InputRef(name): value for name, value in inputs.items()}
    with numpy.errstate(all="ignore"):  # a count of nothing may be divided by
        for op in graph.ops:
            result = DEFINITIONS[op.type](*(_argument(source, known) for source in op.inputs))
            kind = op.outputs[0]
            known[OpOutput(op.name)] = numpy.asarray(result).astype(_dtype(kind)).reshape(kind.shape)
    return known[graph.output]


def uniform_inputs(graph: Graph, names: tuple[str, ...]) -> Iterator[dict[str, float]]:
    """Numbers that the inputs `names` of `graph` may have in all elements, such as tell apart what it compares: simple first."""
    found = [1.0, 0.0]
    for op in graph.ops:
        for source in flat(op.inputs):
            if (number := number_of(source)) is not None:
                found += [number, number + 1, number - 1]
    yield from (dict(zip(names, chosen, strict=True)) for chosen in product(dict.fromkeys(found), repeat=len(names)))


def filled(kind: TensorType, number: float) -> Array:
    """A tensor of `kind` with one number in all elements."""
    return numpy.full(kind.shape, number).astype(_dtype(kind))


def constant_array(source: Constant) -> Array:
    """The tensor that `source` is."""
    assert source.tensor is not None and source.elements is not None
    elements = numpy.array(source.elements).astype(_dtype(source.tensor))
    whole: Array = numpy.broadcast_to(elements if source.tensor.shape else elements[0], source.tensor.shape)
    return whole


def is_defined(graph: Graph) -> bool:
    """Whether `value_of` knows all operators of `graph`, and what its constants hold."""
    sources = [source for op in graph.ops for source in flat(op.inputs)]
    unknown = any(isinstance(s, Constant) and s.tensor is not None and s.elements is None for s in sources)
    return not unknown and all(op.type in DEFINITIONS and len(op.outputs) == 1 for op in graph.ops)


def _dtype(kind: TensorType) -> str:
    return _DTYPES.get(kind.dtype, kind.dtype)


def _argument(source: Source, known: Mapping[Source, Array]) -> Any:
    if isinstance(source, TupleInput):
        return [_argument(item, known) for item in source.items]
    if isinstance(source, Constant):
        return source.value if source.tensor is None else constant_array(source)
    return known[source]


def number_of(source: Source) -> float | None:
    """The number that a constant is."""
    if not isinstance(source, Constant):
        return None
    if source.tensor is not None:
        return source.elements[0] if source.elements is not None and len(source.elements) == 1 else None
    return float(source.value) if isinstance(source.value, int | float) else None


def _axes(axis: Any) -> tuple[int, ...] | None:
    """What MindSpore's reductions are told: no axis is all of them."""
    return None if axis is None or axis == () else (axis,) if isinstance(axis, int) else tuple(axis)


def _sum(x: Array, axis: Any = None, keep: bool = False, *_: Any) -> Any:
    return numpy.sum(x, axis=_axes(axis), keepdims=bool(keep))


def _mean(x: Array, axis: Any = None, keep: bool = False, *_: Any) -> Any:
    return numpy.mean(x, axis=_axes(axis), keepdims=bool(keep))


def _clamp(x: Array, low: Any, high: Any) -> Array:
    x = x if low is None else numpy.maximum(x, low)
    return x if high is None else numpy.minimum(x, high)


def _scaled_sum(sign: int) -> Definition:
    return lambda x, y, alpha=1: x + sign * alpha * y


def _strided(x: Array, begin: Any, end: Any, strides: Any, *masks: int) -> Any:
    begin_mask, end_mask, _, _, shrink = (*masks, 0, 0, 0, 0, 0)[:5]
    cuts = [
        b if shrink >> d & 1 else slice(None if begin_mask >> d & 1 else b, None if end_mask >> d & 1 else e, step)
        for d, (b, e, step) in enumerate(zip(begin, end, strides, strict=True))
    ]
    return x[tuple(cuts)]


def _slice(x: Array, dim: int, start: int, end: int, step: int) -> Any:
    cuts: list[Any] = [slice(None)] * x.ndim
    cuts[dim] = slice(start, end, step)
    return x[tuple(cuts)]


def _as_it_is(x: Array, *_: Any) -> Array:
    return x


DEFINITIONS: dict[str, Definition] = {
    **dict.fromkeys(("Cast", "Reshape", "ExpandDims", "Squeeze", "Contiguous", "Identity", "View"), _as_it_is),
    **dict.fromkeys(("ReduceSum", "SumExt"), _sum),
    **dict.fromkeys(("ReduceMean", "MeanExt"), _mean),
    **dict.fromkeys(("Add", "Adds", "AddExt"), _scaled_sum(1)),
    **dict.fromkeys(("Sub", "Subs", "SubExt"), _scaled_sum(-1)),
    **dict.fromkeys(("Mul", "Muls"), numpy.multiply),
    **dict.fromkeys(("Div", "RealDiv", "Divs"), numpy.true_divide),
    **dict.fromkeys(("Select", "SelectV2"), numpy.where),
    "Reciprocal": lambda x: 1.0 / x,
    "Neg": numpy.negative,
    "Abs": numpy.abs,
    "Sign": numpy.sign,
    "Maximum": numpy.maximum,
    "Minimum": numpy.minimum,
    "ClampScalar": _clamp,
    "ClampTensor": _clamp,
    "Equal": numpy.equal,
    "NotEqual": numpy.not_equal,
    "Greater": numpy.greater,
    "GreaterEqual": numpy.greater_equal,
    "Less": numpy.less,
    "LessEqual": numpy.less_equal,
    "LogicalAnd": numpy.logical_and,
    "LogicalOr": numpy.logical_or,
    "LogicalNot": numpy.logical_not,
    **dict.fromkeys(("MaskedFill", "MaskedFillScalar"), lambda x, mask, value: numpy.where(mask, value, x)),
    "StridedSlice": _strided,
    "SliceExt": _slice,
    "Gather": lambda table, index, axis=0, *_: numpy.take(table, index, axis, mode="clip"),
    "OnesLike": lambda x, *_: numpy.ones_like(x),
    "ZerosLike": lambda x, *_: numpy.zeros_like(x),
}
