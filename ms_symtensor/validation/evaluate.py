"""Predictions for a dataset, next to what was measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.cluster.load import known_clusters
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.validation.configuration import Step
from ms_symtensor.validation.dataset import Case, Dataset, Pair, UnusableRowError
from ms_symtensor.validation.pricing import Predicted, predict

Numbers = NDArray[np.float64]


Predictor = Callable[[Step, Cluster], Predicted]


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


def of_cluster(dataset: Dataset, cluster: Cluster) -> Dataset:
    """Without the cases that were measured on another known cluster: these become exclusions."""
    own = next((name for name in sorted(known_clusters(), key=len, reverse=True) if cluster.name.startswith(name)), "")

    def elsewhere(row: Case | Pair) -> str:
        device = row.device if isinstance(row, Case) else ""
        return f"measured on {device}" if own and device and not own.startswith(device) else ""

    return dataset.without(elsewhere)


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
    """`dataset` without what `cluster`, the zoo or the layouts cannot express: these rows become exclusions, with the reason.

    Raises:
        InputError: for a cluster that is smaller than one that was measured.
    """

    def why_not(row: Case | Pair) -> str:
        for one in row.steps:
            if cluster.max_ranks is not None and one.device_num > cluster.max_ranks:
                raise InputError(
                    f"cluster {cluster.name} has {cluster.max_ranks} devices, and {one.device_num} were measured:"
                    " give another one"
                )
            try:
                predictor(one, cluster)
            except UnusableRowError as reason:
                return str(reason)
        return ""

    return dataset.without(why_not)


def pair_outcome(dataset: Dataset, cluster: Cluster, predictor: Predictor = predict) -> tuple[bool, ...]:
    """A pair is right if `better` makes more tokens per second and device or, by memory, fits where `worse` does not."""
    correct = []
    for pair in dataset.pairs:
        better, worse = (predictor(side, cluster) for side in pair.steps)
        fast, slow = (
            side.tokens / side.device_num / one.step_time_s
            for side, one in zip(pair.steps, (better, worse), strict=True)
        )
        correct.append(better.fits and not worse.fits if pair.by_memory else fast > slow)
    return tuple(correct)
