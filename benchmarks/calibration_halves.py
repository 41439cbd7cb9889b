"""`calibrate` on eight steps of a random half of the MindFormers rows, judged on the other half.

    python -m benchmarks.calibration_halves DATA/ascend_measured.csv [--halves 50] [--steps 8]

Twice: with the data sheet as it is, and with one in which the peak of the cube and the bandwidth of the memory are 15 % too high.
Printed for each: median error of the other half before and after, the worst half, and the ratio of predicted over measured.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.report.text import table
from ms_symtensor.validation.calibrate import fit
from ms_symtensor.validation.dataset import Case
from ms_symtensor.validation.evaluate import Numbers, of_cluster, outcome, priceable
from ms_symtensor.validation.reading import read

PART = "MindFormers dense"
BIAS = 1.15


@dataclass(frozen=True)
class Half:
    """The other half of one seed: predicted over measured before and after, and whether the fit was taken."""

    before: Numbers
    after: Numbers
    gains: bool

    @property
    def points(self) -> float:
        """By how many points of a percent the median error grew."""
        return 100 * (_median_error(self.after) - _median_error(self.before))


def _median_error(ratios: Numbers) -> float:
    return float(np.median(np.abs(ratios - 1)))


def _ratios(cases: Sequence[Case], cluster: Cluster) -> Numbers:
    return outcome(cases, cluster).step_time_s / np.array([case.measured.step_time_s for case in cases], dtype=float)


def biased(cluster: Cluster) -> Cluster:
    """`cluster` as a data sheet that promises too much would have it."""
    device = cluster.device
    wrong = replace(
        device, cube_peak_FLOPs=device.cube_peak_FLOPs * BIAS, hbm_bandwidth_Bps=device.hbm_bandwidth_Bps * BIAS
    )
    return replace(cluster, device=wrong)


def half(cases: Sequence[Case], cluster: Cluster, steps: int, seed: int) -> Half:
    """The half of `seed`: `steps` of one half are calibrated on, the other half is judged."""
    order = np.random.default_rng(seed).permutation(len(cases))
    middle = len(cases) // 2
    chosen = [cases[i] for i in sorted(order[:middle][:steps])]
    others = [cases[i] for i in sorted(order[middle:])]
    found = fit(chosen, cluster)
    return Half(_ratios(others, cluster), _ratios(others, found.cluster), found.gains)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--cluster", default="atlas_800t_a2")
    parser.add_argument("--halves", type=int, default=50)
    parser.add_argument("--steps", type=int, default=8)
    chosen = parser.parse_args()
    cluster = load(chosen.cluster)
    data = priceable(of_cluster(read(chosen.table), cluster), cluster)
    cases = [case for case in data.cases if case.part == PART and case.measured.step_time_s is not None]
    rows: list[tuple[str, ...]] = []
    for name, one in (("as it is", cluster), ("15 % too high", biased(cluster))):
        halves = [half(cases, one, chosen.steps, seed) for seed in range(chosen.halves)]
        geometric = [float(np.exp(np.log(getattr(h, which)).mean())) for which in ("before", "after") for h in halves]
        rows.append(
            (
                name,
                f"{np.mean([_median_error(h.before) for h in halves]):.1%}",
                f"{np.mean([_median_error(h.after) for h in halves]):.1%}",
                f"{max(h.points for h in halves):+.1f}",
                f"{sum(h.gains for h in halves)}",
                f"{np.mean(geometric[: len(halves)]):.3f}",
                f"{np.mean(geometric[len(halves) :]):.3f}",
            )
        )
    print(f"{len(cases)} rows, {chosen.halves} halves, {chosen.steps} steps each")
    head = ("data sheet", "median error", "calibrated", "worst half, points", "taken", "ratio", "calibrated")
    print(table(rows, head, right=range(1, len(head))))


if __name__ == "__main__":
    main()
