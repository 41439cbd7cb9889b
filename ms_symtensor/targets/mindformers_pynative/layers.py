"""The layers of a stage, those that run alike together."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, Ranges, Recompute
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape, once

MODULES = ("self_attention", "mlp")
EXCHANGES = ("mlp.experts.input.alltoallsingle", "mlp.experts.output.alltoallsingle")
"""Tokens to the experts and back, as MindFormers names these slots of communication (expert_parallel.py, `register_comm_op`)."""
PREDICTED = "transformer_layer."
"""Where a layer of multi-token prediction has its modules."""


@dataclass(frozen=True)
class Kind:
    """What a layer is, and what of it is recomputed."""

    routed: bool
    """Whether it has experts."""
    predicts: bool
    """Whether it is one of multi-token prediction."""
    whole: bool
    """Whether all of it is recomputed; else `modules` of it."""
    modules: tuple[str, ...]
    kept: tuple[str, ...] = ()
    """Of EXCHANGES, those whose results are kept although `mlp` is recomputed."""
    ratio: int = 0
    """How many tokens it compresses into one key (`shape.Compressed`)."""

    def repeats(self, module: str) -> bool:
        """Whether `module` runs once more before its gradient."""
        return self.whole or module in self.modules


def kinds_of(shape: ModelShape, degrees: Degrees, stage: int) -> Counter[Kind]:
    """How many layers of each kind a stage has."""
    return _kinds(shape, degrees.chunks(shape.layers)[stage], degrees.recompute)


def unlike(shape: ModelShape, degrees: Degrees) -> list[tuple[int, int]]:
    """Stages that differ in their layers, with how many are alike: the first of those, which keeps the most micro-batches."""
    return _unlike(shape, degrees.chunks(shape.layers), degrees.recompute)


@once
def _unlike(shape: ModelShape, chunks: tuple[Ranges, ...], recomputation: Recompute) -> list[tuple[int, int]]:
    found: dict[object, list[int]] = {}
    for stage, bounds in enumerate(chunks):
        kinds = frozenset(_kinds(shape, bounds, recomputation).items())
        alike = (kinds, bounds[0][0] == 0, bounds[-1][1] == shape.layers - 1)
        found.setdefault(alike, []).append(stage)
    return [(stages[0], len(stages)) for stages in found.values()]


@once
def _kinds(shape: ModelShape, bounds: Ranges, recomputation: Recompute) -> Counter[Kind]:
    """Layers between which nothing changes are looked at once."""
    ranges = [
        *recomputation.layers,
        *(one for _, chosen in (*recomputation.modules, *recomputation.kept) for one in chosen),
    ]
    changes = {shape.layers, *(first for first, _ in ranges), *(last + 1 for _, last in ranges)}
    if shape.experts:
        changes.add(shape.experts.first_dense)
    if shape.compressed:
        changes |= {n for n, (one, other) in enumerate(pairwise(shape.compressed.ratios), 1) if one != other}
    found: Counter[Kind] = Counter()
    for first, last in bounds:
        end = last + 1 + (shape.predicted_tokens if last == shape.layers - 1 else 0)
        points = sorted({first, end, *(point for point in changes if first < point < end)})
        for begin, following in pairwise(points):
            found[kind_of(shape, recomputation, begin)] += following - begin
    return found


def kind_of(shape: ModelShape, recomputation: Recompute, layer: int) -> Kind:
    """What `layer` is."""
    whole = recomputation.whole(layer)
    modules: tuple[str, ...] = ()
    inside = "" if layer < shape.layers else PREDICTED
    if recomputation.modules:
        modules = tuple(name for name in MODULES if recomputation.module(inside + name, layer))
    kept: tuple[str, ...] = ()
    if recomputation.kept and shape.has_experts(layer) and (whole or "mlp" in modules):
        kept = tuple(name for name in EXCHANGES if recomputation.keeps(inside + name, layer))
    return Kind(shape.has_experts(layer), layer >= shape.layers, whole, modules, kept, shape.ratio(layer))


def starts(shape: ModelShape, degrees: Degrees, stage: int) -> bool:
    """Whether a stage has the first layer."""
    return degrees.chunks(shape.layers)[stage][0][0] == 0


def ends(shape: ModelShape, degrees: Degrees, stage: int) -> bool:
    """Whether a stage has the last layer."""
    return degrees.chunks(shape.layers)[stage][-1][1] == shape.layers - 1
