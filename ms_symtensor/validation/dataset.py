"""Measurements of configurations, as the readers of tables hand them to the evaluation."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ms_symtensor.errors import ImpossibleError
from ms_symtensor.validation.configuration import Configuration, Step
from ms_symtensor.validation.table import Row, Table


class UnusableRowError(Exception):
    """A row that is well written but cannot be used; the message is the reason that is counted and printed."""


@dataclass(frozen=True)
class Measurement:
    """What was measured of one configuration; None where it was not.

    `step_time_s` may be in any unit that is the same for all rows of a group where the source gives no better.
    `fits` None: nobody knows whether it ran out of memory. `mfu`: model FLOPs utilisation, a fraction.
    `stage`: the pipeline stage whose memory was measured; None: the largest of all. `first_step`: the memory is the peak of
    the first step alone, in which PyTorch's optimizer makes its states behind the backward pass.
    """

    step_time_s: float | None = None
    peak_memory_B: float | None = None
    fits: bool | None = None
    mfu: float | None = None
    stage: int | None = None
    first_step: bool = False


@dataclass(frozen=True)
class Case:
    """One row: its configuration and what was measured. Rows of one `group` differ in configuration only.

    `part` names the half of a table that is judged apart ("" if there are no parts). `device`: the cluster it was
    measured on, where a table holds several.
    """

    line: int
    group: str
    configuration: Step
    measured: Measurement
    part: str = ""
    device: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What has to be priced."""
        return (self.configuration,)


@dataclass(frozen=True)
class Pair:
    """`better` was measured to be faster per token and device than `worse` or, if `by_memory`, to fit where `worse` does not."""

    line: int
    confidence: str
    better: Configuration
    worse: Configuration
    by_memory: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """What has to be priced."""
        return self.better, self.worse


@dataclass(frozen=True)
class Exclusion:
    """A row that was left out, and why."""

    line: int
    reason: str


@dataclass(frozen=True)
class Form:
    """A table that has `columns`, of which `read` makes what a row says, or raises UnusableRowError or InputError.

    `doubts`: rows, by line, that only the table as a whole shows to be unusable, with the reason. `has_models`: rows are of
    several networks, so that a calibration on others can be judged. `has_choices`: rows of one kind are what one chooses among,
    so that a regret says something.
    """

    name: str
    columns: tuple[str, ...]
    read: Callable[[Row], Any]
    doubts: Callable[[Table], Mapping[int, str]] = lambda _: {}
    has_models: bool = False
    has_choices: bool = False

    def read_table(
        self, table: Table, then: Callable[[Any], Any] = lambda found: found
    ) -> tuple[list[Any], tuple[Exclusion, ...]]:
        """What `then` makes of each row that was read; and the rows that cannot be used, or are impossible, with the reason.

        InputError, naming row and column, for a cell that does not hold what its column is for.
        """
        found, excluded, doubts = [], [], self.doubts(table)
        for row in table.rows:
            try:
                if row.line in doubts:
                    raise UnusableRowError(doubts[row.line])
                found.append(then(self.read(row)))
            except (UnusableRowError, ImpossibleError) as reason:
                excluded.append(Exclusion(row.line, str(reason)))
        return found, tuple(excluded)


@dataclass(frozen=True)
class Dataset:
    """A whole table: `rows` were read, of which `cases` and `pairs` can be evaluated and `excluded` cannot."""

    name: str
    rows: int
    cases: tuple[Case, ...]
    pairs: tuple[Pair, ...]
    excluded: tuple[Exclusion, ...]

    def without(self, why_not: Callable[[Case | Pair], str]) -> "Dataset":
        """Without what `why_not` has a reason for: these rows become exclusions."""
        rows: tuple[Case | Pair, ...] = (*self.cases, *self.pairs)
        reasons = {row.line: reason for row in rows if (reason := why_not(row))}
        excluded = (*self.excluded, *(Exclusion(line, reason) for line, reason in reasons.items()))
        return Dataset(
            self.name,
            self.rows,
            tuple(case for case in self.cases if case.line not in reasons),
            tuple(pair for pair in self.pairs if pair.line not in reasons),
            tuple(sorted(excluded, key=lambda one: one.line)),
        )

    def reasons(self) -> dict[str, int]:
        """How many rows were left out for each reason, the most frequent first."""
        counted = Counter(e.reason for e in self.excluded)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
