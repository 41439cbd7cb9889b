"""Hyper-connections of DeepSeek-V4 on one rank: what one has of parameters, and what it keeps for the backward pass.

Before each branch of a layer a projection of all streams of a token gives the numbers that mix them; behind it the branch's
output is added to every stream (mindformers/pynative/transformers/hyper_connection.py). All of it is float32.
"""

from ms_symtensor.cost.kernel import Kernel, pass_s, product_float32_s
from ms_symtensor.targets.mindformers_pynative.module import Module, module_of
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

_FP32_B = 4
_PASSES_B = 6 + 8 + 4 + 6 + 4 + 6 + 8 + 4 + 12 + 6
"""Bytes of a number of the streams that a connection reads and writes, by operation: cast, norm, projection, cast, what goes into
the branch; cast, mixture, the branch's output for every stream, their sum, cast (hyper_connection.py).
"""
Dims = tuple[int, ...]


def connection(shape: ModelShape) -> list[Dims]:
    """The parameters of one connection, whose first dim is shared: of a projection its inputs, of scales and biases nothing."""
    streams = shape.streams
    assert streams is not None
    return [(1,), (1,), (1,), (1, streams.weights), (shape.width, streams.weights)]


def collapse(shape: ModelShape) -> list[Dims]:
    """The same of what makes one hidden state of all streams behind the last layer."""
    streams = shape.streams
    assert streams is not None
    return [(1, streams.number), (1,), (shape.width, streams.number)]


def connection_B(shape: ModelShape, part: int) -> int:
    """Bytes that one connection keeps of `part` tokens: all streams four times, the branch's output, and its numbers as each
    iteration leaves them.
    """
    streams = shape.streams
    assert streams is not None
    number, square = streams.number, streams.number**2
    iterations = (2 * streams.iterations - 1) * (number + square)
    numbers = 1 + streams.weights + 4 * number + 2 * square + iterations
    shared = shape.width + streams.weights  # the norm's weights and scales
    return _FP32_B * (part * (4 * shape.width + shape.hidden + numbers) + shared)


def collapse_B(shape: ModelShape, part: int) -> int:
    """Bytes that the last collapse keeps."""
    streams = shape.streams
    assert streams is not None
    return _FP32_B * part * (2 * shape.width + 1 + 4 * streams.number)


def work(shape: ModelShape, part: int) -> Module:
    """Both connections of a layer, of `part` tokens."""
    streams = shape.streams
    assert streams is not None
    size = {"elements": part * streams.weights, "depth": shape.width, "flops": 2, "traffic_B": 0.0}
    projections = Kernel(product_float32_s, size, 2)
    halves = 2 * (2 * streams.iterations - 1)
    iterations = Kernel(pass_s, {"traffic_B": 2.0 * _FP32_B * part * streams.number**2}, 2 * halves)
    flops = 2 * 2.0 * part * shape.width * streams.weights
    inner = Module((projections, iterations), (projections, projections, iterations, iterations), flops)
    return module_of([], [float(part * shape.width * _PASSES_B)] * 2, inner)
