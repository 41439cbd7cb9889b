"""BatchNorm in a proof: what every device does to its own samples, one process does to each such part of the whole batch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ms_symtensor.bridge.capture.capture import primitive_of
from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph, ParameterRef

NOTE = "BatchNorm: in one process too over each device's samples by themselves, as MindSpore compiles it"


def parts_of_samples(cell: Any, graph: Graph, device_num: int) -> Mapping[tuple[tuple[str, ...], str], int]:
    """Into how many parts each BatchNorm of `cell` has its samples cut, by the path of its cell and the primitive's attribute.

    InputError for one that no primitive of a cell makes, which one process cannot be made to do alike.
    """
    found = {}
    for op in graph.ops:
        if not op.type.startswith("BatchNorm"):
            continue
        samples = op.outputs[0].shape[0]
        if not op.primitive or op.type != "BatchNorm":
            if device_num > 1 and samples % device_num == 0:
                raise InputError(
                    f"{op.name} ({op.type}) normalises by each device's own samples, so that it cannot be compared with one"
                    " process: use nn.BatchNorm2d (or 1d), whose primitive the proof can do by parts"
                )
            continue
        strategy = primitive_of(cell, op).attrs.get("in_strategy")
        parts = strategy[0][0] if strategy else device_num if samples % device_num == 0 else 1
        if parts > 1:
            found[op.cell, op.primitive] = int(parts)
    return found


def offsets(graph: Graph) -> frozenset[str]:
    """The parameters that BatchNorms of `graph` add to what they have normalised."""
    read = (graph.tensor_inputs(op)[2:3] for op in graph.ops if op.type.startswith("BatchNorm"))
    return frozenset(source.name for sources in read for source in sources if isinstance(source, ParameterRef))


@contextmanager
def by_parts(cell: Any, parts: Mapping[tuple[tuple[str, ...], str], int]) -> Iterator[None]:
    """While open, these BatchNorms of `cell` normalise every part of the batch by itself."""
    from ms_symtensor.bridge.proof.definitions import BatchNormByParts

    cells = {tuple(name.split(".")) if name else (): owner for name, owner in cell.cells_and_names()}
    before = [(cells[path], name, getattr(cells[path], name)) for path, name in parts]
    for (owner, name, primitive), number in zip(before, parts.values(), strict=True):
        delattr(owner, name)
        setattr(owner, name, BatchNormByParts(primitive, number))
    try:
        yield
    finally:
        for owner, name, primitive in before:
            delattr(owner, name)
            setattr(owner, name, primitive)
