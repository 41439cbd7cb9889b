"""Carrying tensors between lists of layouts: what every way costs, and what two ways have in common."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.pricing import Pricer
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from ms_symtensor.tensor.redistribution import COLLECTIVES, GRADIENT_KIND, SCATTERED, redistribute

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class PairCost:
    """Carrying a tensor from every layout of its maker (rows) to every layout of a reader (columns).

    Seconds and bytes are [members, rows, columns]. `forward_s` is inf where MindSpore finds no way; `backward_s` leaves out
    the way back of a first AllGather, which `gather_s` holds, with the bytes of what it gathers in `gathered_B`; `gather`
    [rows, columns] numbers the different first AllGathers (-1: none). `prefix` [rows, columns, steps] numbers the beginnings
    of the ways, step by step: two ways share those steps whose numbers are equal; `prefix_s` is their time.
    """

    forward_s: Array
    backward_s: Array
    gather: Numbers
    gather_s: Array
    gathered_B: Array
    prefix: Numbers
    prefix_s: Array

    @property
    def moves(self) -> NDArray[np.bool_]:
        """Whether anything is moved."""
        found: NDArray[np.bool_] = self.prefix[:, :, 0] >= 0
        return found


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


class _Node(NamedTuple):
    """A step as far as its price goes: of a tensor in so many slices before and after it, among the ranks of a group or in so
    many parts.
    """

    kind: str
    opposite: str
    group: DeviceGroup | None
    before: int
    after: int
    parts: int


@dataclass(frozen=True)
class _Way:
    """One redistribution of a small tensor: the numbers of its nodes, of their beginnings and of a first AllGather.

    `first` is the position of that AllGather; `exists` is False where MindSpore finds no way.
    """

    nodes: tuple[int, ...] = ()
    prefix: tuple[int, ...] = ()
    gather: int = -1
    first: int = -1
    exists: bool = True


NO_WAY = _Way(exists=False)


class Pairs:
    """Move costs between lists of layouts, computed once per pair of distinct layouts."""

    def __init__(self, pricer: Pricer, enable_alltoall: bool) -> None:
        self._pricer, self._enable_alltoall = pricer, enable_alltoall
        self._cache: dict[tuple, PairCost] = {}
        self._layouts = _Numbers[Layout]()
        self._nodes = _Numbers[_Node]()
        self._possible: list[bool] = []
        self._forms = _Numbers[tuple]()
        self._prefixes = _Numbers[tuple]()
        self._gathers = _Numbers[tuple]()
        self._ways: dict[tuple[int, int], _Way] = {}

    def cost(self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], dtype: str, power: int) -> PairCost:
        """The costs for every pair of different layouts, of a tensor whose size goes with the batch to the `power` 0 or 1."""
        key = (makers, readers, size_B(dtype), dtype in SCATTERED, power)
        if key not in self._cache:
            self._cache[key] = self._compute(*key)
        return self._cache[key]

    def _compute(
        self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], element_B: int, gathered: bool, power: int
    ) -> PairCost:
        whole_B = float(math.prod(makers[0].shape)) * element_B
        # The steps depend on the sizes of dims only through what divides them: they are found on a small tensor of the same
        # kind, shared by all tensors of that kind. What a Reshape does depends on the sizes themselves.
        small = _shrunk if makers[0].shape == readers[0].shape else plain_layout
        starts, ends = ([self._layouts.of(small(layout)) for layout in side] for side in (makers, readers))
        ways = [self._way(start, end) for start in starts for end in ends]
        if not gathered:
            ways = [NO_WAY if any(self._nodes.items[n].kind == "AllGather" for n in way.nodes) else way for way in ways]
        longest = max(1, max(len(way.prefix) for way in ways))

        # Every different node once; a last row of zeros stands for none.
        numbers = np.full((len(ways), longest), -1)
        index: dict[int, int] = {}
        for i, way in enumerate(ways):
            if way.nodes:
                numbers[i, : len(way.nodes)] = [index.setdefault(node, len(index)) for node in way.nodes]
        there_s, back_s, after_B = self._priced([self._nodes.items[n] for n in index], whole_B, power)

        prefix_s = np.cumsum(there_s[numbers], axis=1)
        missing = np.array([not way.exists for way in ways])
        forward = np.where(missing[:, None], np.inf, prefix_s[:, -1])
        first = np.array([numbers[i, way.first] if way.first >= 0 else -1 for i, way in enumerate(ways)])
        gather_s = back_s[first]
        backward = back_s[numbers].sum(axis=1) - gather_s

        def table(values: NDArray) -> NDArray:
            """[ways, …, members] as [members, rows, columns, …]."""
            return np.moveaxis(values.reshape(len(makers), len(readers), *values.shape[1:]), -1, 0)

        def numbered(values: Sequence[object]) -> Numbers:
            return np.array(values, dtype=np.intp).reshape(len(makers), len(readers), -1)

        return PairCost(
            table(forward), table(backward), numbered([w.gather for w in ways])[..., 0], table(gather_s),
            table(np.where(first[:, None] >= 0, after_B[first], 0.0)),
            numbered([(*w.prefix, *(-1,) * (longest - len(w.prefix))) for w in ways]),
            table(np.where(numbers[..., None] >= 0, prefix_s, 0.0)),
        )  # fmt: skip

    def _way(self, source: int, target: int) -> _Way:
        """The way from layout number `source` to layout number `target`."""
        key = (source, target)
        if key not in self._ways:
            self._ways[key] = self._found(self._layouts.items[source], self._layouts.items[target])
        return self._ways[key]

    def _found(self, source: Layout, target: Layout) -> _Way:
        try:
            steps = redistribute(source, target, self._enable_alltoall)
        except InvalidStrategyError:
            return NO_WAY
        elements = math.prod(source.shape)
        nodes: list[int] = []
        prefix: list[int] = []
        gather = first = -1
        reshaped: tuple[int, ...] | None = None
        before = elements // math.prod(source.slice_shape)
        for place, step in enumerate(steps):
            group = step.group
            after = elements // math.prod(step.output_shape)
            parts = step.pieces if group is None else group.size
            nodes.append(self._node(_Node(step.kind, GRADIENT_KIND[step.kind], group, before, after, parts)))
            if not self._possible[nodes[-1]]:
                return NO_WAY
            before = after
            ranks = group.ranks() if group is not None else None
            form = (step.kind, step.input_shape, step.output_shape, ranks, step.dim, step.concat_dim, step.pieces)
            parent = prefix[-1] if prefix else -1
            prefix.append(self._prefixes.of((parent, self._forms.of(form))))
            only_views = place == 0 or (place == 1 and reshaped is not None)
            if step.kind == "AllGather" and only_views:
                gather = self._gathers.of((ranks, reshaped))
                first = place
            if step.kind == "Reshape" and place == 0:
                reshaped = step.output_shape
        return _Way(tuple(nodes), tuple(prefix), gather, first)

    def _node(self, node: _Node) -> int:
        """The number of `node`; whether it cuts a tensor alike on every mesh of the family is noted beside it."""
        number = self._nodes.of(node)
        if number == len(self._possible):
            family, parts = self._pricer.family, (node.before, node.after, node.parts)
            of_group = node.group is None or family.shape_of(node.group) is not None
            self._possible.append(of_group and all(family.degree(n) is not None for n in parts))
        return number

    def _priced(self, nodes: Sequence[_Node], whole_B: float, power: int) -> tuple[Array, Array, Array]:
        """Seconds forward and back, and bytes of the output, of a tensor of `whole_B`: [nodes and a row of zeros, members]."""
        pricer = self._pricer
        found = np.zeros((3, len(nodes) + 1, pricer.family.members))
        if not nodes:
            return found[0], found[1], found[2]
        grown = whole_B * pricer.family.grown(power)
        before_B, after_B = (
            grown / pricer.degrees(n.before for n in nodes),
            grown / pricer.degrees(n.after for n in nodes),
        )
        there = pricer.nodes_s([pricer.number(n.kind, n.group) for n in nodes], before_B, after_B)
        back = pricer.nodes_s([pricer.number(n.opposite, n.group) for n in nodes], after_B, before_B)
        # What is cut in one part on a member is nothing there.
        idle = [n.kind not in COLLECTIVES and n.kind != "Reshape" for n in nodes]
        nothing = np.array(idle)[:, None] & (pricer.degrees(n.parts for n in nodes) == 1)
        found[:, :-1] = np.where(nothing, 0.0, there), np.where(nothing, 0.0, back), after_B
        return found[0], found[1], found[2]


def common_s(first: PairCost, second: PairCost) -> Array:
    """Seconds of the steps that the ways to reader i and to reader j begin with alike, over (member, maker, i, j)."""
    found: Array = np.zeros((*first.forward_s.shape, second.forward_s.shape[2]))
    for step in range(min(first.prefix.shape[-1], second.prefix.shape[-1])):
        alike = first.prefix[:, :, None, step] == second.prefix[:, None, :, step]
        found = np.where(alike & (first.prefix[:, :, None, step] >= 0), first.prefix_s[:, :, :, None, step], found)
    return found


@lru_cache(maxsize=1 << 16)
def _shrunk(layout: Layout) -> Layout:
    """`layout` of a small tensor whose dims can be cut in the same ways, without device axes of one device."""
    plain = plain_layout(layout)
    device_num = plain.device_num
    return Layout(plain.device_matrix, plain.tensor_map, tuple(_small(n, device_num) for n in plain.shape))


def _small(size: int, device_num: int) -> int:
    """The smallest size that `device_num`, twice over, divides like `size`, and that leaves a rest where `size` does."""
    common = math.gcd(size, device_num * device_num)
    return common if common == size else 2 * common


def distinct(layouts: Sequence[Layout]) -> tuple[tuple[Layout, ...], Numbers]:
    """The different layouts of a row of candidates, and which one each candidate has."""
    number: dict[Layout, int] = {}
    first: list[Layout] = []
    which = []
    for layout in layouts:
        which.append(number.setdefault(plain_layout(layout), len(first)))
        if which[-1] == len(first):
            first.append(layout)
    return tuple(first), np.array(which, dtype=np.intp)


@lru_cache(maxsize=1 << 16)
def plain_layout(layout: Layout) -> Layout:
    """The same layout without device axes of one device: what decides which rank holds what."""
    axes = [i for i, n in enumerate(layout.device_matrix) if n > 1]
    matrix = tuple(layout.device_matrix[i] for i in axes)
    last = len(layout.device_matrix) - 1
    place: Mapping[int, int] = {last - i: len(axes) - 1 - k for k, i in enumerate(axes)}
    return Layout(matrix, tuple(place.get(a, -1) for a in layout.tensor_map), layout.shape)


def same_layout(first: tuple[Layout, ...], second: tuple[Layout, ...]) -> NDArray[np.bool_]:
    """Whether candidate i of one end and candidate j of another hold the tensor alike."""
    number: dict[Layout, int] = {}
    code: Callable[[Layout], int] = lambda layout: number.setdefault(plain_layout(layout), len(number))  # noqa: E731 # one use
    left, right = np.array([code(x) for x in first]), np.array([code(x) for x in second])
    same: NDArray[np.bool_] = left[:, None] == right[None, :]
    return same
