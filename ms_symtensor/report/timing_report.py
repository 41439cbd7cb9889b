"""A validation against times of kernels and collectives, for people and for programs."""

from typing import Any

from ms_symtensor.report.text import table
from ms_symtensor.validation.timings import Compared, Scored, TimingValidation

HEAD = ("", "rows", "MAPE", "predicted / measured", "Spearman", "regret", "kept")


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
        "cases": [_case_json(row) for row in total.rows],
    }


def timing_text(found: TimingValidation) -> str:
    """What was left out and why, and the figures by kind."""
    total = found.total
    of_rows = f"{len(total.rows)} times of" if len(total.rows) > found.rows else f"{len(total.rows)} of"
    elsewhere = f" ({found.cluster} where it names none)" if found.cluster else ""
    paragraphs = [f"{found.name}, each row on the cluster of its chip{elsewhere}: {of_rows} {found.rows} rows"]
    if found.excluded:
        paragraphs.append("Excluded\n" + table([(f"row {e.line}", e.reason) for e in found.excluded]))
    paragraphs.append(table([_line(one) for one in (*found.judged, total)], HEAD, right=range(1, len(HEAD))))
    return "\n\n".join(paragraphs)


def _scored_json(one: Scored) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "rows": len(one.rows),
        "mape": one.mape,
        "geometric_ratio": one.geometric_ratio,
        "spearman": one.spearman,
        "regret": one.regret,
        "kept": one.kept,
    }


def _case_json(row: Compared) -> dict[str, Any]:
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
    rank = "" if one.spearman is None else f"{one.spearman:.3f}"
    error, regret, kept = ("" if x is None else f"{100 * x:.1f} %" for x in (one.mape, one.regret, one.kept))
    return one.kind, str(len(one.rows)), error, f"{one.geometric_ratio:.2f}", rank, regret, kept
