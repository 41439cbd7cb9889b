"""Times of kernels and passes after a calibration on those of other models."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.validation.calibrate import explaining, in_turns
from ms_symtensor.validation.constants import constants_of
from ms_symtensor.validation.timings import Compared, compared


def leave_one_model_out(rows: Sequence[Compared], steps: int, seed: int) -> tuple[Compared, ...]:
    """`rows` as they are predicted with the constants that explain `steps` times of other models on the same cluster best, which
    `seed` draws, a kind again only when all others have come as often.

    Errors: InputError where a cluster has times of one model only.
    """
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    found = list(rows)
    for cluster, model in dict.fromkeys((row.cluster, row.timing.model) for row in rows):
        drawn = (rows[n] for n in order if rows[n].cluster == cluster and rows[n].timing.model != model)
        others = in_turns(drawn, lambda row: row.timing.kind)[:steps]
        if not others:
            raise InputError(f"calibration takes times of other models, and {model} is the only one on {cluster}")
        fitted = _fitted(others, load(cluster))
        for number, row in enumerate(rows):
            if (row.cluster, row.timing.model) == (cluster, model):
                found[number] = replace(row, predicted_s=compared(row.timing, fitted).predicted_s)
    return tuple(found)


def _fitted(rows: Sequence[Compared], cluster: Cluster) -> Cluster:
    measured = np.array([row.measured_s for row in rows])

    def times(changed: Cluster) -> np.ndarray:
        return np.array([compared(row.timing, changed).predicted_s for row in rows])

    of_kernels = all(isinstance(row.timing.run, tuple) for row in rows)
    return explaining(cluster, constants_of(cluster, of_kernels), times, measured)[0]
