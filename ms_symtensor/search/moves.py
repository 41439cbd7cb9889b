"""Carrying tensors between lists of layouts: what every way costs, and what two ways have in common."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import move_cost
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import Layout
from ms_symtensor.tensor.redistribution import Step, redistribute

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class PairCost:
    """Carrying a tensor from every layout of its maker (rows) to every layout of a reader (columns).

    `forward_s` is inf where MindSpore finds no way; `backward_s` leaves out the way back of a first AllGather, which
    `gather_s` holds, with the bytes of what it gathers in `gathered_B`; `gather` numbers the different first AllGathers (-1:
    none). `prefix` numbers the beginnings of the ways, step by step (last axis): two ways share those steps whose numbers are
    equal; `prefix_s` is their time.
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


@dataclass(frozen=True)
class _Way:
    """One redistribution, priced."""

    forward_s: float
    backward_s: float = 0.0
    gather: int = -1
    gather_s: float = 0.0
    gathered_B: float = 0.0
    prefix: tuple[int, ...] = ()
    prefix_s: tuple[float, ...] = ()


class Pairs:
    """Move costs between lists of layouts, computed once per pair of distinct layouts."""

    def __init__(self, cluster: Cluster, enable_alltoall: bool) -> None:
        self._cluster, self._enable_alltoall = cluster, enable_alltoall
        self._cache: dict[tuple, PairCost] = {}
        self._prefixes: dict[tuple, int] = {}
        self._gathers: dict[tuple, int] = {}
        self._ways: dict[tuple, _Way] = {}
        self._steps: dict[tuple[Step, float], tuple[tuple, float, float]] = {}

    def cost(self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], dtype: str) -> PairCost:
        """The costs for every pair."""
        key = (makers, readers, size_B(dtype))
        if key not in self._cache:
            self._cache[key] = self._compute(makers, readers, size_B(dtype))
        return self._cache[key]

    def _compute(self, makers: tuple[Layout, ...], readers: tuple[Layout, ...], element_B: int) -> PairCost:
        rows, row_of = _distinct(makers)
        columns, column_of = _distinct(readers)
        ways = [[self._way(plain_layout(a), plain_layout(b), element_B) for b in columns] for a in rows]
        index = np.ix_(row_of, column_of)

        longest = max(1, max(len(way.prefix) for row in ways for way in row))

        def table(of: Callable[[_Way], object], kind: type) -> NDArray:
            found: NDArray = np.array([[of(way) for way in row] for row in ways], dtype=kind)[index]
            return found

        def padded(values: tuple, filler: float) -> tuple:
            return (*values, *(filler,) * (longest - len(values)))

        return PairCost(
            table(lambda w: w.forward_s, float), table(lambda w: w.backward_s, float), table(lambda w: w.gather, np.intp),
            table(lambda w: w.gather_s, float), table(lambda w: w.gathered_B, float),
            table(lambda w: padded(w.prefix, -1), np.intp), table(lambda w: padded(w.prefix_s, 0.0), float),
        )  # fmt: skip

    def _way(self, source: Layout, target: Layout, element_B: int) -> _Way:
        """The way from `source` to `target`.

        The steps depend on the sizes of dims only through what divides them: they are found on a small tensor of the same
        kind (shared by all tensors of that kind) and priced for the bytes of the real one.
        """
        scale = 1.0
        if source.shape == target.shape:
            small = tuple(_small(n, source.device_num) for n in source.shape)
            scale = math.prod(source.shape) / max(math.prod(small), 1)
            source = Layout(source.device_matrix, source.tensor_map, small)
            target = Layout(target.device_matrix, target.tensor_map, small)
        key = (source, target, element_B * scale)
        if key not in self._ways:
            self._ways[key] = self._priced(source, target, element_B * scale)
        return self._ways[key]

    def _priced(self, source: Layout, target: Layout, element_B: float) -> _Way:
        try:
            steps = redistribute(source, target, self._enable_alltoall)
        except InvalidStrategyError:
            return _Way(math.inf)
        forward = backward = 0.0
        prefix: list[int] = []
        sums: list[float] = []
        gather = -1
        gather_s = gathered_B = 0.0
        reshaped: tuple[int, ...] | None = None
        for step in steps:
            form, there_s, back_s = self._step(step, element_B)
            forward += there_s
            parent = prefix[-1] if prefix else -1
            prefix.append(self._prefixes.setdefault((parent, form), len(self._prefixes)))
            sums.append(forward)
            only_views = len(prefix) == 1 or (len(prefix) == 2 and reshaped is not None)
            if step.kind == "AllGather" and only_views and step.group is not None:
                gather = self._gathers.setdefault((step.group.ranks(), reshaped), len(self._gathers))
                gather_s, gathered_B = back_s, math.prod(step.output_shape) * element_B
            else:
                backward += back_s
            if step.kind == "Reshape" and len(prefix) == 1:
                reshaped = step.output_shape
        return _Way(forward, backward, gather, gather_s, gathered_B, tuple(prefix), tuple(sums))

    def _step(self, step: Step, element_B: float) -> tuple[tuple, float, float]:
        """What makes two steps on one tensor the same node, and the seconds of one forward and back."""
        key = (step, element_B)
        if key not in self._steps:
            ranks = step.group.ranks() if step.group is not None else None
            form = (step.kind, step.input_shape, step.output_shape, ranks, step.dim, step.concat_dim, step.pieces)
            there, back = move_cost(self._cluster, (step,), element_B)
            self._steps[key] = form, there.time_s, back.time_s
        return self._steps[key]


def common_s(first: PairCost, second: PairCost) -> Array:
    """Seconds of the steps that the ways to reader i and to reader j begin with alike, over (maker, i, j)."""
    steps = min(first.prefix.shape[-1], second.prefix.shape[-1])
    alike = first.prefix[:, :, None, :steps] == second.prefix[:, None, :, :steps]
    found: Array = np.max(np.where(alike, first.prefix_s[:, :, None, :steps], 0.0), axis=-1)
    return found


def _small(size: int, device_num: int) -> int:
    """The smallest size that `device_num`, twice over, divides like `size`, and that leaves a rest where `size` does."""
    common = math.gcd(size, device_num * device_num)
    return common if common == size else 2 * common


def _distinct(layouts: tuple[Layout, ...]) -> tuple[list[Layout], NDArray[np.intp]]:
    """The different layouts of a row of candidates, and which one each candidate has."""
    seen: dict[Layout, int] = {}
    chosen: list[Layout] = []
    which = []
    for layout in layouts:
        plain = plain_layout(layout)
        if plain not in seen:
            seen[plain] = len(chosen)
            chosen.append(layout)
        which.append(seen[plain])
    return chosen, np.array(which, dtype=np.intp)


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
