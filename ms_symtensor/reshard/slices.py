"""Which slice of a tensor every rank of a plan holds.

Ranks: stage by stage, as MindSpore counts them, in each replica by replica, in each as the layouts of the stage count them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.program.program import ParameterPlacement, Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.tensor.layout import DeviceGroup, Layout

STATES = ("adam_m", "adam_v")
"""What AdamWeightDecay puts before the names of weights for its states, of float32 both (`cost.parameter.STATES_B`)."""


@dataclass(frozen=True)
class Slices:
    """How a tensor lies on the ranks of one stage: `layout`, and dim 0 of its slices cut `shard` ways more over `gather`."""

    layout: Layout
    shard: int = 1
    gather: DeviceGroup | None = None

    @property
    def cuts(self) -> tuple[int, ...]:
        """Into how many equal parts each dim is cut."""
        cuts = self.layout.cuts
        return (cuts[0] * self.shard, *cuts[1:]) if cuts else cuts

    @cached_property
    def parts(self) -> NDArray[np.int64]:
        """The part of each dim that a rank of the stage holds: an array [ranks, dims]."""
        ranks = np.arange(self.layout.device_num)
        columns = []
        for axis in self.layout.tensor_map:
            stride = math.prod(self.layout.device_matrix[len(self.layout.device_matrix) - axis :]) if axis > 0 else 1
            cut = self.layout.device_matrix[-1 - axis]
            columns.append(ranks // stride % cut if axis >= 0 else np.zeros_like(ranks))
        found = np.stack(columns, axis=1) if columns else np.zeros((len(ranks), 0), dtype=np.int64)
        if self.gather is not None:
            position = [self.gather.ranks(rank).index(rank) for rank in range(len(ranks))]
            found[:, 0] = found[:, 0] * self.shard + np.array(position)
        return found


@dataclass(frozen=True)
class Held:
    """A tensor of global `shape` and `dtype` under `name`; its slices by the stage that holds it.

    `fresh`: the stages whose slices are up to date; one that only reads a weight is sent it in every step.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stages: tuple[tuple[int, Slices], ...]
    fresh: tuple[int, ...]
    is_state: bool = False


@dataclass(frozen=True)
class Side:
    """All tensors of one plan on `replicas` times `stage_num` times `stage_ranks` ranks."""

    tensors: tuple[Held, ...]
    stage_num: int
    stage_ranks: int
    replicas: int = 1

    @property
    def rank_num(self) -> int:
        return self.replicas * self.stage_num * self.stage_ranks

    def holds(self, held: Held, grid: tuple[int, ...], fresh_only: bool = False) -> NDArray[np.bool_]:
        """Which cells of `grid` (cells per dim, in C order) each rank holds: an array [ranks, cells]."""
        one = np.zeros((self.stage_num, self.stage_ranks, math.prod(grid)), dtype=bool)
        for stage, slices in held.stages:
            if not fresh_only or stage in held.fresh:
                one[stage] = _cells(slices, grid)
        return np.tile(one, (1, self.replicas, 1)).reshape(-1, math.prod(grid))


def side_of(programs: Sequence[Program | StageProgram], has_states: bool) -> Side:
    """The weights of a plan whose stages have `programs`, and with `has_states` the optimizer's states, as they are stored."""
    of_name: dict[str, list[tuple[int, ParameterPlacement]]] = {}
    for stage, program in enumerate(programs):
        for name, placement in program.parameters.items():
            of_name.setdefault(name, []).append((stage, placement))
    tensors = []
    for name, places in of_name.items():
        first = places[0][1]
        held = Held(
            name,
            first.layout.shape,
            first.dtype,
            tuple((stage, _slices(one)) for stage, one in places),
            tuple(stage for stage, one in places if one.owner is None),
        )
        tensors.append(held)
        if has_states and first.requires_grad:
            owned = tuple(one for one in held.stages if one[0] in held.fresh)
            states = (
                replace(held, name=f"{state}.{name}", dtype="float32", stages=owned, is_state=True) for state in STATES
            )
            tensors += states
    one = programs[0]
    ranks = one.micro.device_num if isinstance(one, StageProgram) else one.device_num
    return Side(tuple(tensors), len(programs), ranks)


def as_rollout(side: Side, dtype: str | None, replicas: int) -> Side:
    """`side` as what generates: `replicas` of it, weights only, whole over their copies, floats in `dtype` if given."""
    tensors = tuple(
        replace(one, stages=tuple((stage, Slices(slices.layout)) for stage, slices in one.stages))
        for one in side.tensors
        if not one.is_state
    )
    return in_type(replace(side, tensors=tensors, replicas=replicas), dtype)


def in_type(side: Side, dtype: str | None) -> Side:
    """`side` with its floats in `dtype`, if given."""
    if dtype is None:
        return side
    return replace(
        side, tensors=tuple(replace(one, dtype=dtype) if "float" in one.dtype else one for one in side.tensors)
    )


def _slices(placement: ParameterPlacement) -> Slices:
    if placement.gather is None or placement.shard == 1:
        return Slices(placement.layout)
    return Slices(placement.layout, placement.shard, placement.gather)


def _cells(slices: Slices, grid: tuple[int, ...]) -> NDArray[np.bool_]:
    parts = slices.parts
    found = np.ones((len(parts), 1), dtype=bool)
    for dim, (cells, cut) in enumerate(zip(grid, slices.cuts, strict=True)):
        here = np.arange(cells)[None, :] // (cells // cut) == parts[:, dim : dim + 1]
        found = (found[:, :, None] & here[:, None, :]).reshape(len(parts), -1)
    return found
