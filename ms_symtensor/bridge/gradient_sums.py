"""Over which ranks the compiled program sums the gradient of every trainable parameter."""

from collections.abc import Sequence

from ms_symtensor.bridge.collectives import CompiledCollective, collectives
from ms_symtensor.bridge.compile import CompiledProgram
from ms_symtensor.tensor.graph import OpOutput, Source, TupleInput

_SUMS = frozenset({"AllReduce", "ReduceScatter"})


def gradient_sums(program: CompiledProgram, trainable: Sequence[str]) -> dict[str, frozenset[int]]:
    """For every trainable parameter: the ranks its gradient is summed over.

    `program` must be that of `training_cell(network)`, whose results are the loss and the gradients of the parameters
    `trainable`, in the network's order. Where several collectives follow each other (ReduceScatter, AllReduce) their groups multiply.
    """
    output = program.graph.output
    if not isinstance(output, TupleInput) or len(output.items) < 2:
        return {}
    gradients = output.items[1]
    sources = gradients.items if isinstance(gradients, TupleInput) else (gradients,)
    by_name = {c.name: c for c in collectives(program)}
    return {name: _ranks_of(program, source, by_name) for name, source in zip(trainable, sources, strict=True)}


def _ranks_of(program: CompiledProgram, source: Source, by_name: dict[str, CompiledCollective]) -> frozenset[int]:
    """The ranks that the collectives at the end of the gradient's path join, this rank alone where there are none."""
    sizes: list[tuple[int, ...]] = []
    while isinstance(source, OpOutput):
        node = program.node_by_name[source.op]
        if node.type in _SUMS and _is_sync(by_name[node.name]):
            sizes.append(by_name[node.name].ranks)
        elif node.type not in ("Cast", "Mul", "RealDiv"):
            break
        source = node.inputs[0]
    reached = frozenset({program.rank})
    for ranks in reversed(sizes):
        offsets = [r - program.rank for r in ranks]
        reached = frozenset(r + o for r in reached for o in offsets)
    return reached


def _is_sync(collective: CompiledCollective) -> bool:
    return "mirror" in collective.instance or "parallel_optimizer" in collective.instance
