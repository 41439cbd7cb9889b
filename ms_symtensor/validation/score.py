"""Metrics per group and over all groups of a dataset."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ms_symtensor.validation.dataset import Case, Dataset
from ms_symtensor.validation.evaluate import Outcome, PairOutcome
from ms_symtensor.validation.metrics import (
    Fits,
    Numbers,
    geometric_ratio,
    kendall,
    mape,
    median_error,
    ordered_pairs,
    spearman,
    told_fits,
    top1_regret,
)


@dataclass(frozen=True)
class GroupScore:
    """Metrics of one group; None where too little was measured. Rates are fractions.

    `regret`: among the rows that are told to fit, from which a planner would choose.
    `mfu_error`: largest distance of predicted and measured model FLOPs utilisation, for rows that only have that.
    """

    name: str
    rows: int
    mape: float | None = None
    spearman: float | None = None
    kendall: float | None = None
    regret: float | None = None
    pairs_correct: int = 0
    pairs_total: int = 0
    fits: Fits = field(default_factory=Fits)
    memory_mape: float | None = None
    mfu_error: float | None = None


@dataclass(frozen=True)
class Total:
    """Metrics over groups: errors over all rows, rank correlations and regrets as means over the groups that have them.

    `spearman_overall` ranks all rows against each other, whatever their group: where most groups have a single row, it is
    the one that says something.
    """

    name: str
    rows: int
    mape: float | None
    spearman_mean: float | None
    spearman_overall: float | None
    kendall_mean: float | None
    regret_mean: float | None
    regret_max: float | None
    pairs_correct: int
    pairs_total: int
    fits: Fits
    memory_mape: float | None
    mfu_error: float | None
    median_error: float | None = None
    geometric_ratio: float | None = None


@dataclass(frozen=True)
class Score:
    """A dataset's metrics: per group, per part where it has several, and over all."""

    groups: tuple[GroupScore, ...]
    parts: tuple[Total, ...]
    total: Total


def score(dataset: Dataset, found: Outcome, pairs: PairOutcome) -> Score:
    """The metrics of `found`, whose entries are those of `dataset.cases`, and of `pairs`."""
    cases = dataset.cases
    members: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        members.setdefault(case.group, []).append(index)
    groups = {name: _group(name, cases, found, indices) for name, indices in members.items()}
    for confidence in sorted({pair.confidence for pair in dataset.pairs}):
        right = [
            bool(ok) for pair, ok in zip(dataset.pairs, pairs.correct, strict=True) if pair.confidence == confidence
        ]
        name = f"confidence {confidence}"
        groups[name] = GroupScore(name, len(right), pairs_correct=sum(right), pairs_total=len(right))
    names = sorted({case.part for case in cases})
    parts = []
    for name in names if len(names) > 1 else ():
        indices = [i for i, case in enumerate(cases) if case.part == name]
        parts.append(
            _total(name, cases, found, indices, [groups[g] for g in dict.fromkeys(cases[i].group for i in indices)])
        )
    every = tuple(groups.values())
    return Score(every, tuple(parts), _total("all", cases, found, range(len(cases)), every, len(dataset.pairs)))


def _group(name: str, cases: Sequence[Case], found: Outcome, indices: Sequence[int]) -> GroupScore:
    predicted, measured = _times(cases, found, indices)
    told = found.fits[[i for i in indices if cases[i].measured.step_time_s is not None]]
    correct, total = ordered_pairs(predicted, measured)
    return GroupScore(
        name,
        len(indices),
        mape(predicted, measured),
        spearman(predicted, measured),
        kendall(predicted, measured),
        top1_regret(predicted[told], measured[told]),
        correct,
        total,
        _fits(cases, found, indices),
        mape(*_memories(cases, found, indices)),
        _mfu_error(cases, found, indices),
    )


def _total(
    name: str,
    cases: Sequence[Case],
    found: Outcome,
    indices: Sequence[int],
    groups: Sequence[GroupScore],
    pairs: int = 0,
) -> Total:
    predicted, measured = _times(cases, found, indices)
    return Total(
        name,
        len(indices) + pairs,
        mape(predicted, measured),
        _mean(g.spearman for g in groups),
        spearman(predicted, measured),
        _mean(g.kendall for g in groups),
        _mean(g.regret for g in groups),
        max((g.regret for g in groups if g.regret is not None), default=None),
        sum(g.pairs_correct for g in groups),
        sum(g.pairs_total for g in groups),
        _fits(cases, found, indices),
        mape(*_memories(cases, found, indices)),
        _mfu_error(cases, found, indices),
        median_error(predicted, measured),
        geometric_ratio(predicted, measured),
    )


def _times(cases: Sequence[Case], found: Outcome, indices: Sequence[int]) -> tuple[Numbers, Numbers]:
    timed = [i for i in indices if cases[i].measured.step_time_s is not None]
    return found.step_time_s[timed], np.array([cases[i].measured.step_time_s for i in timed], dtype=float)


def _memories(cases: Sequence[Case], found: Outcome, indices: Sequence[int]) -> tuple[Numbers, Numbers]:
    known = [i for i in indices if cases[i].measured.peak_memory_B is not None]
    return found.memory_B[known], np.array([cases[i].measured.peak_memory_B for i in known], dtype=float)


def _fits(cases: Sequence[Case], found: Outcome, indices: Sequence[int]) -> Fits:
    known = [i for i in indices if cases[i].measured.fits is not None]
    return told_fits(found.fits[known], np.array([cases[i].measured.fits for i in known], dtype=bool))


def _mfu_error(cases: Sequence[Case], found: Outcome, indices: Sequence[int]) -> float | None:
    """Of the rows that have an MFU and no step time: elsewhere the one follows from the other."""
    known = [i for i in indices if cases[i].measured.mfu is not None and cases[i].measured.step_time_s is None]
    return max((abs(float(found.mfu[i]) - (cases[i].measured.mfu or 0.0)) for i in known), default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
