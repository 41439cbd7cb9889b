"""The peak of live activations of a compiled program, by the same count as the predicted one."""

from collections.abc import Iterable, Iterator

from ms_symtensor.bridge.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compile import CompiledProgram
from ms_symtensor.program.liveness import VIEWS, Step, peak_B, schedule
from ms_symtensor.tensor.graph import OpOutput, Source, TupleInput

_CARRIES_GRADIENT = frozenset({"AllReduce", "ReduceScatter", "Cast", "AddN"})
"""What stands between the producer of a parameter's gradient and the end of the program."""


def compiled_activation_peak_B(program: CompiledProgram) -> int:
    """Peak bytes of live tensors of one rank; parameters, inputs and parameter gradients are not counted."""
    numbers: dict[tuple[str, int], int] = {}
    sizes: dict[int, int] = {}
    for node in program.nodes:
        for index, kind in enumerate(node.outputs):
            numbers[node.name, index] = len(numbers)
            sizes[numbers[node.name, index]] = kind.size_B
    gradients = _parameter_gradients(program)
    kept = {numbers[g.op, g.index] for g in gradients}

    def number(source: Source) -> tuple[int, ...]:
        if isinstance(source, TupleInput):
            return tuple(n for item in source.items for n in number(item))
        return (numbers[source.op, source.index],) if isinstance(source, OpOutput) else ()

    ranks = backward_ranks(program)
    steps = [
        Step(
            tuple(n for source in node.inputs for n in number(source)),
            tuple(numbers[node.name, i] for i in range(len(node.outputs))),
            is_backward(node) or is_recomputed(node),
            node.type in VIEWS,
            is_recomputed(node),
            ranks.get(node.name, 0.0),
        )
        for node in program.nodes
    ]
    return peak_B([steps[i] for i in schedule(steps, kept)], sizes, kept)


def backward_ranks(program: CompiledProgram) -> dict[str, float]:
    """The place of every node of the backward pass: gradients go backwards through the forward operators.

    MindSpore marks a gradient with its forward operator. A sum of gradients comes right before its first reader, anything
    else without a mark (its forward operator was a duplicate and is gone) right after what it reads.
    """
    place = {
        node.attribute("unique_id"): -float(index)
        for index, node in enumerate(program.nodes)
        if not is_backward(node) and not is_recomputed(node)
    }
    place.pop(None, None)
    ranks: dict[str, float] = {}
    for node in program.nodes:
        if not is_backward(node):
            continue
        rank = place.get(node.attribute("forward_unique_id"))
        if rank is None and node.type == "AddN":
            continue
        made = [ranks[op] for op in producers(node.inputs) if op in ranks]
        ranks[node.name] = rank if rank is not None else max(made, default=-float(len(program.nodes)))
    first: dict[str, float] = {}
    for node in reversed(program.nodes):
        if node.name not in ranks and node.name in first:
            ranks[node.name] = first[node.name]
        if node.name in ranks:
            for op in producers(node.inputs):
                first[op] = min(first.get(op, ranks[node.name]), ranks[node.name])
    return ranks


def producers(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        if isinstance(source, TupleInput):
            yield from producers(source.items)
        elif isinstance(source, OpOutput):
            yield source.op


def _parameter_gradients(program: CompiledProgram) -> set[OpOutput]:
    """Every tensor that is a parameter's gradient: the program's results but the first (the loss), back to their makers."""
    output = program.graph.output
    found: set[OpOutput] = set()
    todo = list(output.items[1:]) if isinstance(output, TupleInput) else []
    while todo:
        source = todo.pop()
        if isinstance(source, TupleInput):
            todo.extend(source.items)
        elif isinstance(source, OpOutput) and source not in found:
            found.add(source)
            node = program.node_by_name[source.op]
            if node.type in _CARRIES_GRADIENT:
                todo.extend(node.inputs)
    return found
