"""Meshes for few samples of long sequences."""

import math
from collections.abc import Mapping

from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import view
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.space.domain import FINEST_MESH_DEVICES
from ms_symtensor.search.tables.problem import sample_num
from ms_symtensor.tensor.graph import Graph


def attention_meshes(
    graph: Graph, device_num: int, rules: Mapping[str, Rule] | None = None
) -> tuple[tuple[int, ...], ...]:
    """The mesh of three axes that fused attention needs where neither samples nor (key-value) heads go round.

    An axis for the samples, one for as many heads as divide, and one for the sequence: a cut of the heads shares out the work
    under a causal mask evenly, one of the sequence does not. None on few devices, whose mesh is the finest anyway.
    """
    if device_num <= FINEST_MESH_DEVICES:
        return ()
    kinds = (members[0] for members in fold(graph).members if members[0].type == "FlashAttentionScore")
    heads = {signature(view(graph, op), rules).sizes.get("n", 1) for op in kinds}
    if not heads:
        return ()
    samples = math.gcd(sample_num(graph), device_num)
    over_heads = math.gcd(*heads, device_num // samples)
    mesh = tuple(sorted((samples, over_heads, device_num // samples // over_heads), reverse=True))
    return (mesh,) if min(mesh) > 1 else ()
