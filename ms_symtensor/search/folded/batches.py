"""A network at another batch: which dims of its tensors grow."""

from collections.abc import Mapping

from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph, InputRef, Source, TensorType


def batch_powers(graph: Graph, other: Graph) -> Mapping[Source, tuple[int, ...]]:
    """Per tensor of `graph` that differs in `other`, the same network at another batch: 1 for a dim that grows, else 0.

    InputError if the two are not the same network, or a dim grows otherwise than with the batch.
    """
    if [(op.name, op.type) for op in graph.ops] != [(op.name, op.type) for op in other.ops]:
        raise InputError(f"{graph.name} has other operators at another batch: its batch cannot be planned")
    ratio: tuple[int, int] | None = None
    found: dict[Source, tuple[int, ...]] = {}
    pairs: list[tuple[Source, TensorType, TensorType]] = [
        (InputRef(name), first, second) for (name, first), (_, second) in zip(graph.inputs, other.inputs, strict=True)
    ]
    for one, two in zip(graph.ops, other.ops, strict=True):
        pairs += zip(one.results, one.outputs, two.outputs, strict=True)
    for source, first, second in pairs:
        if first.shape == second.shape:
            continue
        powers = []
        for n, m in zip(first.shape, second.shape, strict=True):
            ratio = ratio or ((n, m) if n != m else None)
            if n != m and ratio is not None and n * ratio[1] != m * ratio[0]:
                raise InputError(f"{graph.name}: a dim of {source} does not grow with the batch but from {n} to {m}")
            powers.append(int(n != m))
        found[source] = tuple(powers)
    return found
