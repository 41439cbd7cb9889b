"""Which members of a family its representative stands for: those whose axes cut the same dims of every product.

On a mesh of 2 x 2 a dim of 6 may be cut by either axis, on the representative 4 x 2 only by one: what the latter allows, and
what MindSpore accepts on the former, then differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations

from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import Unit, view
from ms_symtensor.search.folding import fold
from ms_symtensor.tensor.graph import Graph

Mesh = tuple[int, ...]


def stands_for(mesh: Mesh, sizes: Sequence[int], member: Mesh, own: Sequence[int]) -> bool:
    """Whether the dims of `sizes` are divided by the products of axes of `mesh` by which those of `own` are by `member`'s.

    Dims that differ go with the batch: how far samples go round is known of a family.
    """
    axes = range(len(mesh))
    same = {size for size, mine in zip(sizes, own, strict=True) if size == mine}
    for chosen in (c for k in range(1, len(mesh) + 1) for c in combinations(axes, k)):
        there, here = math.prod(mesh[a] for a in chosen), math.prod(member[a] for a in chosen)
        if any((size % there == 0) != (size % here == 0) for size in same):
            return False
    return True


def dims_of(graph_at: Callable[[int], Graph], rules: Mapping[str, Rule] | None) -> Callable[[int], tuple[int, ...]]:
    """The sizes of the dims that may be cut, product by product, at any batch: they decide what a cut saves."""

    @cache
    def dims(batch: int) -> tuple[int, ...]:
        graph = graph_at(batch)
        signatures = [signature(view(graph, members[0]), rules) for members in fold(graph).members]
        products = [sig for sig in signatures if sig.unit is Unit.CUBE and sig.reduced]
        return tuple(sig.sizes[dim] for sig in products for dim in sig.cuttable)

    return dims
