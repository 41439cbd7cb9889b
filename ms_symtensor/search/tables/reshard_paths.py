"""The ways of tensors between layouts: which steps MindSpore takes, numbered, so that equal ones are found and priced once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.backward import MOVE_GRADIENT
from ms_symtensor.search.space.family import Family, runs_of, runs_of_cuts
from ms_symtensor.tensor.layout import DeviceGroup, Layout, layout_of
from ms_symtensor.tensor.redistribution import redistribute


class Node(NamedTuple):
    """A step as far as its price goes: of a tensor in so many slices before and after it, among the ranks of a group or in so
    many parts; these as codes of the family's axes.
    """

    kind: str
    opposite: str
    group: DeviceGroup | None
    before: int
    after: int
    parts: int


class ReshardPath(NamedTuple):
    """One redistribution of a small tensor: its nodes, the numbers of their beginnings and of a first AllGather.

    `first` is the position of that AllGather; `exists` is False where MindSpore finds no way.
    """

    nodes: tuple[Node, ...] = ()
    prefix: tuple[int, ...] = ()
    gather: int = -1
    first: int = -1
    exists: bool = True


NO_PATH = ReshardPath(exists=False)


@dataclass(frozen=True, eq=False)
class Known:
    """What was found of ways, and the numbers of layouts, beginnings and first AllGathers."""

    layouts: dict[Layout, int] = field(default_factory=dict)
    possible: dict[Node, bool] = field(default_factory=dict)
    prefixes: dict[tuple, int] = field(default_factory=dict)
    gathers: dict[tuple, int] = field(default_factory=dict)
    paths: dict[tuple[int, int], ReshardPath] = field(default_factory=dict)


@lru_cache(maxsize=32)
def known_on(kind: str, mesh: tuple[int, ...], enable_alltoall: bool) -> Known:
    """What is known of families of a `kind` with one representative: ways do not depend on the sizes of members."""
    return Known()


class ReshardPaths:
    """The ways between layouts on the meshes of `family`."""

    def __init__(self, family: Family, enable_alltoall: bool) -> None:
        self._family, self._enable_alltoall = family, enable_alltoall
        self._known = known_on(type(family).__name__, family.mesh, enable_alltoall)

    def between(
        self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], gathered: bool, alike: bool = False
    ) -> Sequence[ReshardPath]:
        """The ways from every layout of `makers` to every one of `readers`, of a tensor that may be `gathered` or not; between
        operators that are cut `alike` those between layouts that are.
        """
        # The steps depend on the sizes of dims only through what divides them: they are found on a small tensor of the same kind,
        # shared by all tensors of that kind. What a Reshape does depends on the sizes themselves.
        is_reshaped = makers[0].shape != readers[0].shape
        small: Callable[[Layout], Layout] = attrgetter("plain") if is_reshaped else _shrunk
        starts, ends = ([self._numbered(small(layout)) for layout in side] for side in (makers, readers))
        paths = [
            self._way(start, end) if not alike or _cut_alike(start[1], end[1]) else NO_PATH
            for start in starts
            for end in ends
        ]
        if gathered:
            return paths
        return [NO_PATH if any(node.kind == "AllGather" for node in way.nodes) else way for way in paths]

    def _numbered(self, layout: Layout) -> tuple[int, Layout]:
        """`layout` with its number: what is looked up often is looked up by that."""
        return self._known.layouts.setdefault(layout, len(self._known.layouts)), layout

    def _way(self, source: tuple[int, Layout], target: tuple[int, Layout]) -> ReshardPath:
        key = source[0], target[0]
        paths = self._known.paths
        if key not in paths:
            paths[key] = self._found(source[1], target[1])
        return paths[key]

    def _found(self, source: Layout, target: Layout) -> ReshardPath:
        try:
            steps = redistribute(source, target, self._enable_alltoall)
        except InvalidStrategyError:
            return NO_PATH
        known = self._known
        nodes: list[Node] = []
        prefix: list[int] = []
        gather = first = -1
        reshaped: tuple[int, ...] | None = None
        before, parts = self._family.code(runs_of_cuts(source)), 1
        for place, step in enumerate(steps):
            group = step.group
            taken = 1 if group is None else self._family.code(runs_of(group))
            if before is None or taken is None:
                return NO_PATH
            # Split and Concat divide what was gathered before them.
            parts = taken if group is not None else parts if step.pieces > 1 else 1
            after = before
            if step.kind == "AllGather":
                after //= taken
            elif step.kind == "StridedSlice":
                after *= taken
            node = Node(step.kind, MOVE_GRADIENT[step.kind], group, before, after, parts)
            if node not in known.possible:
                known.possible[node] = self._is_possible(node)
            if not known.possible[node]:
                return NO_PATH
            nodes.append(node)
            before = after
            ranks = group.ranks() if group is not None else None
            # From one beginning, equal steps make the same but for a Reshape.
            shape = step.output_shape if step.kind == "Reshape" else None
            parent = prefix[-1] if prefix else source
            beginning = parent, step.kind, shape, ranks, step.dim, step.concat_dim, step.pieces
            prefix.append(known.prefixes.setdefault(beginning, len(known.prefixes)))
            only_views = place == 0 or (place == 1 and reshaped is not None)
            if step.kind == "AllGather" and only_views:
                gather = known.gathers.setdefault((ranks, reshaped), len(known.gathers))
                first = place
            if step.kind == "Reshape" and place == 0:
                reshaped = step.output_shape
        return ReshardPath(tuple(nodes), tuple(prefix), gather, first)

    def _is_possible(self, node: Node) -> bool:
        """Whether `node` cuts a tensor alike on every mesh of the family."""
        of_group = node.group is None or self._family.shape_of(node.group) is not None
        return of_group and all(self._family.coded(n) is not None for n in (node.before, node.after, node.parts))


def _cut_alike(first: Layout, second: Layout) -> bool:
    """Whether two layouts cut samples and heads alike, their first two dims."""
    cuts = ([n // local for n, local in zip(x.shape[:2], x.slice_shape, strict=False)] for x in (first, second))
    return next(cuts) == next(cuts)


def _shrunk(layout: Layout) -> Layout:
    """`layout` of a small tensor whose dims can be cut in the same ways, without device axes of one device."""
    plain = layout.plain
    device_num = plain.device_num
    return layout_of(plain.device_matrix, plain.tensor_map, tuple([_small(n, device_num) for n in plain.shape]))


def _small(size: int, device_num: int) -> int:
    """The smallest size that `device_num`, twice over, divides like `size`, and that leaves a rest where `size` does."""
    common = math.gcd(size, device_num * device_num)
    return common if common == size else 2 * common
