"""What can be captured: a forward network, and inputs of fixed shape."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from ms_symtensor.bridge.compiler.node_graph import NodeGraph
from ms_symtensor.errors import InputError

MICRO_BATCHES = ("PipelineCell", "Pipeline", "GradAccumulationCell", "GradAccumulation")
"""MindSpore's cells that cut a batch into micro-batches, by the names of their classes."""

_GRADIENTS = "Gradients/"  # the scope that MindSpore gives to the operators of a backward pass


def require_network(cell: Any, inputs: Sequence[Any]) -> None:
    """InputError unless `cell` is one that leaves its batch whole, and the `inputs` are tensors of fixed shapes."""
    from mindspore.nn import Cell

    if not isinstance(cell, Cell):
        what = f"the class {cell.__name__}" if isinstance(cell, type) else f"a {type(cell).__name__}"
        raise InputError(f"found {what} in place of a network: give an nn.Cell, the forward network with its loss")
    if (name := type(cell).__name__) in MICRO_BATCHES and hasattr(cell, "micro_size"):
        raise InputError(
            f"{name} cuts the batch into {cell.micro_size} micro-batches: give the network in it, whose plan says into how many"
            f" (--fix micro_batch_num={cell.micro_size} for these)"
        )
    for number, one in enumerate(inputs):
        if isinstance(one, Mapping | str | bytes | Cell | numpy.ndarray | int | float | None):
            raise InputError(
                f"input {number} is a {type(one).__name__}: give a mindspore.Tensor for every input of construct"
            )
        if any(size < 0 for size in getattr(one, "shape", ())):
            raise InputError(f"input {number} has a dynamic shape: give one of fixed shape")


def require_forward(cell: Any, graph: NodeGraph) -> None:
    """InputError if `cell`, whose graph is given, computes gradients."""
    if any(node.name.startswith(_GRADIENTS) for node in graph.nodes):
        name = type(cell).__name__
        raise InputError(f"{name} computes gradients: give the forward network (with its loss), not {name}")
