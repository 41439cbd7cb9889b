"""A dataset's whole validation: read it, predict its rows, score them."""

from dataclasses import dataclass
from pathlib import Path

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.validation.calibrate import leave_one_group_out
from ms_symtensor.validation.dataset import Dataset
from ms_symtensor.validation.evaluate import Outcome, Predictor, of_cluster, outcome, pair_outcome, priceable
from ms_symtensor.validation.pricing import predict
from ms_symtensor.validation.reading import read
from ms_symtensor.validation.score import Score, score


@dataclass(frozen=True)
class Calibration:
    """Leave-one-group-out: every group is predicted after a fit to `steps` measured steps of others; `fits` in all, which took
    `measured` different steps.
    """

    steps: int
    seed: int
    fits: int
    measured: int


@dataclass(frozen=True)
class Validation:
    """The cases of `dataset` that belong to the cluster, their predictions and metrics; `calibration` None: data sheets only."""

    dataset: Dataset
    cluster: str
    calibration: Calibration | None
    outcome: Outcome
    score: Score


def validate(
    path: str | Path,
    cluster: Cluster,
    predictor: Predictor = predict,
    calibrate: int | None = None,
    seed: int = 0,
) -> Validation:
    """The validation of the cost model on the table at `path`. `calibrate`: number of measured steps of other groups to fit to.

    Errors: InputError for a table that is none, one without a usable row, or one without other groups to calibrate on.
    """
    dataset = priceable(of_cluster(read(path), cluster), cluster, predictor)
    if not dataset.cases and not dataset.pairs:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in dataset.reasons().items())
        raise InputError(f"{Path(path).name}: no row can be evaluated on {cluster.name} ({reasons or 'there is none'})")
    pairs = pair_outcome(dataset, cluster, predictor)
    if calibrate is None:
        found = outcome(dataset.cases, cluster, predictor)
        return Validation(dataset, cluster.name, None, found, score(dataset, found, pairs))
    found, fits = leave_one_group_out(dataset.cases, cluster, calibrate, seed, predictor)
    calibration = Calibration(calibrate, seed, len(fits), len({case for fit in fits for case in fit}))
    return Validation(dataset, cluster.name, calibration, found, score(dataset, found, pairs))
