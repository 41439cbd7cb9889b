"""Predictions against published measurements: the table of all datasets, each figure beside the bar it has to reach.

    python -m benchmarks.validation DATA [--plots plots] [--page docs/results/validation.md]

DATA is the folder with vtrain_a100.csv, layouts_a100.csv and the others. Every figure is what `symtensor validate` prints, from
data sheets only.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ms_symtensor.cluster.load import load
from ms_symtensor.report.html.trust import ACCURACY
from ms_symtensor.report.text import table
from ms_symtensor.validation.metrics import geometric_ratio, mape, spearman
from ms_symtensor.validation.score import Figures
from ms_symtensor.validation.validate import Validation, validate


@dataclass(frozen=True)
class Bar:
    """A figure of one validation and the least (or, `at_most`, the largest) value that is good enough."""

    file: str
    cluster: str
    what: str
    figure: Callable[[Validation], float | None]
    bar: float
    at_most: bool = False


def _part(name: str, key: Callable[[Figures], float | None]) -> Callable[[Validation], float | None]:
    def figure(found: Validation) -> float | None:
        parts = {part.name: part for part in found.score.parts}
        return key(parts[name]) if name in parts else None

    return figure


def _total(key: Callable[[Figures], float | None]) -> Callable[[Validation], float | None]:
    return lambda found: key(found.score.total)


def _confidence(*letters: str) -> Callable[[Validation], float | None]:
    def figure(found: Validation) -> float | None:
        groups = [g for g in found.score.groups if g.name.removeprefix("confidence ") in letters]
        return sum(g.pairs_correct for g in groups) / sum(g.pairs_total for g in groups) if groups else None

    return figure


CURVE = 4
"""Numbers of devices that a curve of weak scaling has at least."""


def weak_scaling(found: Validation) -> float | None:
    """Spearman's rank correlation of tokens per second and device along the curves of weak scaling, averaged over them: rows of
    one network and sequence on several numbers of devices, whose batches grow with the devices.
    """
    curves: dict[tuple, list[tuple[float, float]]] = {}
    numbers: dict[tuple, set[int]] = {}
    for predicted_s, case in zip(found.outcome.step_time_s, found.dataset.cases, strict=True):
        c, measured_s = case.configuration, case.measured.step_time_s
        if measured_s is not None:
            key, tokens = (c.model, c.seq_length, c.precision), c.tokens / c.device_num
            curves.setdefault(key, []).append((tokens / predicted_s, tokens / measured_s))
            numbers.setdefault(key, set()).add(c.device_num)
    ranks = [spearman(*np.array(of).T) for key, of in curves.items() if len(numbers[key]) >= CURVE]
    known = [one for one in ranks if one is not None]
    return float(np.mean(known)) if known else None


_LARGE, _SMALL = "64-512 devices", "2-8 devices"
_MF, _MS = "MindFormers dense", "MindSpeed dense"
_A2, _A100, _H100 = "atlas_800t_a2", "a100_80g", "h100_80g"
# fmt: off
BARS = (
    Bar("ascend_measured", _A2, "MindFormers dense, rows", _part(_MF, lambda t: t.rows), 40),
    Bar("ascend_measured", _A2, "MindFormers dense, MAPE", _part(_MF, lambda t: t.mape), 0.25, True),
    Bar("ascend_measured", _A2, "MindFormers dense, median error", _part(_MF, lambda t: t.median_error), 0.12, True),
    Bar("ascend_measured", _A2, "MindFormers dense, Spearman", _part(_MF, lambda t: t.spearman_overall), 0.85),
    Bar("ascend_measured", _A2, "MindFormers dense, ratio at least", _part(_MF, lambda t: t.geometric_ratio), 0.9),
    Bar("ascend_measured", _A2, "MindFormers dense, ratio at most", _part(_MF, lambda t: t.geometric_ratio), 1.1, True),
    Bar("ascend_measured", _A2, "MindSpeed dense, rows", _part(_MS, lambda t: t.rows), 60),
    Bar("ascend_measured", _A2, "MindSpeed dense, MAPE", _part(_MS, lambda t: t.mape), 0.15, True),
    Bar("ascend_measured", _A2, "told to fit that ran", _total(lambda t: t.fits.recall), 0.95),
    Bar("st_baselines", _A2, "rows", _total(lambda t: t.rows), 60),
    Bar("st_baselines", _A2, "MAPE", _total(lambda t: t.mape), 0.15, True),
    Bar("st_baselines", _A2, "memory MAPE", _total(lambda t: t.memory_mape), 0.12, True),
    Bar("ms_dryrun_memory_deepseek3", _A2, "memory MAPE", _total(lambda t: t.memory_mape), 0.05, True),
    Bar("ascend_pairs", _A2, "pairs of confidence A and A-", _confidence("A", "A-"), 1.0),
    Bar("ascend_pairs", _A2, "pairs of confidence B", _confidence("B"), 0.80),
    Bar("feature_ab", _A2, "signs of features", _confidence("sign"), 1.0),
    Bar("vtrain_a100", _A100, "rows", _total(lambda t: t.rows), 600),
    Bar("vtrain_a100", _A100, "64-512 GPUs, Spearman", _part(_LARGE, lambda t: t.spearman_mean), 0.85),
    Bar("vtrain_a100", _A100, "64-512 GPUs, mean regret", _part(_LARGE, lambda t: t.regret_mean), 0.02, True),
    Bar("vtrain_a100", _A100, "2-8 GPUs, Spearman", _part(_SMALL, lambda t: t.spearman_mean), 0.92),
    Bar("vtrain_a100", _A100, "2-8 GPUs, mean regret", _part(_SMALL, lambda t: t.regret_mean), 0.06, True),
    Bar("layouts_a100", _A100, "rows", _total(lambda t: t.rows), 400),
    Bar("layouts_a100", _A100, "Spearman", _total(lambda t: t.spearman_mean), 0.88),
    Bar("layouts_a100", _A100, "OOM accuracy", _total(lambda t: t.fits.accuracy), 0.95),
    Bar("ultrascale_h100", _H100, "Spearman", _total(lambda t: t.spearman_mean), 0.75),
    Bar("ultrascale_h100", _H100, "mean regret", _total(lambda t: t.regret_mean), 0.03, True),
    Bar("nvidia_misc", _A100, "rows on A100", _total(lambda t: t.rows), 125),
    Bar("nvidia_misc", _H100, "rows on H100", _total(lambda t: t.rows), 75),
    Bar("nvidia_misc", _H100, "weak scaling on H100, Spearman", weak_scaling, 0.85),
    Bar("reports_measured", _A100, "Spearman", _total(lambda t: t.spearman_mean), 0.6),
    Bar("reports_measured", _A100, "OOM accuracy", _total(lambda t: t.fits.accuracy), 0.9),
)
# fmt: on


MORE = (("reports_measured", _H100),)
"""Tables of which only what has experts is judged."""


def expert_figures(found: Iterable[Validation]) -> list[tuple[str, float | None, float, bool]]:
    """What is judged over the networks with experts of all tables: figure, value, bar, and whether that is the most."""
    times, memories, rows = [], [], 0
    for one in found:
        for index, case in enumerate(one.dataset.cases):
            if case.configuration.model.experts is None:
                continue
            rows += 1
            if case.measured.step_time_s is not None:
                times.append(one.outcome.step_time_s[index] / case.measured.step_time_s)
            if case.measured.peak_memory_B is not None:
                memories.append(one.outcome.memory_B[index] / case.measured.peak_memory_B)
    time, memory = np.array(times), np.array(memories)
    ratio = geometric_ratio(time, np.ones_like(time))
    return [
        ("rows", rows, 40, False),
        ("MAPE", mape(time, np.ones_like(time)), 0.3, True),
        ("ratio at least", ratio, 0.8, False),
        ("ratio at most", ratio, 1.25, True),
        ("memory MAPE", mape(memory, np.ones_like(memory)), 0.2, True),
    ]


PAGE = """# Predictions against measurements

`symtensor validate TABLE --cluster NAME` predicts step time and peak memory of configurations that others have measured, by the
model that plans are priced with. Nothing here was measured by this project; every row is published. This page is written by
`python -m benchmarks.validation DATA --page docs/results/validation.md`; figures are of the part of the data that this project
has.

    symtensor validate vtrain_a100.csv --cluster a100_80g                          # data sheets only
    symtensor validate vtrain_a100.csv --cluster a100_80g --calibrate 8 --seed 0   # fitted to 8 steps of other groups
    symtensor calibrate mine.csv --cluster atlas_800t_a2 --out mine.yaml           # a cluster file from own steps
    symtensor validate ascend_kernels.csv                                          # single kernels and collectives
    symtensor validate trtllm_static_batch.csv --cluster h100_80g                  # serving: batches of a whole network

- **MAPE**: mean absolute percentage error. **Spearman**: rank correlation within a group of rows that differ in their
  configuration only, averaged over groups. **Regret**: how much slower the predicted choice is than the fastest of a group, of
  rows that are told to fit.
- **Ratio**: geometric mean of predicted over measured. **OOM accuracy**: rows told rightly to fit or to run out of memory.
- A row is a network of the zoo, a uniform layout and a run-time (`ms_symtensor/cost/runtimes`). What a row says and these cannot
  express makes it unusable, by name.

## Results

{results}

## Rows that are left out

{left_out}
"""


def page(results: str, found: Mapping[str, Validation]) -> str:
    """The page of docs: results, and why rows of each table are left out."""
    lines = []
    for name, one in found.items():
        lines.append(f"- **{name}**: {one.score.total.rows} of {one.dataset.rows} rows are used")
        lines += [f"  - {count} x {reason}" for reason, count in one.dataset.reasons().items()]
    body = "\n".join(f"    {line}".rstrip() for line in results.splitlines())
    return PAGE.format(results=body, left_out="\n".join(lines))


def figures(results: str) -> list[dict[str, object]]:
    """The figures that a page's table shows, each with its cluster: what a plan's report.html has."""
    clusters = {(bar.file, bar.what): bar.cluster for bar in BARS}
    found: list[dict[str, object]] = []
    for line in results.splitlines():
        words = re.split(r"\s{2,}", line.strip())
        if tuple(words[:2]) in clusters and words[2] != "none":
            file, what, value, bar = words[:4]
            found.append(
                {"data": file, "cluster": clusters[file, what], "figure": what, "value": float(value), "bar": bar}
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder with the tables")
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help="write a plot of each dataset there (needs matplotlib)"
    )
    parser.add_argument("--page", type=Path, metavar="FILE.md", help="write the page of docs")
    chosen = parser.parse_args()
    if chosen.plots and not find_spec("matplotlib"):
        parser.error("--plots needs matplotlib: pip install matplotlib")
    found: dict[str, Validation] = {}
    clusters = {file: {bar.cluster for bar in BARS if bar.file == file} for file in {bar.file for bar in BARS}}
    judged: list[tuple[str, str, float | None, float, bool]] = []
    for bar in BARS:
        name = bar.file if len(clusters[bar.file]) == 1 else f"{bar.file} on {bar.cluster}"
        if name not in found:
            begun = time.process_time()
            found[name] = validate(chosen.data / f"{bar.file}.csv", load(bar.cluster))
            print(f"{name}: {time.process_time() - begun:.1f} s of processor time", file=sys.stderr)
        judged.append((bar.file, bar.what, bar.figure(found[name]), bar.bar, bar.at_most))
    for file, cluster in MORE:
        found[f"{file} on {cluster}"] = validate(chosen.data / f"{file}.csv", load(cluster))
    judged += [("all with experts", *figure) for figure in expert_figures(found.values())]
    rows, missed = [], 0
    for file, what, value, bound, at_most in judged:
        reached = value is not None and (value <= bound if at_most else value >= bound)
        missed += not reached
        shown = "none" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
        rows.append((file, what, shown, f"{'<=' if at_most else '>='} {bound:g}", "" if reached else "missed"))
    results = table(rows, ("data", "figure", "value", "bar", ""), right=(2,), indent=0)
    results += f"\n\n{len(rows) - missed} of {len(rows)} reached"
    print(results)
    if chosen.page:
        chosen.page.write_text(page(results, found), encoding="utf-8")
        ACCURACY.write_text(json.dumps({"figures": figures(results)}, indent=1) + "\n", encoding="utf-8")
    if chosen.plots:
        from benchmarks.validation_plots import write_plots

        write_plots(found, chosen.plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
