"""A validation, of steps or of times of kernels and collectives, and a calibration, for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ms_symtensor.report.text import table
from ms_symtensor.validation.calibrate import Fit
from ms_symtensor.validation.metrics import Fits
from ms_symtensor.validation.score import Figures
from ms_symtensor.validation.timings import Compared, Scored, TimingValidation
from ms_symtensor.validation.validate import Validation

HEAD = ("", "rows", "MAPE", "Spearman", "Kendall", "regret", "max", "pairs", "fits", "precision", "recall", "memory")
TIMING_HEAD = ("", "rows", "MAPE", "predicted / measured", "Spearman", "regret", "kept")


def validation_json(found: Validation) -> dict[str, Any]:
    """The keys that `symtensor validate --json` promises; rates are fractions, None where nothing was measured."""
    calibration = found.calibration
    return {
        "dataset": found.dataset.name,
        "cluster": found.cluster,
        "calibration": calibration and asdict(calibration),
        "rows": found.score.total.rows,
        "excluded": len(found.dataset.excluded),
        "exclusions": [{"row": e.line, "reason": e.reason} for e in found.dataset.excluded],
        "groups": [_group_json(group) for group in found.score.groups],
        "cases": [_case_json(found, index) for index in range(len(found.dataset.cases))],
        "parts": [{"part": part.name, "rows": part.rows, **_total_json(part)} for part in found.score.parts],
        **_total_json(found.score.total),
    }


def validation_text(found: Validation, every_group: bool = True) -> str:
    """What was left out and why, the metrics of each group, of each part and of all."""
    dataset, calibration = found.dataset, found.calibration
    kind = "data sheets only"
    if calibration is not None:
        kind = f"each group calibrated on {calibration.steps} steps of others (seed {calibration.seed}, "
        kind += f"{calibration.measured} different steps in all)"
    paragraphs = [f"{dataset.name} on {found.cluster}, {kind}: {found.score.total.rows} of {dataset.rows} rows"]
    if dataset.excluded:
        reasons = [(str(count), reason, _rows_of(found, reason)) for reason, count in dataset.reasons().items()]
        paragraphs.append("Excluded\n" + table(reasons, right=(0,)))
    totals = [_total_line(part) for part in (*found.score.parts, found.score.total)]
    groups = [_group_line(group) for group in found.score.groups] if every_group else []
    paragraphs.append(table([*groups, *totals], HEAD, right=range(1, len(HEAD))))
    total = found.score.total
    if total.spearman_overall is not None:
        paragraphs.append(f"Spearman over all rows, whatever their group: {total.spearman_overall:.3f}")
    if total.mfu_error is not None:
        paragraphs.append(
            f"Model FLOPs utilisation, where only that was measured: {100 * total.mfu_error:.1f} points apart"
        )
    return "\n\n".join(paragraphs)


def timing_json(found: TimingValidation) -> dict[str, Any]:
    """The keys that `symtensor validate --json` promises for tables of timings; rates are fractions, times seconds."""
    total = found.total
    return {
        "dataset": found.name,
        "cluster": found.cluster,
        "rows": len(total.rows),
        "excluded": len(found.excluded),
        "exclusions": [{"row": e.line, "reason": e.reason} for e in found.excluded],
        "mape": total.mape,
        "spearman_mean": found.spearman_mean,
        "regret_mean": found.regret_mean,
        "kept": total.kept,
        "geometric_ratio": total.geometric_ratio,
        "kinds": [_scored_json(one) for one in found.judged],
        "cases": [_compared_json(row) for row in total.rows],
    }


def timing_text(found: TimingValidation) -> str:
    """What was left out and why, and the figures by kind."""
    total = found.total
    of_rows = f"{len(total.rows)} times of" if len(total.rows) > found.rows else f"{len(total.rows)} of"
    elsewhere = f" ({found.cluster} where it names none)" if found.cluster else ""
    paragraphs = [f"{found.name}, each row on the cluster of its chip{elsewhere}: {of_rows} {found.rows} rows"]
    if found.excluded:
        paragraphs.append("Excluded\n" + table([(f"row {e.line}", e.reason) for e in found.excluded]))
    paragraphs.append(
        table([_line(one) for one in (*found.judged, total)], TIMING_HEAD, right=range(1, len(TIMING_HEAD)))
    )
    return "\n\n".join(paragraphs)


def calibration_json(fit: Fit, cluster: str, out: str) -> dict[str, Any]:
    """What was fitted, from what to what."""
    return {
        "cluster": cluster,
        "rows": fit.rows,
        "mape_before": fit.mape_before,
        "mape_after": fit.mape_after,
        "gains": fit.gains,
        "constants": {
            constant.place: {"before": constant.value, "after": value}
            for constant, value in zip(fit.constants, fit.values, strict=True)
        },
        "written": out,
    }


def calibration_text(fit: Fit, cluster: str, out: str) -> str:
    """The fitted constants in a table."""
    rows = [
        (constant.place, f"{constant.value:.4g}", f"{value:.4g}")
        for constant, value in zip(fit.constants, fit.values, strict=True)
    ]
    error = f"mean absolute percentage error {_percent(fit.mape_before)} before, {_percent(fit.mape_after)} after"
    kept = "" if fit.gains else "\nA fit explains steps that it leaves out no better: the numbers stay as they are."
    return (
        f"{cluster} calibrated on {fit.rows} steps: {error}{kept}\n\n"
        + table(rows, ("constant", "before", "after"), right=(1, 2))
        + f"\n\nWritten to {out}; give it to --cluster"
    )


def _case_json(found: Validation, index: int) -> dict[str, Any]:
    """A row beside what is predicted of it: seconds of a step, bytes of a device, a fraction of the peak; None: not measured."""
    case, outcome = found.dataset.cases[index], found.outcome
    measured = case.measured
    return {
        "row": case.line,
        "group": case.group,
        "step_time_s": float(outcome.step_time_s[index]),
        "measured_step_time_s": measured.step_time_s,
        "peak_memory_B": float(outcome.memory_B[index]),
        "measured_peak_memory_B": measured.peak_memory_B,
        "fits": bool(outcome.fits[index]),
        "measured_fits": measured.fits,
        "mfu": float(outcome.mfu[index]),
        "measured_mfu": measured.mfu,
    }


def _named(figures: Figures | Scored, *names: str) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in names}


def _group_json(group: Figures) -> dict[str, Any]:
    return {
        "group": group.name,
        **_named(group, "rows", "mape", "spearman", "kendall", "regret", "pairs_correct", "pairs_total"),
        **_fits_json(group.fits),
        **_named(group, "memory_mape", "mfu_error"),
    }


def _total_json(total: Figures) -> dict[str, Any]:
    return {
        **_named(total, "mape", "spearman_mean", "spearman_overall", "kendall_mean", "regret_mean", "regret_max"),
        **_named(total, "pairs_correct", "pairs_total"),
        **_fits_json(total.fits),
        **_named(total, "memory_mape", "mfu_error", "median_error", "geometric_ratio"),
    }


def _fits_json(fits: Fits) -> dict[str, float | None]:
    """Where nothing ran out of memory there is nothing to tell apart."""
    shown = fits.some_fail
    return {
        "oom_accuracy": fits.accuracy if shown else None,
        "oom_precision": fits.precision if shown else None,
        "oom_recall": fits.recall if shown else None,
    }


def _group_line(group: Figures) -> tuple[str, ...]:
    return (
        group.name, str(group.rows), _percent(group.mape), _rank(group.spearman), _rank(group.kendall),
        _percent(group.regret), "", _pairs(group.pairs_correct, group.pairs_total), *_fits_cells(group.fits),
        _percent(group.memory_mape),
    )  # fmt: skip


def _total_line(total: Figures) -> tuple[str, ...]:
    return (
        total.name, str(total.rows), _percent(total.mape), _rank(total.spearman_mean), _rank(total.kendall_mean),
        _percent(total.regret_mean), _percent(total.regret_max), _pairs(total.pairs_correct, total.pairs_total),
        *_fits_cells(total.fits), _percent(total.memory_mape),
    )  # fmt: skip


def _fits_cells(fits: Fits) -> tuple[str, str, str]:
    if not fits.some_fail:
        return "", "", ""
    return _percent(fits.accuracy), _percent(fits.precision), _percent(fits.recall)


def _scored_json(one: Scored) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "rows": len(one.rows),
        **_named(one, "mape", "geometric_ratio", "spearman", "regret", "kept"),
    }


def _compared_json(row: Compared) -> dict[str, Any]:
    """`measured_s` is what `predicted_s` is compared with; `time_s` and `floor_s` are those of the table."""
    return {
        "row": row.timing.line,
        "kind": row.timing.group,
        "cluster": row.cluster,
        "predicted_s": row.predicted_s,
        "measured_s": row.measured_s,
        "time_s": row.timing.time_s,
        "floor_s": row.timing.floor_s,
    }


def _line(one: Scored) -> tuple[str, ...]:
    ratio = f"{one.geometric_ratio:.2f}"
    return (
        one.kind, str(len(one.rows)), _percent(one.mape), ratio, _rank(one.spearman), _percent(one.regret), _percent(one.kept),
    )  # fmt: skip


def _rows_of(found: Validation, reason: str, shown: int = 6) -> str:
    lines: Sequence[int] = [e.line for e in found.dataset.excluded if e.reason == reason]
    more = f" and {len(lines) - shown} more" if len(lines) > shown else ""
    return f"row{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:shown]))}{more}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _rank(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _pairs(correct: int, total: int) -> str:
    return f"{correct}/{total}" if total else ""
