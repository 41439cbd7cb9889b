"""The collectives of a compiled program: kind, ranks, bytes, where they stand and why."""

from collections import Counter
from dataclasses import dataclass

from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.described_ranks import WORLD_GROUP
from ms_symtensor.bridge.compiler.node_graph import Node
from ms_symtensor.errors import CompilerError
from ms_symtensor.ops.fixed import COLLECTIVES
from ms_symtensor.program.program import UNKNOWN_B
from ms_symtensor.tensor.graph import OpOutput, TensorType, flat

KINDS = COLLECTIVES | {
    "AllGatherV": "AllGatherV",
    "ReduceScatterV": "ReduceScatterV",
    "NeighborExchange": "NeighborExchange",
    "NeighborExchangeV2": "NeighborExchange",
    "Broadcast": "Broadcast",
    "Barrier": "Barrier",
    "Send": "Send",
    "Receive": "Receive",
    "CollectiveScatter": "Scatter",
    "CollectiveGather": "Gather",
    "Reduce": "Reduce",
}


@dataclass(frozen=True)
class CompiledCollective:
    """One collective of one rank.

    `ranks` are the global ranks of its group, ascending (for Send and Receive: this rank and its peer). `input` and
    `output` are the local tensors, `input_B` and `output_B` their bytes (of all, where there are several), UNKNOWN_B
    where they are known at run time only.
    `parameter` is the weight that it gathers or whose gradient it sums. `recomputed` marks the copy that recompute
    runs in the backward pass. `fusion` is MindSpore's bucket (0: none); `instance` MindSpore's name of the
    primitive, which tells why it is there.
    """

    kind: str
    ranks: tuple[int, ...]
    input: TensorType
    output: TensorType
    input_B: int
    output_B: int
    name: str
    instance: str
    backward: bool
    parameter: str | None
    recomputed: bool
    fusion: int
    reduction: str | None


def collectives(program: CompiledProgram) -> tuple[CompiledCollective, ...]:
    """All collectives of `program`, in the order of its nodes."""
    return tuple(_collective(program, node) for node in program.nodes if node.type in KINDS)


def is_backward(node: Node) -> bool:
    """Whether `node` is of the backward pass. A sum of gradients may have no scope that says so."""
    summed = [source.op for source in flat(node.inputs) if isinstance(source, OpOutput)] if node.type == "AddN" else []
    return any(name.startswith("Gradients/") for name in (node.name, *summed))


def is_recomputed(node: Node) -> bool:
    """Whether `node` is there for the recomputed part: a copy, or a gather of what was kept in slices."""
    return bool(node.attribute("duplicated", False)) or node.instance == "recompute_slice_allgather"


def _collective(program: CompiledProgram, node: Node) -> CompiledCollective:
    # What a Receive reads is a parameter of this rank that only gives it a place in the graph.
    read = () if node.type == "Receive" else flat(node.inputs)
    tensors = tuple(t for t in map(program.type_of, read) if t is not None)
    output = node.outputs[0] if node.outputs else TensorType((), "bool")
    parameter = node.attribute("mirror_user_id")
    reduction, fusion = node.attribute("op"), node.attribute("fusion", 0)
    return CompiledCollective(
        kind=KINDS[node.type],
        ranks=_ranks(program, node),
        input=tensors[0] if tensors else output,
        output=output,
        input_B=_size_B(tensors or node.outputs),
        output_B=_size_B(node.outputs),
        name=node.name,
        instance=node.instance,
        backward=is_backward(node),
        parameter=parameter if isinstance(parameter, str) and parameter else None,
        recomputed=is_recomputed(node),
        fusion=fusion if isinstance(fusion, int) else 0,
        reduction=reduction if isinstance(reduction, str) else None,
    )


def _size_B(tensors: tuple[TensorType, ...]) -> int:
    return sum(t.size_B for t in tensors) if all(t.is_known for t in tensors) else UNKNOWN_B


def _ranks(program: CompiledProgram, node: Node) -> tuple[int, ...]:
    if node.type in ("Send", "Receive"):
        # The marks of a node hold the peer's stage under the same name: the primitive's attribute is the rank.
        peer = dict(node.attributes).get("dest_rank" if node.type == "Send" else "src_rank")
        if isinstance(peer, int):
            return tuple(sorted({program.rank, _global_rank(program, node, peer)}))
    group = node.attribute("group")
    if group == WORLD_GROUP:
        return tuple(range(program.device_num))
    if isinstance(group, str) and group in program.groups:
        return program.groups[group]
    for name in ("group_rank_ids", "rank_list"):
        ranks = node.attribute(name)
        if isinstance(ranks, tuple) and ranks:
            return tuple(sorted(rank for rank in ranks if isinstance(rank, int)))
    text = node.attribute("group_ranks")
    if isinstance(text, str) and text.replace("-", "").isdigit():
        return tuple(sorted(map(int, text.split("-"))))
    raise CompilerError(f"the members of group {group!r} of {node.name} are not told by MindSpore")


def _global_rank(program: CompiledProgram, node: Node, peer: int) -> int:
    """Send and Receive name their peer by its place in the group."""
    ranks = node.attribute("group_rank_ids") or node.attribute("rank_list")
    if isinstance(ranks, tuple) and peer < len(ranks):
        found = ranks[peer]
        return found if isinstance(found, int) else peer
    group = node.attribute("group")
    members = program.groups.get(group) if isinstance(group, str) else None
    return members[peer] if members and peer < len(members) else peer


def describe(program: CompiledProgram) -> str:
    """A dump for people: operators counted, every collective and parameter with its shapes."""
    counts = Counter(node.type for node in program.nodes)
    lines = [
        f"rank {program.rank} of {program.device_num}, MindSpore {program.mindspore}, {program.seconds:.1f} s",
        "operators: " + ", ".join(f"{kind} {number}" for kind, number in sorted(counts.items())),
        "collectives:",
    ]
    for c in collectives(program):
        marks = [mark for mark, on in (("backward", c.backward), ("recomputed", c.recomputed)) if on]
        marks += [f"of {c.parameter}"] if c.parameter else []
        lines.append(
            f"  {c.kind:13s} {_short(c.ranks):24s} {c.input!s} -> {c.output!s}  {c.name}  {' '.join(marks)}".rstrip()
        )
    lines.append("parameters:")
    for p in program.layouts:
        shard = f", cut by the optimizer among {_short(p.optimizer_shard_ranks)}" if p.optimizer_shard_ranks else ""
        cut = f"{p.layout.shape} on {p.layout.device_matrix} by {p.layout.tensor_map}"
        lines.append(f"  {p.name}: {cut} -> {p.slice_type}{shard}")
    return "\n".join(lines)


def _short(ranks: tuple[int, ...]) -> str:
    if len(ranks) <= 8:
        return f"[{' '.join(map(str, ranks))}]"
    return f"[{ranks[0]} {ranks[1]} .. {ranks[-1]}: {len(ranks)}]"
