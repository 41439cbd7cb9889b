"""The ways of tensors between layouts: which steps MindSpore takes, numbered, so that equal ones are found and priced once."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.backward import MOVE_GRADIENT
from ms_symtensor.search.space.family import Family, runs_of, runs_of_cuts
from ms_symtensor.tensor.layout import DeviceGroup, Layout, layout_of
from ms_symtensor.tensor.redistribution import redistribute

Numbers = NDArray[np.intp]

_Item = TypeVar("_Item", bound=Hashable)


class _Numbers(Generic[_Item]):
    """Numbers for things, in the order in which they are met; what is looked up often is looked up by its number."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self._number: dict[_Item, int] = {}

    def of(self, item: _Item) -> int:
        number = self._number.setdefault(item, len(self.items))
        if number == len(self.items):
            self.items.append(item)
        return number


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
    """One redistribution of a small tensor: the numbers of its nodes, of their beginnings and of a first AllGather.

    `first` is the position of that AllGather; `exists` is False where MindSpore finds no way.
    """

    nodes: tuple[int, ...] = ()
    prefix: tuple[int, ...] = ()
    gather: int = -1
    first: int = -1
    exists: bool = True


NO_PATH = ReshardPath(exists=False)


@dataclass(frozen=True, eq=False)
class Between:
    """The `paths` from every layout of one list to every one of another, as arrays."""

    paths: Sequence[ReshardPath]

    @cached_property
    def nodes(self) -> list[int]:
        """The different nodes."""
        found: list[int] = np.unique(self._nodes[self._nodes >= 0]).tolist()
        return found

    @cached_property
    def steps(self) -> Numbers:
        """The nodes of each way [ways, steps]: which of `nodes`, counted from 1; 0: no further one."""
        return np.where(self._nodes >= 0, 1 + np.searchsorted(self.nodes, self._nodes), 0)

    @cached_property
    def _nodes(self) -> Numbers:
        return _padded([way.nodes for way in self.paths])

    @cached_property
    def prefix(self) -> Numbers:
        """The beginnings of each [ways, steps]; -1: no further one."""
        return _padded([way.prefix for way in self.paths])

    @cached_property
    def gather(self) -> Numbers:
        return np.array([way.gather for way in self.paths])

    @cached_property
    def first(self) -> Numbers:
        return np.array([way.first for way in self.paths])

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        return np.array([way.exists for way in self.paths])


def _padded(rows: Sequence[tuple[int, ...]]) -> Numbers:
    """`rows` of one length, with -1 behind those that are shorter."""
    longest = max(1, max(map(len, rows)))
    return np.array([(*row, *(-1,) * (longest - len(row))) for row in rows], dtype=np.intp)


class ReshardPaths:
    """The ways between layouts on the meshes of `family`; `nodes` are their steps, by number."""

    def __init__(self, family: Family, enable_alltoall: bool) -> None:
        self._family, self._enable_alltoall = family, enable_alltoall
        self._layouts = _Numbers[Layout]()
        self._nodes = _Numbers[Node]()
        self._possible: list[bool] = []
        self._prefixes = _Numbers[tuple]()
        self._gathers = _Numbers[tuple]()
        self._ways: dict[tuple[int, int], ReshardPath] = {}
        self._between: dict[tuple[tuple[Layout, ...], tuple[Layout, ...], bool], Between] = {}

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes.items

    def between(self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], gathered: bool) -> Between:
        """The ways from every layout of `makers` to every one of `readers`, of a tensor that may be `gathered` or not."""
        key = (makers, readers, gathered)
        if key not in self._between:
            # The steps depend on the sizes of dims only through what divides them: they are found on a small tensor of the
            # same kind, shared by all tensors of that kind. What a Reshape does depends on the sizes themselves.
            is_reshaped = makers[0].shape != readers[0].shape
            small: Callable[[Layout], Layout] = attrgetter("plain") if is_reshaped else _shrunk
            starts, ends = ([self._layouts.of(small(layout)) for layout in side] for side in (makers, readers))
            paths = [self._way(start, end) for start in starts for end in ends]
            if not gathered:
                paths = [
                    NO_PATH if any(self._nodes.items[n].kind == "AllGather" for n in way.nodes) else way
                    for way in paths
                ]
            self._between[key] = Between(paths)
        return self._between[key]

    def _way(self, source: int, target: int) -> ReshardPath:
        """The way from layout number `source` to layout number `target`."""
        key = (source, target)
        if key not in self._ways:
            self._ways[key] = self._found(self._layouts.items[source], self._layouts.items[target])
        return self._ways[key]

    def _found(self, source: Layout, target: Layout) -> ReshardPath:
        try:
            steps = redistribute(source, target, self._enable_alltoall)
        except InvalidStrategyError:
            return NO_PATH
        nodes: list[int] = []
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
            nodes.append(self._node(Node(step.kind, MOVE_GRADIENT[step.kind], group, before, after, parts)))
            if not self._possible[nodes[-1]]:
                return NO_PATH
            before = after
            ranks = group.ranks() if group is not None else None
            # From one beginning, equal steps make the same but for a Reshape.
            shape = step.output_shape if step.kind == "Reshape" else None
            parent = prefix[-1] if prefix else source
            prefix.append(self._prefixes.of((parent, step.kind, shape, ranks, step.dim, step.concat_dim, step.pieces)))
            only_views = place == 0 or (place == 1 and reshaped is not None)
            if step.kind == "AllGather" and only_views:
                gather = self._gathers.of((ranks, reshaped))
                first = place
            if step.kind == "Reshape" and place == 0:
                reshaped = step.output_shape
        return ReshardPath(tuple(nodes), tuple(prefix), gather, first)

    def _node(self, node: Node) -> int:
        """The number of `node`; whether it cuts a tensor alike on every mesh of the family is noted beside it."""
        number = self._nodes.of(node)
        if number == len(self._possible):
            family, parts = self._family, (node.before, node.after, node.parts)
            of_group = node.group is None or family.shape_of(node.group) is not None
            self._possible.append(of_group and all(family.coded(n) is not None for n in parts))
        return number


def _shrunk(layout: Layout) -> Layout:
    """`layout` of a small tensor whose dims can be cut in the same ways, without device axes of one device."""
    plain = layout.plain
    device_num = plain.device_num
    return layout_of(plain.device_matrix, plain.tensor_map, tuple([_small(n, device_num) for n in plain.shape]))


def _small(size: int, device_num: int) -> int:
    """The smallest size that `device_num`, twice over, divides like `size`, and that leaves a rest where `size` does."""
    common = math.gcd(size, device_num * device_num)
    return common if common == size else 2 * common
