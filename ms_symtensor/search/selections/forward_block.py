"""The forward program of one block as what is recomputed is chosen of it: its nodes, and the tensors that gradients need."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ms_symtensor.program.liveness import VIEWS
from ms_symtensor.program.program import Node, Phase, Program, Role
from ms_symtensor.program.recomputation import is_selectable
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class ForwardBlock:
    """The `nodes` of a block, each with its `cost_s` and the tensors that it reads, but for weights; tensors with
    their bytes and their makers.

    `wanted`: the tensors that gradients read. `fixed`: nodes that are not recomputed, as what they make leaves the block.
    """

    graph: Graph
    nodes: Sequence[Node]
    cost_s: Sequence[float]
    inputs: Sequence[Sequence[int]]
    size_B: Mapping[int, int]
    maker: Mapping[int, int]
    wanted: Sequence[int]
    fixed: Set[int]

    def root(self, tensor: int) -> int:
        """The tensor that `tensor` is a view of, or itself."""
        maker = self.maker.get(tensor)
        if maker is None or not self.is_view(maker) or not self.inputs[maker]:
            return tensor
        return self.root(self.inputs[maker][0])

    def is_view(self, number: int) -> bool:
        """Whether node `number` makes no tensor of its own."""
        return _is_view(self.graph, self.nodes[number])

    def is_named(self, number: int) -> bool:
        """Whether a plan can say of node `number` alone what becomes of it: what has no primitive of its own has no mark."""
        op = self.graph.op_by_name.get(self.nodes[number].op)
        return op is not None and is_selectable(op)


def forward_block(graph: Graph, program: Program, block: str, taken_s: Mapping[int, float]) -> ForwardBlock:
    """`block` in `program`, the partitioned `graph` with nothing recomputed, whose nodes take so many seconds, by place."""
    forward = [(i, n) for i, n in enumerate(program.nodes) if n.phase is Phase.FORWARD and n.role is not Role.WEIGHT]
    inside = [(i, n) for i, n in forward if n.block == block]
    nodes = [n for _, n in inside]
    maker = {t: i for i, n in enumerate(nodes) for t in n.outputs}
    weights = {t for n in program.nodes if n.role is Role.WEIGHT for t in n.outputs}
    held = program.kept | weights
    inputs = [[t for t in n.inputs if t not in held] for n in nodes]
    tensors = sorted({*maker, *(t for read in inputs for t in read)})
    leaving = {t for n in program.nodes if n.block != block and n.phase is Phase.FORWARD for t in n.inputs}
    gradients = {t for n in program.nodes if n.phase is Phase.BACKWARD for t in n.inputs}
    elsewhere = {t for n in program.nodes if n.phase is Phase.BACKWARD and n.block != block for t in n.inputs}

    def is_free(tensor: int) -> bool:
        """Whether it costs this block nothing: a view, whose tensor does, or kept for others."""
        made_by = maker.get(tensor)
        return tensor in elsewhere if made_by is None else _is_view(graph, nodes[made_by])

    return ForwardBlock(
        graph,
        nodes,
        [taken_s.get(i, 0.0) for i, _ in inside],
        inputs,
        {t: 0 if is_free(t) else program.tensors[t].size_B for t in tensors},
        maker,
        [t for t in tensors if t in gradients],
        {i for i, n in enumerate(nodes) if any(t in leaving for t in n.outputs)},
    )


def _is_view(graph: Graph, node: Node) -> bool:
    op = graph.op_by_name.get(node.op)
    return node.kind in VIEWS and op is not None and op.type == node.kind
