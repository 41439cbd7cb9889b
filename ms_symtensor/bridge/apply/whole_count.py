"""The count of a loss taken over the whole batch: put onto a network, and into the cells that cut its batch."""

from typing import Any

from ms_symtensor.bridge.capture.capture import primitives_of
from ms_symtensor.bridge.capture.given import MICRO_BATCHES
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.program.loss_parts import Parts, parts_of_loss
from ms_symtensor.program.micro_loss import Factor, factor_of_loss
from ms_symtensor.tensor.graph import Graph

_FACTORS = "_symtensor_loss_factors"  # on a network in micro-batches
_BEFORE = "_symtensor_before_parts"  # on a network of whose cells some give their numbers side by side
_COUNTS = "_symtensor_counts"  # on a cell that cuts batches


def set_factors(cell: Any, graph: Graph, whole: Graph) -> tuple[Factor, ...]:
    """Note on `cell`, whose graph is that of a micro-batch of `whole`, by what its loss, or each of its parts, is multiplied.

    Empty where that is not known. `cell` carries its strategies; `count_over_whole_batches` acts on the factors.
    """
    factor = factor_of_loss(graph, whole)
    factors: tuple[Factor, ...] = () if factor is None else (factor,)
    if factor is None and (parts := parts_of_loss(graph, whole)) is not None:
        factors = tuple(part.factor for part in parts.every)
        _set_apart(cell, graph, parts)
    if not all(one.is_one for one in factors):
        cell.__dict__[_FACTORS] = factors
    return factors


def unset_factors(cell: Any) -> None:
    """Take back what `set_factors` did; cells that cut batches of `cell` already go on as they do."""
    if isinstance(cell, type) or not hasattr(cell, "__dict__"):
        return  # no cell: what captures it says so
    cell.__dict__.pop(_FACTORS, None)
    for parent, name, part in cell.__dict__.pop(_BEFORE, ()):
        parent._cells[name] = part


def count_over_whole_batches(cell: Any) -> None:
    """Have the cells in `cell` that cut batches of networks with factors multiply by them."""
    for _, part in cell.cells_and_names():
        if type(part).__name__ in MICRO_BATCHES:
            network = part.network
            while type(network).__name__ == "AutoParallel":
                network = network.network
            factors, before = network.__dict__.get(_FACTORS, ()), part.__dict__.get(_COUNTS, ())
            if factors is not before and (factors or before):
                import_mindspore()
                from ms_symtensor.bridge.apply.whole_count_cells import multiply_by

                multiply_by(part, factors)
                part.__dict__[_COUNTS] = factors


def _set_apart(cell: Any, graph: Graph, parts: Parts) -> None:
    """Have the cells of `parts` give their numbers side by side, and what follows them take them so."""
    import_mindspore()
    from ms_symtensor.bridge.apply.whole_count_cells import Apart

    owners = {tuple(path.split(".")) if path else (): owner for path, owner in cell.cells_and_names()}
    primitives = primitives_of(cell, graph)
    before = []
    for number, part in enumerate(parts.every):
        parent, name = owners[part.cell[:-1]], part.cell[-1]
        before.append((parent, name, parent._cells[name]))
        parent._cells[name] = Apart(parent._cells[name], number, len(parts.every))
    cell.__dict__[_BEFORE] = before
    for op_name, positions in parts.tail.items():
        if op_name in primitives:
            tensors = range(len(graph.tensor_inputs(graph.op_by_name[op_name])))
            primitives[op_name].shard(tuple((1, 1) if number in positions else () for number in tensors))
