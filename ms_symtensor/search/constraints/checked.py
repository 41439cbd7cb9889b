"""Arguments of the interface in Python: what they must be, alone and beside a graph, or an InputError of one line."""

import math
import os
from collections.abc import Mapping
from numbers import Integral

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph, InputRef, OpOutput, Source

_IN_ORDER = frozenset({"Cast", "ExpandDims", "PadV3", "MirrorPad", "Reshape"})

MOST_SAMPLES = 1 << 34
"""Of a step: as many as the zoo takes tokens. Looking for their divisors takes milliseconds (empirical)."""


def whole_number(name: str, value: object) -> int:
    """The positive whole number `value`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} is {value!r}: give a positive whole number")
    return int(value)


def memory_B(name: str, value: object) -> int:
    """The number of bytes `value`, above 0; parts of a byte are left out."""
    if isinstance(value, bool) or not isinstance(value, Integral | float) or not 1 <= float(value) < math.inf:
        raise InputError(f"{name} is {value!r}: give a number of bytes above 0, e.g. 56 * 2**30")
    return int(value)


def place(name: str, value: object) -> str:
    """The path, or name, `value`."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} is {value!r}: give a name or a path")
    return os.fspath(value)


def named(name: str, value: object) -> Mapping[str, object]:
    """The mapping `value` of names to what is wanted of them."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f'{name} is {value!r}: give a mapping of names, e.g. {{"model_parallel": 8}}')
    return value


def batch_and_sequence(graph: Graph) -> tuple[int, int]:
    """The first dim of the first input, and the second where that is tokens: of ids, and of one vector for each, which no
    convolution takes for channels; else 1.
    """
    if not graph.inputs:
        return 1, 1
    name, first = graph.inputs[0]
    is_vectors = len(first.shape) == 3 and not _is_convolved(graph, InputRef(name))
    has_tokens = is_vectors or (len(first.shape) == 2 and "int" in first.dtype)
    return first.shape[0] if first.shape else 1, first.shape[1] if has_tokens else 1


def _is_convolved(graph: Graph, source: Source) -> bool:
    """Whether a convolution reads `source`, in which channels come second, or what has its dims in the same order."""
    return any(
        user.type.startswith("Conv") or (user.type in _IN_ORDER and _is_convolved(graph, OpOutput(user.name)))
        for user, _ in graph.users.get(source, ())
    )


def require_size_of(graph: Graph, global_batch_size: int, seq_length: int) -> None:
    """InputError where the inputs of `graph` cannot be `global_batch_size` samples of `seq_length` tokens.

    What is certain: where all inputs have the same first dim, it is the samples, or the samples times something (tokens, views),
    unless these are another dim; where all have one shape of two dims, and one is of whole numbers, it is [samples, tokens], and
    a sample has no more tokens. Scalars say nothing.
    """
    shapes = {tensor.shape for _, tensor in graph.inputs if tensor.shape}
    firsts = {shape[0] for shape in shapes}
    if len(firsts) == 1:
        (first,) = firsts
        if first % global_batch_size and not any(global_batch_size in shape for shape in shapes):
            raise InputError(
                f"global_batch_size is {global_batch_size}, but the inputs of {graph.name} have {first} samples: give that, or"
                " capture the network with the whole batch"
            )
    if len(shapes) == 1 and any("int" in tensor.dtype for _, tensor in graph.inputs):
        (shape,) = shapes
        if len(shape) == 2 and shape[1] < seq_length:
            raise InputError(
                f"seq_length is {seq_length}, but the inputs of {graph.name} have {shape[1]} tokens a sample: give that, or"
                " capture the network with longer sequences"
            )
