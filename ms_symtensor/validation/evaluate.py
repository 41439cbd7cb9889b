"""Predictions for a dataset, next to what was measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.load import known_clusters
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.dataset import Case, Dataset, Exclusion, UnusableRowError
from ms_symtensor.validation.pricing import Predicted, predict

Numbers = NDArray[np.float64]


Predictor = Callable[[Configuration, Cluster], Predicted]


@dataclass(frozen=True)
class Outcome:
    """What was predicted for every case of a dataset: arrays in the order of `Dataset.cases`."""

    step_time_s: Numbers
    memory_B: Numbers
    fits: NDArray[np.bool_]
    mfu: Numbers

    def of(self, cases: Sequence[int]) -> "Outcome":
        """That of some of the cases, by their places."""
        chosen = list(cases)
        return Outcome(self.step_time_s[chosen], self.memory_B[chosen], self.fits[chosen], self.mfu[chosen])


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


def outcome(cases: Sequence[Case], cluster: Cluster, predictor: Predictor = predict) -> Outcome:
    """Predictions for `cases`; memory is that of the stage and the step that was measured.

    Raises:
        UnusableRowError: for a case that cannot be priced (`priceable` leaves these out).
    """
    found = [predictor(case.configuration, cluster) for case in cases]
    memory = []
    for case, one in zip(cases, found, strict=True):
        stages = one.first_step_memory_B if case.measured.first_step else one.stage_memory_B
        memory.append(max(stages) if case.measured.stage is None else stages[case.measured.stage])
    return Outcome(
        np.array([one.step_time_s for one in found], dtype=float),
        np.array(memory, dtype=float),
        np.array([one.fits for one in found], dtype=bool),
        np.array([one.mfu for one in found], dtype=float),
    )


def priceable(dataset: Dataset, cluster: Cluster, predictor: Predictor = predict) -> Dataset:
    """`dataset` without what `cluster`, the zoo or the layouts cannot express: these rows become exclusions, with the reason."""
    cases, pairs, excluded = [], [], list(dataset.excluded)
    for case in dataset.cases:
        if reason := _why_not((case.configuration,), cluster, predictor):
            excluded.append(Exclusion(case.line, reason))
        else:
            cases.append(case)
    for pair in dataset.pairs:
        if reason := _why_not((pair.better, pair.worse), cluster, predictor):
            excluded.append(Exclusion(pair.line, reason))
        else:
            pairs.append(pair)
    every = tuple(sorted(excluded, key=lambda one: one.line))
    return replace(dataset, cases=tuple(cases), pairs=tuple(pairs), excluded=every)


def _why_not(configurations: Sequence[Configuration], cluster: Cluster, predictor: Predictor) -> str:
    """Why one of `configurations` cannot be priced; empty if all can."""
    for one in configurations:
        if cluster.max_ranks is not None and one.device_num > cluster.max_ranks:
            raise InputError(
                f"cluster {cluster.name} has {cluster.max_ranks} devices, and {one.device_num} were measured: give another one"
            )
        try:
            predictor(one, cluster)
        except UnusableRowError as reason:
            return str(reason)
    return ""


def pair_outcome(dataset: Dataset, cluster: Cluster, predictor: Predictor = predict) -> PairOutcome:
    """A pair is right if `better` makes more tokens per second and device or, by memory, fits where `worse` does not."""
    correct = []
    for pair in dataset.pairs:
        better, worse = (predictor(side, cluster) for side in (pair.better, pair.worse))
        if pair.by_memory:
            correct.append(better.fits and not worse.fits)
            continue
        speeds = [
            side.tokens / side.device_num / one.step_time_s
            for side, one in ((pair.better, better), (pair.worse, worse))
        ]
        correct.append(speeds[0] > speeds[1])
    return PairOutcome(np.array(correct, dtype=bool))
