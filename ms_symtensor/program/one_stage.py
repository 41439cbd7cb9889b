"""Networks that MindSpore compiles wrongly in stages or micro-batches, or not at all, because of how weights are read."""

from collections.abc import Iterator

from ms_symtensor.tensor.graph import Constant, Graph, Op, OpOutput, ParameterRef, Source, sources_of

_WITHOUT_BACKWARD = {"Add", "AddExt", "Adds", "Sub", "SubExt", "Subs"}
"""Operators whose gradient is that of their result as it comes, so that nothing stands for them in the backward pass."""


def why_one_stage(graph: Graph) -> str:
    """Why `graph` must not be laid out over pipeline stages; empty if it may be.

    Measured with MindSpore 2.10.0: a weight that operators outside the blocks read, one of them before and one of them behind the
    blocks, is sent from stage to stage if cells own all of these; else it is not sent, or received and never sent. And the first
    stage looks for the backward pass of its first weight, which `1 + weight` has none of.
    """
    names = {op.name for op in graph.ops if op.block is not None}
    behind = _behind(graph, names)
    for parameter in graph.parameters:
        readers = [op for op in _readers(graph, ParameterRef(parameter.name)) if op.block is None]
        if len({op.name in behind for op in readers}) > 1 and (bare := [op for op in readers if not op.cell]):
            return (
                f"{parameter.name} is read before and behind the blocks, and {bare[0].name} ({bare[0].type}), which reads it, has"
                " no cell of its own: MindSpore does not send it from stage to stage so; make a cell for that operator"
            )
    first = next((op for op in graph.ops if _trains(graph, op)), None)
    bare = [op for op in _of_weights_alone(graph) if op.type in _WITHOUT_BACKWARD and _trains(graph, op)]
    if bare and first is not None and not first.cell:
        return (
            f"{bare[0].name} ({bare[0].type}) computes with a weight alone, and {first.name} ({first.type}), which reads the"
            " first weight, has no primitive of its own: MindSpore finds no backward pass on the first stage; use a cell of"
            " mindspore.nn for the latter"
        )
    return ""


def why_no_accumulation(graph: Graph) -> str:
    """Why gradients of `graph` must not add up on one stage; empty if they may.

    MindSpore 2.10.0 looks for the micro-batch of what reads the first weight, and rejects what is none's.
    """
    first = next((op for op in graph.ops if _trains(graph, op)), None)
    if first is None or first.type == "Cast" or first not in _of_weights_alone(graph):
        return ""
    return f"{first.name} ({first.type}), which reads the first weight, is of no micro-batch, which MindSpore rejects"


def _readers(graph: Graph, source: Source) -> Iterator[Op]:
    """The operators that read `source`, or a Cast of it."""
    for op, _ in graph.users.get(source, ()):
        if op.type == "Cast":
            yield from _readers(graph, OpOutput(op.name))
        else:
            yield op


def _behind(graph: Graph, inside: set[str]) -> set[str]:
    """The operators that depend on one of those `inside` the blocks, or work on weights for these alone."""
    found = set(inside)
    for op in graph.ops:
        if any(isinstance(source, OpOutput) and source.op in found for source in sources_of(op)):
            found.add(op.name)
    for op in _of_weights_alone(graph):
        users = [user.name for result in op.results for user, _ in graph.users.get(result, ())]
        if users and found.issuperset(users):
            found.add(op.name)
    return found


def _of_weights_alone(graph: Graph) -> Iterator[Op]:
    """The operators that need weights and constants, and nothing else."""
    for op in graph.ops:
        if all(isinstance(source, ParameterRef | Constant) for source in sources_of(op)):
            yield op


def _trains(graph: Graph, op: Op) -> bool:
    """Whether `op` reads a weight that trains."""
    weights = [source for source in sources_of(op) if isinstance(source, ParameterRef)]
    return any(graph.parameter_by_name[weight.name].requires_grad for weight in weights)
