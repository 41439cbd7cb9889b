"""The peak of live activations of a compiled program, by the same count as the predicted one."""

from ms_symtensor.bridge.compiled.collectives import is_backward, is_recomputed
from ms_symtensor.bridge.compiled.tensor_numbers import CARRIES_GRADIENT, TensorNumbers, producers, tensors_in
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.program.liveness import Step, is_view, peak_B, schedule
from ms_symtensor.tensor.graph import OpOutput, TupleInput

_TRANSPOSES = frozenset({"Reshape", "Transpose"})


def compiled_activation_peak_B(program: CompiledProgram) -> int:
    """Peak bytes of live tensors of one rank; parameters, inputs and parameter gradients are not counted."""
    numbers = TensorNumbers(program)
    kept = numbers.of(_parameter_gradients(program))
    ranks = backward_ranks(program)
    late = {node.name for node in program.nodes if is_recomputed(node)} | transposed_ahead(program)
    steps = [
        Step(
            numbers.read_by(node),
            numbers.made_by(node),
            is_backward(node) or is_recomputed(node),
            is_view(node.type),
            node.name in late,
            ranks.get(node.name, 0.0),
        )
        for node in program.nodes
    ]
    return peak_B([steps[i] for i in schedule(steps, kept)], numbers.sizes_B, kept)


def transposed_ahead(program: CompiledProgram) -> set[str]:
    """The nodes that transpose results of the forward pass, or weights, for gradients; they are made for their first reader."""
    ahead, found = set[str](), set[str]()
    for node in program.nodes:
        if is_backward(node) and not is_recomputed(node):
            if node.type not in _TRANSPOSES or not ahead.issuperset(producers(node.inputs)):
                continue
            found.add(node.name)
        ahead.add(node.name)
    return found


def backward_ranks(program: CompiledProgram) -> dict[str, float]:
    """The place of every node of the backward pass: gradients go backwards through the forward operators.

    MindSpore marks a gradient with its forward operator. A sum of gradients comes right before its first reader, as does what
    reads nothing (zeros that all blocks share); anything else without a mark (its forward operator was a duplicate and is gone)
    right after what it reads.
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
        read = list(producers(node.inputs))
        if not read or (rank is None and node.type == "AddN"):
            continue
        made = [ranks[op] for op in read if op in ranks]
        ranks[node.name] = rank if rank is not None else max(made, default=-float(len(program.nodes)))
    first: dict[str, float] = {}
    for node in reversed(program.nodes):
        if node.name not in ranks and node.name in first:
            ranks[node.name] = first[node.name]
        if node.name in ranks:
            for op in producers(node.inputs):
                first[op] = min(first.get(op, ranks[node.name]), ranks[node.name])
    return ranks


def _parameter_gradients(program: CompiledProgram) -> set[OpOutput]:
    """Every tensor that is a parameter's gradient: the program's results but the first (the loss), back to their makers."""
    output = program.graph.output
    found: set[OpOutput] = set()
    todo = list(tensors_in(output.items[1:])) if isinstance(output, TupleInput) else []
    while todo:
        tensor = todo.pop()
        if tensor not in found:
            found.add(tensor)
            node = program.node_by_name[tensor.op]
            if node.type in CARRIES_GRADIENT:
                todo.extend(tensors_in(node.inputs))
    return found
