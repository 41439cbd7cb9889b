"""Over which ranks the compiled program sums the gradient of every trainable parameter."""

from collections.abc import Sequence

from ms_symtensor.bridge.compiled.collectives import CompiledCollective, collectives
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.graph import Constant, OpOutput, ParameterRef, Source, TupleInput

ACCUMULATED = "accu_grads"
"""What the names of the parameters begin with in which gradients add up over micro-batches."""

_SUMS = frozenset({"AllReduce", "ReduceScatter"})
_SYNC_MARKS = ("mirror", "parallel_optimizer", "grad_accumulation_shard")
"""What MindSpore writes into the names of collectives that bring gradients together."""
_OF_SHARED_GRAPH = "CR_"
"""What MindSpore writes before a parameter's name inside of a graph of `@lazy_inline`; such gathers have any instance name."""

_PASSES = frozenset({"Cast", "Mul", "RealDiv"})


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


def accumulated_sums(program: CompiledProgram, trainable: Sequence[str]) -> dict[str, frozenset[int]]:
    """The same for a pipeline stage, whose `program` is that of `pipeline_training_cell(network)`.

    Gradients add up over the micro-batches in parameters of their own (AssignAdd) and are summed over the ranks there
    (Assign), or, sharded by the optimizer, on the way there (level2) or behind (level1). `trainable` are the parameters that
    the stage owns.
    """
    added: dict[str, list[Source]] = {}
    assigned: dict[str, Source] = {}
    for node in program.nodes:
        if node.type in ("Assign", "AssignAdd") and isinstance(node.inputs[0], ParameterRef):
            name = node.inputs[0].name.removeprefix(f"{ACCUMULATED}.")
            if node.type == "Assign":
                assigned[name] = node.inputs[1]
            else:
                added.setdefault(name, []).append(node.inputs[1])
    by_name = {c.name: c for c in collectives(program)}
    on_the_way = {name for sources in added.values() for source in sources for name in _path(program, source)}
    behind = {
        c.parameter: OpOutput(c.name)
        for c in by_name.values()
        if c.backward and c.parameter and _is_sync(c) and c.name not in on_the_way
    }
    found = {}
    for name in trainable:
        parts = [_ranks_of(program, source, by_name) for source in added.get(name, ())]
        before = frozenset.intersection(*parts) if parts else frozenset({program.rank})
        last = assigned.get(name) or behind.get(name)
        reached = _ranks_of(program, last, by_name) if last is not None else frozenset({program.rank})
        found[name] = frozenset(r + o - program.rank for r in before for o in reached) if last is not None else before
    return found


def _path(program: CompiledProgram, source: Source) -> list[str]:
    """The nodes that only bring a gradient together, from `source` back."""
    if not isinstance(source, OpOutput):
        return []
    node = program.node_by_name[source.op]
    passes = node.type in _SUMS or node.type in _PASSES
    return [node.name, *_path(program, node.inputs[0])] if passes else []


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
    if node.type in _PASSES:
        return _ranks_of(program, node.inputs[0], by_name)
    return frozenset({program.rank})


def _is_sync(collective: CompiledCollective) -> bool:
    is_of_shared_graph = (collective.parameter or "").startswith(_OF_SHARED_GRAPH)
    return is_of_shared_graph or any(mark in collective.instance for mark in _SYNC_MARKS)
