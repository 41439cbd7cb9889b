"""The order in which MindSpore lists a forward pass, and in which its runtime runs it."""

from collections.abc import Sequence

from ms_symtensor.program.program import Node, Phase


def depth_first(nodes: Sequence[Node]) -> list[Node]:
    """`nodes` with those of the forward pass in the order of MindSpore's `TopoSort`, from what nobody reads, as the loss.

    Before a node stands what makes its first input, moves included, then what makes its second one.
    """
    forward = [number for number, node in enumerate(nodes) if node.phase is Phase.FORWARD]
    maker = {tensor: number for number in forward for tensor in nodes[number].outputs}
    read = {tensor for number in forward for tensor in nodes[number].inputs}
    listed: dict[int, None] = {}
    stack = [(number, False) for number in reversed(forward) if read.isdisjoint(nodes[number].outputs)]
    while stack:
        number, is_ready = stack.pop()
        if is_ready:
            listed[number] = None
        elif number not in listed:
            stack.append((number, True))
            stack += [(maker[tensor], False) for tensor in reversed(nodes[number].inputs) if tensor in maker]
    order = iter(listed)
    return [nodes[next(order)] if node.phase is Phase.FORWARD else node for node in nodes]
