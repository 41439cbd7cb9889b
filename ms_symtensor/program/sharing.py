"""Equal work on equal tensors: what of it MindSpore makes one, before and after it differentiates."""

from collections.abc import Callable, Collection, Mapping, Sequence

from ms_symtensor.ops.signature import Combine, Signature
from ms_symtensor.program.program import Node, Phase, Role
from ms_symtensor.tensor.graph import TensorType

Outside = Callable[[str, str], bool] | None
"""`effects.read_from_outside` of a graph."""


def merge_gathers(
    nodes: Sequence[Node],
    tensors: Sequence[TensorType],
    result: int,
    outside: Outside = None,
    is_interleaved: bool = False,
) -> list[Node]:
    """The forward nodes after MindSpore's pass that merges AllGathers, which runs before differentiation.

    All AllGathers of what one operator makes, seen through Reshapes and Casts, become one if all of them are alike: of the same
    output and element type, with the same ranks, and the same Reshape (or none) right before. One that differs keeps all of
    them apart, and so does each its own gradient. Those that read it from outside of a cell with side effects are for
    themselves, too. `result` is the tensor that the network returns. The first one decides
    whether it is recomputed. `is_interleaved`: the nodes are those of a pipeline stage of several model chunks. There a block is
    a graph of its own at that time: what comes from outside of it is made by no operator of that graph, and all AllGathers of it
    stay.
    """
    producer = {t: n for n in nodes for t in n.outputs}

    def root(tensor: int) -> int:
        while (node := producer.get(tensor)) is not None and node.kind in ("Reshape", "Cast"):
            (tensor,) = node.inputs
        return tensor

    def form(gather: Node) -> tuple:
        (read,) = gather.inputs
        ranks = gather.group and gather.group.ranks()
        return root(read), tensors[read].dtype, ranks, _reshaped(producer.get(read), tensors)

    gathers: dict[tuple[int, bool], list[Node]] = {}
    for node in nodes:
        if node.kind == "AllGather" and node.role is Role.MOVE and (made := root(node.inputs[0])) in producer:
            if is_interleaved and node.block is not None and producer[made].block != node.block:
                continue
            is_outside = outside is not None and outside(producer[made].op, node.op)
            gathers.setdefault((producer[made].outputs[0], is_outside), []).append(node)
    same: dict[int, int] = {}
    for alike in gathers.values():
        if len(set(map(form, alike))) == 1:
            same.update((n.outputs[0], alike[0].outputs[0]) for n in alike[1:] if n.outputs[0] != result)
    merged = [_renamed(n, same) for n in nodes if not (n.outputs and n.outputs[0] in same)]
    return _without_idle_reshapes(merged, result)


def _reshaped(node: Node | None, tensors: Sequence[TensorType]) -> tuple[int, ...] | None:
    return tensors[node.outputs[0]].shape if node is not None and node.kind == "Reshape" else None


def _without_idle_reshapes(nodes: list[Node], result: int) -> list[Node]:
    read = {t for n in nodes for t in n.inputs} | {result}
    return [n for n in nodes if n.kind != "Reshape" or n.role is not Role.MOVE or n.outputs[0] in read]


def share_equal(
    nodes: Sequence[Node],
    tensors: Sequence[TensorType],
    recomputation: Collection[int],
    signatures: Mapping[str, Signature],
    reshapes: Collection[str] = (),
    apart: Collection[str] = (),
    outside: Outside = None,
    copies: Mapping[str, str] | None = None,
) -> tuple[Node, ...]:
    """`nodes` without those that do again what an earlier one has done on the same tensors: moves and sums, and all of the
    backward pass.

    Of those whose outputs are in `recomputation`, because they are recomputed, and of the others each for itself; what a block
    recomputes waits for its backward pass, and is of no other block.
    `signatures`: of all operators, one for those that do the same to what they read. `reshapes`: the Reshapes among them,
    before which MindSpore moves tensors by primitives of other attributes (without keep_value_node_input) than before others.
    `apart`: kinds of collectives that every parameter has for itself. `outside`: as for `merge_gathers`. `copies`: operators that
    do the same as others, and were differentiated for themselves, with those; their forward nodes are shared too.

    MindSpore eliminates common sub-expressions after differentiation: what is equal before that is one operator already, and
    so are equal gradients, such as those of the terms of a sum.
    """
    copies = copies or {}
    copied = {*copies, *copies.values()}
    makers = {t: n.op for n in nodes for t in n.outputs} if outside is not None else {}
    same: dict[int, int] = {}
    known: dict[tuple, tuple[int, ...]] = {}
    kept = []
    for node in nodes:
        node = _renamed(node, same) if same else node
        form = None if node.role is Role.SYNC and node.kind in apart else _form(node, signatures, reshapes, copied)
        if form is not None:
            kinds = tuple(tensors[t] for t in node.outputs)
            ranks = node.group and node.group.ranks()
            recomputed = node.outputs[0] in recomputation
            behind = _is_outside(node, makers, outside)
            again = node.block if node.phase is Phase.RECOMPUTE else None
            key = (form, node.kind, node.inputs, kinds, ranks, node.attribute, node.phase, recomputed, behind, again)
            earlier = known.setdefault(key, node.outputs)
            if earlier is not node.outputs:
                same.update(zip(node.outputs, earlier, strict=True))
                continue
        kept.append(node._replace(op=copies[node.op]) if node.op in copies else node)
    return tuple(kept)


def _is_outside(node: Node, makers: Mapping[int, str], outside: Outside) -> bool:
    """Whether a move of the forward pass reads its tensor from outside of a cell with side effects."""
    if outside is None or node.role is not Role.MOVE or node.phase is Phase.BACKWARD:
        return False
    return any(outside(makers[t], node.op) for t in node.inputs if t in makers)


def _form(
    node: Node, signatures: Mapping[str, Signature], reshapes: Collection[str], copied: Collection[str]
) -> int | None:
    """What `node` does beside what its kind and attribute say; None where it is never one with another."""
    if node.role in (Role.MOVE, Role.COMBINE):
        is_mean = node.role is Role.COMBINE and node.op in signatures and signatures[node.op].combine is Combine.MEAN
        return int(node.phase is not Phase.BACKWARD and node.op in reshapes) + 2 * is_mean  # which also divides
    if node.phase is not Phase.BACKWARD and node.op not in copied:
        return None
    if node.role is Role.WORK:
        return id(signatures[node.op])
    return 0 if node.role in (Role.ADD, Role.SYNC) else None


def _renamed(node: Node, same: dict[int, int]) -> Node:
    inputs = tuple(same.get(t, t) for t in node.inputs)
    return node if inputs == node.inputs else node._replace(inputs=inputs)
