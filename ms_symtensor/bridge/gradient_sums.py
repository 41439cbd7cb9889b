"""Over which ranks the compiled program sums the gradient of every trainable parameter."""

from collections.abc import Sequence

from ms_symtensor.bridge.collectives import CompiledCollective, collectives
from ms_symtensor.bridge.compile import CompiledProgram
from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.graph import Constant, OpOutput, Source, TupleInput

_SUMS = frozenset({"AllReduce", "ReduceScatter"})


def gradient_sums(program: CompiledProgram, trainable: Sequence[str]) -> dict[str, frozenset[int]]:
    """For every trainable parameter that a gradient reaches: the ranks it is summed over.

    `program` must be that of `training_cell(network)`, whose results are the loss and the gradients of the parameters
    `trainable`, in the network's order. Where several collectives follow each other (ReduceScatter, AllReduce)
    their groups multiply.
    """
    output = program.graph.output
    if not isinstance(output, TupleInput) or len(output.items) < 2:
        return {}
    gradients = output.items[1]
    sources = gradients.items if isinstance(gradients, TupleInput) else (gradients,)
    if len(sources) > len(trainable):  # parameters that the loss does not depend on have a constant for a gradient
        sources = tuple(s for s in sources if not isinstance(s, Constant))
    if len(sources) != len(trainable):
        raise CompilerError(
            f"MindSpore returns {len(sources)} gradients for the {len(trainable)} trainable parameters in use, so their sums "
            "cannot be checked: freeze parameters that take no part in the loss (requires_grad=False)"
        )
    by_name = {c.name: c for c in collectives(program)}
    return {
        name: _ranks_of(program, source, by_name)
        for name, source in zip(trainable, sources, strict=True)
        if not isinstance(source, Constant)  # no gradient reaches it: zero on every rank
    }


def _ranks_of(program: CompiledProgram, source: Source, by_name: dict[str, CompiledCollective]) -> frozenset[int]:
    """The ranks that the collectives at the end of the gradient's path join, this rank alone where there are none.

    Where gradients of several uses meet, only what all of them were summed over counts.
    """
    if not isinstance(source, OpOutput):
        return frozenset({program.rank})
    node = program.node_by_name[source.op]
    if node.type == "AddN":
        parts = node.inputs[0].items if isinstance(node.inputs[0], TupleInput) else node.inputs
        return frozenset.intersection(*(_ranks_of(program, part, by_name) for part in parts))
    if node.type in _SUMS and _is_sync(by_name[node.name]):
        offsets = [r - program.rank for r in by_name[node.name].ranks]
        before = _ranks_of(program, node.inputs[0], by_name)
        return frozenset(r + o for r in before for o in offsets)
    if node.type in ("Cast", "Mul", "RealDiv"):
        return _ranks_of(program, node.inputs[0], by_name)
    return frozenset({program.rank})


def _is_sync(collective: CompiledCollective) -> bool:
    return "mirror" in collective.instance or "parallel_optimizer" in collective.instance
