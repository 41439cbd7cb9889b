"""Predictions against published measurements: the table of all datasets, each figure beside the bar it has to reach.

    python -m benchmarks.validation DATA [--seed 0] [--plots docs/validation]

DATA is the folder with vtrain_a100.csv, layouts_a100.csv and the others. Every figure is what `symtensor validate` prints; those
with calibration are means over DRAWS draws of the steps, as one draw may be lucky.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ms_symtensor.cluster.load import load
from ms_symtensor.report.text import table
from ms_symtensor.validation.score import GroupScore, Total
from ms_symtensor.validation.validate import Validation, validate

CALIBRATION_STEPS = 8
DRAWS = 5


@dataclass(frozen=True)
class Bar:
    """A figure of one validation and the least (or, `at_most`, the largest) value that is good enough."""

    file: str
    cluster: str
    what: str
    figure: Callable[[Validation], float | None]
    bar: float
    at_most: bool = False
    calibrated: bool = False

    def reached(self, value: float) -> bool:
        return value <= self.bar if self.at_most else value >= self.bar


def _part(name: str, key: Callable[[Total], float | None]) -> Callable[[Validation], float | None]:
    def figure(found: Validation) -> float | None:
        parts = {part.name: part for part in found.score.parts}
        return key(parts[name]) if name in parts else None

    return figure


def _total(key: Callable[[Total], float | None]) -> Callable[[Validation], float | None]:
    return lambda found: key(found.score.total)


def _confidence(*letters: str) -> Callable[[Validation], float | None]:
    def figure(found: Validation) -> float | None:
        groups = [g for g in found.score.groups if g.name.removeprefix("confidence ") in letters]
        return sum(g.pairs_correct for g in groups) / sum(g.pairs_total for g in groups) if groups else None

    return figure


def _slide(key: Callable[[GroupScore], float | None]) -> Callable[[Validation], float | None]:
    def figure(found: Validation) -> float | None:
        return next((key(g) for g in found.score.groups if g.name.startswith("MS|deepseek-v3")), None)

    return figure


_LARGE, _SMALL = "64-512 devices", "2-8 devices"
# fmt: off
BARS = (
    Bar("vtrain_a100", "a100_80g", "64-512 GPUs, Spearman", _part(_LARGE, lambda t: t.spearman_mean), 0.90),
    Bar("vtrain_a100", "a100_80g", "64-512 GPUs, mean regret", _part(_LARGE, lambda t: t.regret_mean), 0.01, True),
    Bar("vtrain_a100", "a100_80g", "64-512 GPUs, largest regret", _part(_LARGE, lambda t: t.regret_max), 0.04, True),
    Bar("vtrain_a100", "a100_80g", "64-512 GPUs, MAPE", _part(_LARGE, lambda t: t.mape), 0.10, True, True),
    Bar("vtrain_a100", "a100_80g", "2-8 GPUs, Spearman", _part(_SMALL, lambda t: t.spearman_mean), 0.90),
    Bar("vtrain_a100", "a100_80g", "2-8 GPUs, mean regret", _part(_SMALL, lambda t: t.regret_mean), 0.05, True),
    Bar("vtrain_a100", "a100_80g", "2-8 GPUs, Spearman", _part(_SMALL, lambda t: t.spearman_mean), 0.95, False, True),
    Bar("vtrain_a100", "a100_80g", "2-8 GPUs, mean regret", _part(_SMALL, lambda t: t.regret_mean), 0.02, True, True),
    Bar("vtrain_a100", "a100_80g", "2-8 GPUs, MAPE", _part(_SMALL, lambda t: t.mape), 0.10, True, True),
    Bar("layouts_a100", "a100_80g", "Spearman", _total(lambda t: t.spearman_mean), 0.90),
    Bar("layouts_a100", "a100_80g", "mean regret", _total(lambda t: t.regret_mean), 0.02, True),
    Bar("layouts_a100", "a100_80g", "OOM accuracy", _total(lambda t: t.fits.accuracy), 0.95),
    Bar("ultrascale_h100", "h100_80g", "Spearman", _total(lambda t: t.spearman_mean), 0.85),
    Bar("ultrascale_h100", "h100_80g", "mean regret", _total(lambda t: t.regret_mean), 0.05, True),
    Bar("ultrascale_h100", "h100_80g", "memory MAPE", _total(lambda t: t.memory_mape), 0.10, True),
    Bar("ultrascale_h100", "h100_80g", "OOM accuracy", _total(lambda t: t.fits.accuracy), 0.90),
    Bar("ascend_pairs", "atlas_800t_a2", "pairs of confidence A and A-", _confidence("A", "A-"), 1.0),
    Bar("ascend_pairs", "atlas_800t_a2", "pairs of confidence B", _confidence("B"), 0.80),
    Bar("st_baselines", "atlas_800t_a2", "Spearman over all", _total(lambda t: t.spearman_overall), 0.90),
    Bar("st_baselines", "atlas_800t_a2", "memory MAPE", _total(lambda t: t.memory_mape), 0.10, True),
    Bar("ms_dryrun_memory_deepseek3", "atlas_800t_a2", "memory MAPE", _total(lambda t: t.memory_mape), 0.10, True),
    Bar("ascend_measured", "atlas_800t_a2", "DeepSeek-V3 on 64: OOM accuracy", _slide(lambda g: g.fits.accuracy), 1.0),
    Bar("ascend_measured", "atlas_800t_a2", "DeepSeek-V3 on 64: MFU apart", _slide(lambda g: g.mfu_error), 0.03, True),
)
# fmt: on


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder with the tables")
    parser.add_argument("--seed", type=int, default=0, help="of the first draw of steps to calibrate on")
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help="write a plot of each dataset there (needs matplotlib)"
    )
    chosen = parser.parse_args()
    if chosen.plots and not find_spec("matplotlib"):
        parser.error("--plots needs matplotlib: pip install matplotlib")
    found: dict[tuple[str, bool], list[Validation]] = {}
    rows, missed = [], 0
    for bar in BARS:
        at = (bar.file, bar.calibrated)
        if at not in found:
            begun = time.perf_counter()
            table_file, cluster = chosen.data / f"{bar.file}.csv", load(bar.cluster)
            draws = [(CALIBRATION_STEPS, chosen.seed + n) for n in range(DRAWS)] if bar.calibrated else [(None, 0)]
            found[at] = [validate(table_file, cluster, calibrate=steps, seed=seed) for steps, seed in draws]
            elapsed = (time.perf_counter() - begun) / len(draws)
            print(f"{bar.file}{', calibrated' if bar.calibrated else ''}: {elapsed:.1f} s", file=sys.stderr)
        values = [value for validation in found[at] for value in [bar.figure(validation)] if value is not None]
        value = sum(values) / len(values) if values else None
        reached = value is not None and bar.reached(value)
        missed += not reached
        rows.append(
            (
                bar.file,
                "calibrated" if bar.calibrated else "zero-shot",
                bar.what,
                "none" if value is None else f"{value:.3f}",
                f"{'<=' if bar.at_most else '>='} {bar.bar:g}",
                "" if reached else "missed",
            )
        )
    print(table(rows, ("data", "", "figure", "value", "bar", ""), right=(3,), indent=0))
    print(f"\n{len(rows) - missed} of {len(rows)} reached")
    if chosen.plots:
        from benchmarks.validation_plots import write_plots

        write_plots({file: each[0] for (file, calibrated), each in found.items() if not calibrated}, chosen.plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
