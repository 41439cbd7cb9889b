"""What is said of operators that have no signature."""

import json
from collections.abc import Sequence

from ms_symtensor.ops.signature import OpView

SHOWN = 4
"""So many operators are named with their shapes, so that a message stays in its bounds; further ones by name."""

_WAYS_ROUND = {
    "InstanceNorm": "nn.GroupNorm with as many groups as channels",
    **dict.fromkeys(("IndexAdd", "ScatterNd"), "the sum of one-hot vectors of the indices times what is put in"),
    "InplaceBernoulliScalar": "nn.Dropout2d or ops.dropout2d for those of mint",
    "ChannelShuffle": "nn.ChannelShuffle",
    "ExtractImagePatches": "mint.nn.Unfold for nn.Unfold",
    "EmbeddingLookup": "nn.Embedding for nn.EmbeddingLookup",
    "TripletMarginLoss": "ops.relu(ops.norm(x - same, dim=1) - ops.norm(x - other, dim=1) + margin).mean()",
    "IndexFill": "ops.masked_fill",
    "Bernoulli": "mint.bernoulli",
    "Take": "ops.gather",
    "Fmax": "ops.maximum",
    "Fmin": "ops.minimum",
    "AccumulateNV2": "ops.addn",
    "Expand": "ops.broadcast_to",
    "ExpandAs": "Tensor.expand_as",
    "ViewAs": "ops.reshape",
    "TypeAs": "ops.cast",
    "Fills": "ops.full_like",
}
"""What computes the same with operators that have a signature, for some that have none."""


def unknown(ops: Sequence[OpView]) -> str:
    """What to tell the user of `ops`, one of every unknown type."""
    sizeless = next((op for op in ops if any(n < 0 for t in op.outputs for n in t.shape)), None)
    if sizeless is not None:
        return (
            f"operator {sizeless.type} ({sizeless.name}) returns {', '.join(map(str, sizeless.outputs))}, whose size only a run"
            " tells: plans are for fixed sizes; write it with a mask, or do it where the data is made"
        )
    first, *others = ops
    shapes = f"{', '.join(map(str, first.inputs))} -> {', '.join(map(str, first.outputs))}"
    more = f" Nor have {', '.join(op.type for op in others[:SHOWN])}{_rest(len(others) - SHOWN)}." if others else ""
    return (
        f"operator {first.type} ({first.name}) has no signature: {shapes}.{more} Write"
        f" {_WAYS_ROUND.get(first.type, 'other operators')}, or, before you plan,"
        f" ms_symtensor.register({json.dumps(first.type)}, line): one name per dim, the same where dims are cut alike"
    )


def _rest(n: int) -> str:
    return f" and {n} more" if n > 0 else ""
