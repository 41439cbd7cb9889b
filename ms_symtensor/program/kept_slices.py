"""What recomputed blocks keep in slices: MindSpore's `recompute(recompute_slice_activation=True)`.

MindSpore 2.10, frontend/optimizer/slice_activation_in_recompute.cc: what an operator so marked makes, and both the recomputed
part and others read, is cut along its first dim over the ranks that hold the same of it. The recomputed part reads a gather of
the slices.
"""

from collections.abc import Callable, Mapping, Sequence

from ms_symtensor.ops.placement import Placement
from ms_symtensor.program.program import Node, Phase, Role
from ms_symtensor.program.recomputation import name_in_block
from ms_symtensor.program.settings import Settings
from ms_symtensor.tensor.graph import Graph, TensorType
from ms_symtensor.tensor.layout import DeviceGroup

WHOLE = frozenset({"Transpose"})
"""Kinds of operators whose outputs are kept whole."""


def sliced_operators(graph: Graph, settings: Settings) -> frozenset[str]:
    """The operators whose kept outputs are cut."""
    chosen = settings.recompute
    return frozenset(
        op.name
        for op in graph.ops
        if op.block is not None and op.block in chosen and name_in_block(op) in chosen[op.block].sliced
    )


def keep_slices(
    nodes: Sequence[Node],
    tensors: Sequence[TensorType],
    marked: frozenset[str],
    placements: Mapping[str, Placement],
    new_tensor: Callable[[TensorType], int],
) -> tuple[Node, ...]:
    """`nodes` with a slice of what `marked` operators make and the recomputed part reads, and a gather for that part.

    `new_tensor`: makes a tensor of a type, and says its number.
    """
    readers: dict[int, set[bool]] = {}
    for node in nodes:
        for tensor in node.inputs:
            readers.setdefault(tensor, set()).add(node.phase is Phase.RECOMPUTE)
    found: list[Node] = []
    slices: dict[int, Node] = {}
    gathered: dict[int, int] = {}
    for node in nodes:
        if node.phase is Phase.RECOMPUTE:
            for tensor in dict.fromkeys(node.inputs):
                if tensor in slices and tensor not in gathered:
                    gathered[tensor] = new_tensor(tensors[tensor])
                    part, outputs = slices[tensor], (gathered[tensor],)
                    found.append(
                        part._replace(kind="AllGather", inputs=part.outputs, outputs=outputs, phase=Phase.RECOMPUTE)
                    )
            node = node._replace(inputs=tuple(gathered.get(tensor, tensor) for tensor in node.inputs))
        found.append(node)
        ranks = _ranks(node, tensors, marked, placements)
        if ranks is not None and readers.get(node.outputs[0]) == {True, False}:
            (tensor,) = node.outputs
            first, *others = tensors[tensor].shape
            kept = new_tensor(TensorType((first // ranks.size, *others), tensors[tensor].dtype))
            slices[tensor] = node._replace(
                kind="StridedSlice", inputs=(tensor,), outputs=(kept,), role=Role.MOVE, group=ranks,
                attribute=(0, 0, ranks.size), scratch=None,
            )  # fmt: skip
            found.append(slices[tensor])
    return tuple(found)


def _ranks(
    node: Node, tensors: Sequence[TensorType], marked: frozenset[str], placements: Mapping[str, Placement]
) -> DeviceGroup | None:
    """The ranks over which the output of `node` can be cut; None: it stays whole."""
    if node.role is not Role.WORK or node.phase is not Phase.FORWARD or node.kind in WHOLE or len(node.outputs) != 1:
        return None
    if node.op not in marked or node.op not in placements:
        return None
    shape, ranks = tensors[node.outputs[0]].shape, placements[node.op].outputs[0].copies
    return ranks if ranks.size > 1 and shape and shape[0] % ranks.size == 0 else None
