"""Metrics per group and over all groups of a dataset."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ms_symtensor.validation.dataset import Case, Dataset
from ms_symtensor.validation.evaluate import Outcome
from ms_symtensor.validation.metrics import Fits, Numbers, Times, mape, mean, ordered_pairs, told_fits, top1_regret


@dataclass(frozen=True, eq=False)
class Figures(Times):
    """Rows that are judged together: a group, or all `groups` of a table or of a part of it. Rates are fractions, and None where
    too little was measured.

    `found`: what is predicted of `cases`. `told`: of pairs, whether each was predicted as it was measured. Errors are over all
    rows; what ends with `_mean` or `_max` is over the groups that have it.
    """

    name: str
    cases: Sequence[Case]
    found: Outcome
    groups: tuple["Figures", ...] = ()
    told: tuple[bool, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.cases) + len(self.told)

    def _known(self, what: str) -> tuple[list[int], np.ndarray]:
        """Which cases have `what` of a Measurement, and these numbers."""
        every = [getattr(case.measured, what) for case in self.cases]
        known = [index for index, value in enumerate(every) if value is not None]
        return known, np.array([every[index] for index in known])

    @cached_property
    def times(self) -> tuple[Numbers, Numbers]:
        """Steps, predicted and measured."""
        known, measured = self._known("step_time_s")
        return self.found.step_time_s[known], measured.astype(float)

    @property
    def regret(self) -> float | None:
        """Among the rows that are told to fit, from which a planner would choose."""
        told = self.found.fits[self._known("step_time_s")[0]]
        predicted, measured = self.times
        return top1_regret(predicted[told], measured[told])

    @cached_property
    def _pairs(self) -> tuple[int, int]:
        if self.groups:
            right, whole = zip(*(group._pairs for group in self.groups), strict=True)
            return sum(right), sum(whole)
        return (sum(self.told), len(self.told)) if self.told else ordered_pairs(*self.times)

    @property
    def pairs_correct(self) -> int:
        """Of all pairs that were measured to differ, those predicted in that order."""
        return self._pairs[0]

    @property
    def pairs_total(self) -> int:
        return self._pairs[1]

    @property
    def fits(self) -> Fits:
        known, measured = self._known("fits")
        return told_fits(self.found.fits[known], measured.astype(bool))

    @property
    def memory_mape(self) -> float | None:
        known, measured = self._known("peak_memory_B")
        return mape(self.found.memory_B[known], measured.astype(float))

    @property
    def mfu_error(self) -> float | None:
        """Of the rows that have an MFU and no step time, the largest distance: elsewhere the one follows from the other."""
        known, measured = self._known("mfu")
        errors = zip(known, abs(self.found.mfu[known] - measured), strict=True)
        return max((float(error) for i, error in errors if self.cases[i].measured.step_time_s is None), default=None)

    @property
    def spearman_overall(self) -> float | None:
        """Of all rows, whatever their group: where most groups have a single row, the one that says something."""
        return self.spearman

    @property
    def spearman_mean(self) -> float | None:
        return mean(group.spearman for group in self.groups)

    @property
    def kendall_mean(self) -> float | None:
        return mean(group.kendall for group in self.groups)

    @property
    def regret_mean(self) -> float | None:
        return mean(group.regret for group in self.groups)

    @property
    def regret_max(self) -> float | None:
        return max((group.regret for group in self.groups if group.regret is not None), default=None)


@dataclass(frozen=True)
class Score:
    """A dataset's metrics: per group, per part where it has several, and over all."""

    groups: tuple[Figures, ...]
    parts: tuple[Figures, ...]
    total: Figures


def score(dataset: Dataset, found: Outcome, pairs: Sequence[bool]) -> Score:
    """The metrics of `found`, whose entries are those of `dataset.cases`, and of `pairs`."""
    cases = dataset.cases

    def judged(name: str, chosen: Sequence[int], groups: Iterable[Figures] = (), told: Iterable[bool] = ()) -> Figures:
        return Figures(name, [cases[i] for i in chosen], found.of(chosen), tuple(groups), tuple(told))

    names = dict.fromkeys(case.group for case in cases)
    groups = {name: judged(name, [i for i, case in enumerate(cases) if case.group == name]) for name in names}
    for confidence in sorted({pair.confidence for pair in dataset.pairs}):
        both = zip(dataset.pairs, pairs, strict=True)
        name = f"confidence {confidence}"
        groups[name] = judged(name, (), told=[ok for pair, ok in both if pair.confidence == confidence])
    parts = []
    for part in sorted({case.part for case in cases}):
        chosen = [i for i, case in enumerate(cases) if case.part == part]
        parts.append(judged(part, chosen, [groups[g] for g in dict.fromkeys(cases[i].group for i in chosen)]))
    every = tuple(groups.values())
    total = judged("all", range(len(cases)), every, pairs)
    return Score(every, tuple(parts) if len(parts) > 1 else (), total)
