"""Predictions for a dataset, next to what was measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.load import known_clusters
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.configuration import Configuration
from ms_symtensor.errors import InputError
from ms_symtensor.validation.dataset import Case, Dataset, Exclusion

Numbers = NDArray[np.float64]


class Predicted(Protocol):
    """What a predictor returns, one entry per configuration: see cost.prediction.Predictions."""

    @property
    def step_time_s(self) -> Any: ...
    @property
    def peak_memory_B(self) -> Any: ...
    @property
    def stage_memory_B(self) -> Any: ...
    @property
    def first_step_memory_B(self) -> Any: ...
    @property
    def fits(self) -> Any: ...
    @property
    def mfu(self) -> Any: ...


Predictor = Callable[[Sequence[Configuration], Cluster], Predicted]


@dataclass(frozen=True)
class Outcome:
    """What was predicted for every case of a dataset: arrays in the order of `Dataset.cases`."""

    step_time_s: Numbers
    memory_B: Numbers
    fits: NDArray[np.bool_]
    mfu: Numbers


@dataclass(frozen=True)
class PairOutcome:
    """Whether each pair of a dataset, in their order, was predicted as it was measured."""

    correct: NDArray[np.bool_]


def of_cluster(dataset: Dataset, cluster: Cluster) -> Dataset:
    """Without the cases that were measured on another known cluster: these become exclusions."""
    own = next((name for name in sorted(known_clusters(), key=len, reverse=True) if cluster.name.startswith(name)), "")

    def elsewhere(case: Case) -> bool:
        return bool(own and case.device) and not own.startswith(case.device)

    moved = tuple(Exclusion(c.line, f"measured on {c.device}") for c in dataset.cases if elsewhere(c))
    kept = tuple(case for case in dataset.cases if not elsewhere(case))
    return replace(dataset, cases=kept, excluded=tuple(sorted((*dataset.excluded, *moved), key=lambda e: e.line)))


def outcome(cases: Sequence[Case], cluster: Cluster, predict: Predictor) -> Outcome:
    """Predictions for `cases`, all at once; memory is that of the stage and the step that was measured."""
    if not cases:
        none = np.empty(0)
        return Outcome(none, none, none.astype(bool), none)
    found = _predicted([case.configuration for case in cases], cluster, predict)
    memory = np.array(found.peak_memory_B, dtype=float)
    for index, case in enumerate(cases):
        stages = found.first_step_memory_B if case.measured.first_step else found.stage_memory_B
        memory[index] = stages[index].max() if case.measured.stage is None else stages[index, case.measured.stage]
    return Outcome(np.asarray(found.step_time_s, dtype=float), memory, np.asarray(found.fits), np.asarray(found.mfu))


def _predicted(configurations: Sequence[Configuration], cluster: Cluster, predict: Predictor) -> Predicted:
    """The predictions; InputError for more devices than `cluster` has."""
    most = max((one.device_num for one in configurations), default=0)
    if cluster.max_ranks is not None and most > cluster.max_ranks:
        raise InputError(
            f"cluster {cluster.name} has {cluster.max_ranks} devices, and {most} were measured: give another one"
        )
    return predict(configurations, cluster)


def pair_outcome(dataset: Dataset, cluster: Cluster, predict: Predictor) -> PairOutcome:
    """A pair is right if `better` makes more tokens per second and device or, by memory, fits where `worse` does not."""
    if not dataset.pairs:
        return PairOutcome(np.empty(0, dtype=bool))
    sides = [side for pair in dataset.pairs for side in (pair.better, pair.worse)]
    found = _predicted(sides, cluster, predict)
    speed = np.array([c.tokens / c.device_num for c in sides]) / found.step_time_s
    faster = speed[0::2] > speed[1::2]
    fits = np.asarray(found.fits)
    by_memory = np.array([pair.by_memory for pair in dataset.pairs])
    return PairOutcome(np.where(by_memory, fits[0::2] & ~fits[1::2], faster))
