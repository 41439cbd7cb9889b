"""Which shapes of steps are searched together, and on which graph and mesh they are looked at.

Those are alike whose axes cut the same dims of every product. On a mesh of 2 x 2 a dim of 6 may be cut by either axis, on the
representative 4 x 2 only by one: what the latter allows, and what MindSpore accepts on the former, then differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import Unit, view
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.batches import batch_powers
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.space.domain import FINEST_MESH_DEVICES, prime_factors
from ms_symtensor.search.space.family import REPRESENTATIVES, SPLIT, Family, Single, family, split_family
from ms_symtensor.search.space.step_layouts import Round, StepLayout
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.variables import Variables, variables
from ms_symtensor.tensor.graph import Graph, Source

Mesh = tuple[int, ...]

SAMPLES = {
    (1, Round.WHOLE): 6,
    (1, Round.ONE): 2,
    (1, Round.PART): 3,
    (1, Round.FEW): 1,
    (2, Round.WHOLE): 24,
    (2, Round.ONE): 4,
    (2, Round.SPLIT): 4,
    (2, Round.PART): 12,
    (2, Round.FEW): 1,
    (3, Round.ONE): 16,
}
"""Samples of the representative by the axes of its mesh, 2, 4 x 2 (2 x 4 for SPLIT) or 16 x 4 x 2, and how far samples go round
there."""


def families(
    graph_at: Callable[[int], Graph],
    space: Sequence[StepLayout],
    rules: Mapping[str, Rule] | None,
    any_batch: bool = True,
) -> list[tuple[list[StepLayout], bool]]:
    """Shapes whose layouts are alike: as many axes, and samples that go as far round; True.

    And those on few devices that the representative of the others does not stand for, each mesh by itself; False. So is every
    mesh where the network cannot be had at `any_batch`, as the representative wants it.
    """
    if not any_batch:
        return [([s for s in space if s.mesh == mesh], False) for mesh in dict.fromkeys(s.mesh for s in space)]
    dims = dims_of(graph_at, rules)
    found: dict[tuple, list[StepLayout]] = {}
    for shape in space:
        axes, kind, devices = len(shape.mesh), shape.round, math.prod(shape.mesh)
        if devices <= FINEST_MESH_DEVICES and not shape.accumulates:
            found.setdefault((shape.mesh, shape.batch), []).append(shape)  # its mesh is the finest
            continue
        is_many = devices == 1 or devices > FINEST_MESH_DEVICES
        samples = SAMPLES[axes, kind]
        # Dims that do not go with the batch are equal beside `samples`, whatever batch it is.
        alike = is_many or stands_for(
            SPLIT if kind is Round.SPLIT else REPRESENTATIVES[axes],
            dims(samples),
            shape.mesh,
            dims(samples if shape.batch == samples else _beside(samples)),
        )
        found.setdefault((axes, kind) if alike else (shape.mesh, shape.batch), []).append(shape)
    return [(members, isinstance(key[1], Round)) for key, members in found.items()]


def variables_of(
    graph_at: Callable[[int], Graph],
    members: Sequence[StepLayout],
    alike: bool,
    request: Request,
) -> tuple[Graph, Variables]:
    """The graph that one of `families` is looked at on, and its operators with their candidates on all `members`."""
    graph, of, powers = (_on_all if alike else _on_own_mesh)(graph_at, members)
    pricer = Pricer(request.cluster, of)
    return graph, variables(graph, fold(graph), pricer, request.rules, powers, limits=request.limits)


def laid_out_on(shapes: Sequence[StepLayout]) -> tuple[list[tuple[Mesh, int]], NDArray[np.intp]]:
    """The different meshes, with their batches, of a family's `shapes`; and which one each lies on [shapes]."""
    number: dict[tuple[Mesh, int], int] = {}
    which = [number.setdefault((shape.mesh, shape.batch), len(number)) for shape in shapes]
    return list(number), np.array(which, dtype=np.intp)


Looked = tuple[Graph, Family, Mapping[Source, tuple[int, ...]]]
"""The graph that shapes are looked at on, their meshes, and what of the graph grows with the batch."""


def _on_own_mesh(graph_at: Callable[[int], Graph], members: Sequence[StepLayout]) -> Looked:
    """Of shapes with one mesh and batch: with one axis of few devices, those that cut by a part of these too."""
    mesh = members[0].mesh
    is_coarse = len(mesh) > 1 or mesh[0] > FINEST_MESH_DEVICES
    return graph_at(members[0].batch), Single(mesh if is_coarse else prime_factors(mesh[0])), {}


def _on_all(graph_at: Callable[[int], Graph], members: Sequence[StepLayout]) -> Looked:
    """The representative's, on all shapes of a family."""
    axes, kind = len(members[0].mesh), members[0].round
    batch = SAMPLES[axes, kind]
    graph = graph_at(batch)
    laid, _ = laid_out_on(members)
    meshes, growth = [mesh for mesh, _ in laid], [own / batch for _, own in laid]
    if kind is Round.SPLIT:
        of: Family = split_family(meshes, growth, [own // mesh[0] for mesh, own in laid])
    else:
        of = family(meshes, growth)
    return graph, of, batch_powers(graph, graph_at(_beside(batch)))


def _beside(samples: int) -> int:
    """Another batch, that of a family of most meshes: between both it is seen what grows with the batch."""
    return SAMPLES[2, Round.ONE if samples == SAMPLES[2, Round.WHOLE] else Round.WHOLE]


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
