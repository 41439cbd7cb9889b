"""Published times of single kernels and collectives, against the formulas that plans are priced with.

Where a table states what the host's launch takes (`floor_us`: the time at the smallest size of the same source), it is taken off
the time. Where the launch is more than half of the time, what is left says more of the host than of the kernel: such rows are
judged apart, by the launch and the kernel together: one after the other if the host waits for every call, else the longer of
both, as the host launches the next one meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.kernel import Kernel
from ms_symtensor.cost.move import message_s
from ms_symtensor.errors import InputError
from ms_symtensor.tensor.layout import DeviceGroup
from ms_symtensor.validation.dataset import Exclusion, Form, UnusableRowError
from ms_symtensor.validation.metrics import Times, mape, mean, top1_regret
from ms_symtensor.validation.table import Table

LAUNCH_BOUND = "launch takes more than half"
MOST_OF_LAUNCH = 0.5


@dataclass(frozen=True)
class Collective:
    """A collective of so many ranks on `size_B` bytes of the whole tensor. `spread`: the first so many devices of nodes that
    have so many; None: the first ones.
    """

    kind: str
    ranks: int
    size_B: float
    spread: tuple[int, int] | None = None

    @property
    def group(self) -> DeviceGroup:
        """Where the ranks are."""
        each, node = self.spread or (self.ranks, self.ranks)
        return DeviceGroup((self.ranks // each, node // each, each), (0, 2))


class Pass(Protocol):
    """What takes `seconds` on a cluster: passes through a whole network."""

    def seconds(self, cluster: Cluster) -> float: ...


@dataclass(frozen=True)
class Timing:
    """A time of a row: what was run (kernels, one after the other, a collective, or a network), on which cluster ("": the row
    names none), and what it took, of which `floor_s` the host's launch; `waits`: the host waits for every call. `model`: whose
    times a calibration leaves out together. `is_limit`: `time_s` is a limit that was kept, and the least is predicted.
    """

    line: int
    kind: str
    cluster: str
    run: tuple[Kernel, ...] | Collective | Pass
    time_s: float
    floor_s: float = 0.0
    waits: bool = True
    model: str = ""
    is_limit: bool = False

    @property
    def is_launch_bound(self) -> bool:
        """Whether the host's launch is most of the time."""
        return self.floor_s > MOST_OF_LAUNCH * self.time_s

    @property
    def group(self) -> str:
        """What it is judged with."""
        return LAUNCH_BOUND if self.is_launch_bound else self.kind


@dataclass(frozen=True)
class Compared:
    """A timing with the seconds that are predicted of it, and those that they are compared with."""

    timing: Timing
    cluster: str
    predicted_s: float
    measured_s: float


@dataclass(frozen=True)
class Scored(Times):
    """Comparisons of one kind."""

    kind: str
    rows: tuple[Compared, ...]
    are_choices: bool = False

    @cached_property
    def times(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = [(row.predicted_s, row.measured_s) for row in self.rows]
        predicted, measured = np.array(pairs, dtype=float).reshape(-1, 2).T
        return predicted, measured

    @property
    def mape(self) -> float | None:
        """Mean absolute percentage error, a fraction, of what is no limit."""
        measured = [(row.predicted_s, row.measured_s) for row in self.rows if not row.timing.is_limit]
        return mape(*np.array(measured, dtype=float).reshape(-1, 2).T)

    @property
    def kept(self) -> float | None:
        """Of limits the share that the predictions keep; None where there are none."""
        limits = [row.predicted_s <= row.measured_s for row in self.rows if row.timing.is_limit]
        return sum(limits) / len(limits) if limits else None

    @property
    def regret(self) -> float | None:
        """How much slower the row is that is predicted to be fastest than the fastest one; None where rows are no choices."""
        return top1_regret(*self.times) if self.are_choices else None


@dataclass(frozen=True)
class TimingValidation:
    """A whole table: `rows` were read; `judged` by kind, the kinds in the order of the table. `cluster`: of rows that name no
    chip; "": none was given.
    """

    name: str
    cluster: str
    rows: int
    judged: tuple[Scored, ...]
    excluded: tuple[Exclusion, ...]

    @property
    def total(self) -> Scored:
        """All comparisons, by line."""
        rows = sorted((row for one in self.judged for row in one.rows), key=lambda row: row.timing.line)
        return Scored("all", tuple(rows))

    @property
    def spearman_mean(self) -> float | None:
        """The mean of the kinds that rank anything."""
        return mean(one.spearman for one in self.judged)

    @property
    def regret_mean(self) -> float | None:
        """The mean of the kinds whose rows are choices."""
        return mean(one.regret for one in self.judged)


def form_of(table: Table, forms: tuple[Form, ...]) -> Form | None:
    """The form of `table`; None if it is none of `forms`."""
    return next((form for form in forms if set(table.columns).issuperset(form.columns)), None)


def validate_timings(
    table: Table,
    form: Form,
    cluster: Cluster | None,
    calibrated: Callable[[Sequence["Compared"]], Sequence["Compared"]] | None = None,
) -> TimingValidation:
    """The rows of `table`, each on the cluster of its own chip; on `cluster` where it names none. Without a cluster such rows are
    excluded. `calibrated` makes other predictions of what is compared (`calibrate_timings`).

    Errors: InputError for a cell that cannot be read (row and column), or a table without a usable row.
    """

    def all_compared(read: Timing | tuple[Timing, ...]) -> list[Compared]:
        timings = read if isinstance(read, tuple) else (read,)
        return [compared(one, cluster_of(one)) for one in timings]

    def cluster_of(one: Timing) -> Cluster:
        if one.cluster:
            return load(one.cluster)
        if cluster is None:
            raise UnusableRowError("the row names no chip: give --cluster")
        return cluster

    rows, excluded = form.read_table(table, all_compared)
    found = [one for of_row in rows for one in of_row]
    if not found:
        raise InputError(
            f"{Path(table.name).name}: no row can be evaluated: {excluded[0].reason if excluded else 'none'}"
        )
    by_kind: dict[str, list[Compared]] = {}
    for one in found if calibrated is None else calibrated(found):
        by_kind.setdefault(one.timing.group, []).append(one)
    judged = tuple(Scored(kind, tuple(rows), form.has_choices) for kind, rows in by_kind.items())
    return TimingValidation(form.name, "" if cluster is None else cluster.name, len(table.rows), judged, excluded)


def compared(timing: Timing, cluster: Cluster) -> Compared:
    """What is predicted of `timing`, by itself: a kernel has no other work of a training step beside it."""
    if isinstance(timing.run, Collective):
        predicted = message_s(cluster, timing.run.kind, timing.run.group.ranks(), timing.run.size_B)
    elif isinstance(timing.run, tuple):
        alone = replace(cluster, device=replace(cluster.device, step_efficiency=1.0))
        predicted = sum(float(kernel.seconds(alone)) for kernel in timing.run)
    else:
        predicted = timing.run.seconds(cluster)
    if timing.is_launch_bound:
        both_s = predicted + timing.floor_s if timing.waits else max(predicted, timing.floor_s)
        return Compared(timing, cluster.name, both_s, timing.time_s)
    return Compared(timing, cluster.name, predicted, timing.time_s - timing.floor_s)
