"""Carrying tensors between lists of layouts: what every way costs, and what two ways have in common."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.program import COLLECTIVES
from ms_symtensor.search.tables.pricing import Pricer
from ms_symtensor.search.tables.reshard_paths import Node, ReshardPath, ReshardPaths
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import Layout
from ms_symtensor.tensor.redistribution import SCATTERED

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class PairCost:
    """Carrying a tensor from every layout of its maker (rows) to every layout of a reader (columns).

    Seconds and bytes are [members, rows, columns]. `forward_s` is inf where MindSpore finds no way; `backward_s` leaves out
    the way back of a first AllGather, which `gather_s` holds, with the bytes of what it gathers in `gathered_B`; `gather`
    [rows, columns] numbers the different first AllGathers (-1: none). The nodes of the `paths` have the numbers `nodes` [rows,
    columns, steps] and take `node_s` [nodes, members].
    """

    forward_s: Array
    backward_s: Array
    gather: Numbers
    gather_s: Array
    gathered_B: Array
    paths: Sequence[ReshardPath]
    nodes: Numbers
    node_s: Array

    @cached_property
    def prefix(self) -> Numbers:
        """Numbers of the beginnings of the ways, step by step, [rows, columns, steps]: two ways share those steps whose numbers
        are equal.
        """
        return _padded([way.prefix for way in self.paths], -1).reshape(self.nodes.shape)

    @cached_property
    def prefix_s(self) -> Array:
        """The time of the first so many steps, [members, rows, columns, steps + 1]."""
        makers, readers, steps = self.nodes.shape
        found = np.zeros((makers, readers, steps + 1, self.node_s.shape[-1]))
        np.cumsum(self.node_s[self.nodes], axis=2, out=found[:, :, 1:])
        return np.moveaxis(found, -1, 0)

    @property
    def redistributions(self) -> NDArray[np.bool_]:
        """Whether the reader has a copy [members, rows, columns]: a Reshape is a view, and a slice of what is in one part."""
        found: NDArray[np.bool_] = self.forward_s > 0
        return found


NONE = 0
"""The row of prices that stands for no node."""


class Pairs:
    """Move costs between lists of layouts, computed once for each pair of lists."""

    def __init__(self, pricer: Pricer, enable_alltoall: bool) -> None:
        self._pricer, self._ways = pricer, ReshardPaths(pricer.family, enable_alltoall)
        self._cache: dict[tuple, PairCost] = {}

    def cost(
        self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], dtype: str, power: int, alike: bool = False
    ) -> PairCost:
        """The costs for every pair of different layouts, of a tensor whose size goes with the batch to the `power` 0 or 1; where
        both ends are cut `alike`, for the pairs that are.
        """
        key = (makers, readers, size_B(dtype), dtype in SCATTERED, power, alike)
        if key not in self._cache:
            self._cache[key] = self._compute(*key)
        return self._cache[key]

    def _compute(
        self,
        makers: tuple[Layout, ...],
        readers: tuple[Layout, ...],
        element_B: int,
        gathered: bool,
        power: int,
        alike: bool,
    ) -> PairCost:
        whole_B = _whole_B(makers, element_B)
        paths = self._ways.between(makers, readers, gathered, alike)
        nodes = list(dict.fromkeys(node for way in paths for node in way.nodes))
        row = {node: number for number, node in enumerate(nodes, NONE + 1)}
        numbers = _padded([[row[node] for node in way.nodes] for way in paths], NONE)
        there_s, back_s, after_B = self._prices(nodes, whole_B, power)
        exists, firsts, gather = np.array([(way.exists, way.first, way.gather) for way in paths]).T
        forward = np.where(exists[:, None], there_s[numbers].sum(axis=1), np.inf)
        first = np.where(firsts >= 0, numbers[np.arange(len(numbers)), firsts], NONE)
        gather_s = back_s[first]
        backward = back_s[numbers].sum(axis=1) - gather_s

        def table(values: Array) -> Array:
            """[ways, members] as [members, rows, columns]."""
            return values.reshape(len(makers), len(readers), -1).transpose(2, 0, 1)

        def numbered(values: Numbers) -> Numbers:
            return values.reshape(len(makers), len(readers), *values.shape[1:])

        return PairCost(
            table(forward), table(backward), numbered(gather), table(gather_s), table(after_B[first]),
            paths, numbered(numbers), there_s,
        )  # fmt: skip

    def _prices(self, nodes: Sequence[Node], whole_B: float, power: int) -> Array:
        """Of `nodes` that carry a tensor of so many bytes, which go with the batch to the power 0 or 1, [3, 1 + nodes, members]:
        seconds forward and back, and bytes of the output; the first of them is none.
        """
        pricer = self._pricer
        nothing = np.zeros((3, 1, pricer.family.members))
        if not nodes:
            return nothing
        grown = whole_B * pricer.family.grown(power)
        before_B, after_B = grown / pricer.coded(n.before for n in nodes), grown / pricer.coded(n.after for n in nodes)
        there = pricer.nodes_s([(n.kind, n.group) for n in nodes], before_B, after_B)
        back = pricer.nodes_s([(n.opposite, n.group) for n in nodes], after_B, before_B)
        # What is cut in one part on a member is nothing there.
        local = np.array([n.kind not in COLLECTIVES and n.kind != "Reshape" for n in nodes])[:, None]
        idle = local & (pricer.coded(n.parts for n in nodes) == 1)
        return np.concatenate(
            [nothing, np.stack([np.where(idle, 0.0, there), np.where(idle, 0.0, back), after_B])], axis=1
        )


def _padded(rows: Sequence[Sequence[int]], nothing: int) -> Numbers:
    """`rows` of one length, with `nothing` behind those that are shorter."""
    longest = max(1, max(map(len, rows)))
    return np.array([(*row, *(nothing,) * (longest - len(row))) for row in rows], dtype=np.intp)


def _whole_B(layouts: tuple[Layout, ...], element_B: int) -> float:
    """Bytes of the whole tensor that lies in one of `layouts`."""
    return float(math.prod(layouts[0].shape)) * element_B


def common_s(first: PairCost, second: PairCost) -> Array:
    """Seconds of the steps that the ways to reader i and to reader j begin with alike, over (member, maker, i, j)."""
    steps = min(first.prefix.shape[-1], second.prefix.shape[-1])
    left, right = first.prefix[:, :, None, :steps], second.prefix[:, None, :, :steps]
    common = ((left == right) & (left >= 0)).sum(axis=-1)
    makers, readers = np.ogrid[: common.shape[0], : common.shape[1]]
    found: Array = first.prefix_s[:, makers[..., None], readers[..., None], common]
    return found


def distinct(layouts: Sequence[Layout]) -> tuple[tuple[Layout, ...], Numbers]:
    """The different layouts of a row of candidates, and which one each candidate has."""
    number: dict[Layout, int] = {}
    first: list[Layout] = []
    which = []
    for layout in layouts:
        which.append(number.setdefault(layout.plain, len(first)))
        if which[-1] == len(first):
            first.append(layout)
    return tuple(first), np.array(which, dtype=np.intp)


def same_layout(first: tuple[Layout, ...], second: tuple[Layout, ...]) -> NDArray[np.bool_]:
    """Whether candidate i of one end and candidate j of another hold the tensor alike."""
    number: dict[Layout, int] = {}
    code: Callable[[Layout], int] = lambda layout: number.setdefault(layout.plain, len(number))  # noqa: E731 # one use
    left, right = np.array([code(x) for x in first]), np.array([code(x) for x in second])
    same: NDArray[np.bool_] = left[:, None] == right[None, :]
    return same
