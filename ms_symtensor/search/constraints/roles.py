"""Which operators the degrees of a plan are read off: the major products, and the norms of the residual stream."""

from collections.abc import Mapping

from ms_symtensor.ops.routing import routes_tokens
from ms_symtensor.ops.signature import OpView, Signature, Unit
from ms_symtensor.tensor.graph import Constant, Graph, Op, ParameterRef

MINOR = 0.125
"""A weight with less than this share of the largest one's elements is no major one (empirical: gates of experts, projections
to few heads and to latents, adapters; they are often cut otherwise than the network around them)."""

CHOICES = ("TopK", "TopkExt", "Argmax", "ArgMaxExt", "ArgMaxWithValue", "MaxDim")
"""Operators by which routers choose experts, along the last dim of what they read."""

NORMS = ("RmsNorm", "LayerNorm")

ATTENTION = {"FlashAttentionScore": ("b", "n", "s"), "BatchMatMul": ("b0", "b1", "m")}
"""Products of activations, and their dims: batch, heads, the query's sequence."""

Meanings = Mapping[str, tuple[OpView, Signature]]


def major_products(graph: Graph, meanings: Meanings) -> dict[str, int]:
    """The products that do most of the work with one weight for all rows, by name, with the elements of their weight.

    They stand in the blocks (or anywhere, where blocks have none); the products of experts, each of which has its own
    weight and rows, are not among them.
    """
    found: dict[str, int] = {}
    inside = set()
    for op in graph.ops:
        if op.name not in meanings:
            continue
        seen, sig = meanings[op.name]
        sources = graph.tensor_inputs(op)
        if sig.unit is not Unit.CUBE or not sig.shardable or len(sources) < 2 or own_rows(sig):
            continue
        if any(is_weight(graph, source) for source in sources):
            found[op.name] = seen.inputs[1].element_num
            if op.block is not None:
                inside.add(op.name)
    if inside:
        found = {name: elements for name, elements in found.items() if name in inside}
    least = MINOR * max(found.values(), default=0)
    return {name: elements for name, elements in found.items() if elements >= least}


def expert_products(graph: Graph, meanings: Meanings) -> frozenset[str]:
    """The names of the products in which every expert has a weight of its own.

    Where the network routes tokens by operators of its own, these are as many weights as its router chooses from.
    """
    read = (graph.type_of(graph.tensor_inputs(op)[0]) for op in graph.ops if op.type in CHOICES)
    choices = {kind.shape[-1] for kind in read if kind is not None and kind.shape}
    any_number = routes_tokens(graph)
    if not choices and not any_number:
        return frozenset()
    return frozenset(
        op.name
        for op in graph.ops
        if op.name in meanings
        and meanings[op.name][1].unit is Unit.CUBE
        and (own := own_rows(meanings[op.name][1]))
        and (any_number or any(meanings[op.name][1].sizes[dim] in choices for dim in own))
        and any(is_weight(graph, source) for source in graph.tensor_inputs(op))
    )


def stream_norms(graph: Graph, meanings: Meanings) -> frozenset[str]:
    """The names of the norms in the blocks that are over the widest dim (or anywhere, where blocks have none)."""
    norms = [op for op in graph.ops if op.type in NORMS and op.name in meanings]
    inside = [op for op in norms if op.block is not None] or norms

    def width(op: Op) -> int:
        return meanings[op.name][0].inputs[0].shape[-1]

    widest = max(map(width, inside), default=0)
    return frozenset(op.name for op in inside if width(op) == widest)


def attended(graph: Graph, op: Op, sig: Signature) -> tuple[str, str, str] | None:
    """Batch, heads and the query's sequence of `op`, if it is a product of activations in an attention.

    Products inside the chunks of a linear attention are none: what they multiply is a part of a sequence, or has no token.
    """
    dims = _of_activations(graph, op, sig)
    lengths = {kind.shape[1] for _, kind in graph.inputs if len(kind.shape) > 1}
    is_chunk = dims is not None and "b2" in sig.mesh and sig.sizes[dims[2]] not in lengths
    return None if is_chunk else dims


def _of_activations(graph: Graph, op: Op, sig: Signature) -> tuple[str, str, str] | None:
    """Batch, heads and rows of `op`, if it is a product of activations. One sample is no dim of a batched product (broadcast)."""
    dims = ATTENTION.get(op.type)
    if dims is None or dims[2] not in sig.mesh:
        return None
    if dims[0] not in sig.mesh and not (len(sig.inputs[0]) == 4 and sig.inputs[0][0] is None):
        return None
    operands = graph.tensor_inputs(op)[:2]
    return None if any(isinstance(one, Constant) or is_weight(graph, one) for one in operands) else dims


def batch_size(graph: Graph, meanings: Meanings) -> int:
    """Samples that products of activations see; 0 where there are none."""
    for op in graph.ops:
        if op.name in meanings and (dims := _of_activations(graph, op, meanings[op.name][1])) is not None:
            return meanings[op.name][1].sizes.get(dims[0], 1)
    return 0


def own_rows(sig: Signature) -> frozenset[str]:
    """The dims of a product along which every weight has rows of its own: experts."""
    if len(sig.inputs) < 2:
        return frozenset()
    return frozenset(d for d in sig.inputs[1] if d and d in sig.inputs[0] and d in sig.outputs[0])


def weight_dims(sig: Signature) -> frozenset[str]:
    """The dims of the second input of a product."""
    return frozenset(d for dims in sig.inputs[1:2] for d in dims if d)


def is_weight(graph: Graph, source: object) -> bool:
    """Whether `source` is a parameter, maybe in another element type."""
    while not isinstance(source, ParameterRef):
        op = graph.op_by_name.get(getattr(source, "op", ""))
        if op is None or op.type != "Cast":
            return False
        source = graph.tensor_inputs(op)[0]
    return True
