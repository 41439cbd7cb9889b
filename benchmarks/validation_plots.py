"""Plots of predicted against measured step time and memory, one file per dataset (matplotlib)."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullLocator

from ms_symtensor.validation.validate import Validation

COLOURS = "tab10"
MOST_NAMED = 10  # groups beyond that share one colour: a legend of dozens helps nobody
GIB = 1 << 30


def write_plots(found: Mapping[str, Validation], directory: Path) -> None:
    """`directory`/NAME.svg of every dataset that has measured times or memory; the same bytes for the same numbers."""
    matplotlib.rcParams["svg.hashsalt"] = "validation"
    directory.mkdir(parents=True, exist_ok=True)
    for name, validation in found.items():
        cases, outcome = validation.dataset.cases, validation.outcome
        panels = []
        timed = [i for i, c in enumerate(cases) if c.measured.step_time_s is not None]
        known = [i for i, c in enumerate(cases) if c.measured.peak_memory_B is not None]
        if timed:
            measured = [cases[i].measured.step_time_s for i in timed]
            panels.append(("step time, s", timed, np.array(measured, dtype=float), outcome.step_time_s[timed]))
        if known:
            memory = np.array([cases[i].measured.peak_memory_B for i in known], dtype=float) / GIB
            panels.append(("peak memory, GiB", known, memory, outcome.memory_B[known] / GIB))
        if not panels:
            continue
        figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 5), squeeze=False)
        for axis, (label, indices, x, y) in zip(axes[0], panels, strict=True):
            _panel(axis, label, [_kind(cases[i]) for i in indices], x, y)
        figure.suptitle(f"{name} on {validation.cluster}, data sheets only")
        figure.tight_layout()
        figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def _kind(case: object) -> str:
    part, group = case.part, case.group  # type: ignore[attr-defined]
    return part or group.split("|")[0]


def _panel(axis: plt.Axes, label: str, kinds: list[str], measured: np.ndarray, predicted: np.ndarray) -> None:
    names = sorted(set(kinds))
    if len(names) > MOST_NAMED:
        names, kinds = ["all rows"], ["all rows"] * len(kinds)
    colours = plt.get_cmap(COLOURS)
    for index, name in enumerate(names):
        chosen = np.array([kind == name for kind in kinds])
        axis.scatter(
            measured[chosen], predicted[chosen], s=8, alpha=0.6, color=colours(index), label=name, linewidths=0
        )
    ends = np.array([min(measured.min(), predicted.min()), max(measured.max(), predicted.max())]) * [0.8, 1.25]
    axis.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (0.8, 1.25):
        axis.plot(ends, factor * ends, color="grey", linewidth=0.5, linestyle="--")
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel=f"measured {label}", ylabel=f"predicted {label}")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_locator(NullLocator())
    axis.tick_params(labelsize=7)
    axis.set_aspect("equal")
    axis.legend(fontsize=7, loc="upper left")
