"""Batch and sequence that are asked for, beside those that a graph's inputs show."""

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph

IMAGE_DIMS = 4
"""An input of so many dims, or more, is of images, videos or volumes, whose second dim is no sequence."""


def batch_and_sequence(graph: Graph) -> tuple[int, int]:
    """The first two dims of the first input, 1 where there are fewer; the second is 1 of images too."""
    shape = graph.inputs[0][1].shape if graph.inputs else ()
    return shape[0] if shape else 1, shape[1] if 1 < len(shape) < IMAGE_DIMS else 1


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
