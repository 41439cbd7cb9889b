"""The numbers that a proof is made with: seeded parameters and inputs, and every rank's slices of them."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from ms_symtensor.bridge.compiler.compile import ParameterLayout
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, OpOutput, Source, TensorType

SEED = 5
LIFT = 4.5
"""What is added to offsets behind a normalisation, whose scales are 0.75 at most: then a value is six deviations above zero, and
float32 does not decide on which side of a ReLU's kink it lies. One such value changes a sum of N terms by 1 / sqrt(N)."""
_UNKNOWN_BOUND = 2  # of integers that index nothing we know of: flags, mostly


def parameter_value(name: str, kind: TensorType, lifted: bool = False) -> numpy.ndarray:
    """What parameter `name` holds: matrices keep the size of what they multiply, vectors are around 0.5, none is 0.
    Integers, which are multiplied by scales, are -1, 0 or 1.

    `lifted`: above that by LIFT.
    """
    random = _random(name)
    if kind.dtype == "int8":
        return random.integers(-1, 2, kind.shape).astype(numpy.int8)
    if len(kind.shape) < 2:
        return (random.uniform(0.25, 0.75, kind.shape) + LIFT * lifted).astype(numpy.float32)
    value: numpy.ndarray = random.standard_normal(kind.shape) / numpy.sqrt(kind.shape[-1])
    return value.astype(numpy.float32)


def input_values(inputs: Sequence[Any], graph: Graph) -> tuple[numpy.ndarray, ...]:
    """What the inputs hold: the user's own values, or seeded ones for tensors without values.

    `graph` tells up to where integers may go: tokens to the rows of their table, labels to the number of classes.
    """
    bounds = _index_bounds(graph)
    return tuple(
        _input_value(tensor, name, kind, bounds.get(name, _UNKNOWN_BOUND))
        for tensor, (name, kind) in zip(inputs, graph.inputs, strict=True)
    )


def uneven_counts(
    values: Sequence[numpy.ndarray],
    inputs: Sequence[Any],
    graph: Graph,
    none: Mapping[str, float],
    micro_batch_num: int,
) -> tuple[numpy.ndarray, ...]:
    """`values` with which a loss counts nothing in the first micro-batch, and in each further one more of it than before.

    `none`: what the inputs of the count hold where nothing counts. The user's own values, and what indexes, stay.
    """
    names = [name for name, _ in graph.inputs]
    bounds = _index_bounds(graph)
    free = {
        name: none[name]
        for name, tensor in zip(names, inputs, strict=True)
        if name in none and getattr(tensor, "init", None) is not None
        if name not in bounds or 0 <= none[name] < bounds[name]
    }
    if len(free) < len(none):
        return tuple(values)
    return tuple(
        _uneven(name, value, free[name], micro_batch_num) if name in free else value
        for name, value in zip(names, values, strict=True)
    )


def _uneven(name: str, value: numpy.ndarray, number: float, parts: int) -> numpy.ndarray:
    position = numpy.arange(len(value)) * parts // len(value)  # of the micro-batch
    share = (position / parts).reshape(-1, *[1] * (value.ndim - 1))
    drawn = _random(f"{name}, of which some counts").uniform(0.0, 1.0, value.shape)
    return numpy.where(drawn < share, value, numpy.asarray(number)).astype(value.dtype)


def slice_of(value: numpy.ndarray, layout: ParameterLayout | None, rank: int) -> numpy.ndarray:
    """What `rank` holds of the whole `value`; without a layout, all of it."""
    if layout is None:
        return value
    for dim, cut in enumerate(layout.layout.cuts):
        if cut > 1:
            axis = layout.layout.tensor_map[dim]
            stride = int(numpy.prod(layout.layout.device_matrix[len(layout.layout.device_matrix) - axis :], dtype=int))
            value = numpy.split(value, cut, dim)[rank // stride % cut]
    if layout.optimizer_shard_ranks:
        ranks = layout.optimizer_shard_ranks
        value = numpy.split(value, len(ranks), 0)[ranks.index(rank)]
    return value


def _input_value(tensor: Any, name: str, kind: TensorType, bound: int) -> numpy.ndarray:
    if getattr(tensor, "init", None) is None:
        given: numpy.ndarray = tensor.asnumpy() if "bfloat16" not in kind.dtype else tensor.float().asnumpy()
        return given.astype(numpy.float32) if "float" in kind.dtype else given
    random = _random(name)
    if "float" in kind.dtype:  # positive, so that it can be a mask or a weight too, whose sum divides
        return random.uniform(0.0, 1.0, kind.shape).astype(numpy.float32)
    if kind.dtype == "bool":
        return random.integers(0, 2, kind.shape).astype(bool)
    return random.integers(0, bound, kind.shape).astype(kind.dtype)


def _index_bounds(graph: Graph) -> Mapping[str, int]:
    """For inputs that index something: the number of what they index."""
    origin: dict[Source, str] = {InputRef(name): name for name, _ in graph.inputs}
    bounds: dict[str, int] = {}
    for op in graph.ops:
        tensors = graph.tensor_inputs(op)
        if op.type == "Gather" and tensors[1] in origin:
            axis = op.inputs[2].value if isinstance(op.inputs[2], Constant) else 0
            kind = graph.type_of(tensors[0])
            if kind is not None and isinstance(axis, int):
                name = origin[tensors[1]]
                bounds[name] = min(bounds.get(name, kind.shape[axis]), kind.shape[axis])
        elif op.type == "OneHot" and tensors[0] in origin:
            depth = op.inputs[1].value if isinstance(op.inputs[1], Constant) else None
            if isinstance(depth, int):
                bounds[origin[tensors[0]]] = min(bounds.get(origin[tensors[0]], depth), depth)
        elif len(tensors) == 1 and tensors[0] in origin:
            origin[OpOutput(op.name)] = origin[tensors[0]]
    return bounds


def _random(name: str) -> numpy.random.Generator:
    return numpy.random.default_rng([SEED, zlib.crc32(name.encode())])
