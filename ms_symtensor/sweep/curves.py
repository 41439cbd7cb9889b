"""What the points of a curve say together: the gain of a doubling, and why a curve rises."""

from collections.abc import Sequence
from itertools import pairwise

from ms_symtensor.report.text import seconds
from ms_symtensor.sweep.points import Point, by_curve
from ms_symtensor.sweep.run import DEGREES, Row

RISES = 0.005
"""A curve rises where it does by more than this share (empirical: less than what predictions are off by)."""


def with_gains(points: Sequence[Point], rows: Sequence[Row]) -> list[Row]:
    """`rows` with `marginal_gain`: how much faster than on half as many devices tokens go, 1 being twice as fast; None where
    that was not planned. `efficiency`: tokens per second and device beside those on the fewest devices.
    """
    found = [dict(row) for row in rows]
    for curve in by_curve(points).values():
        planned = [n for n in curve if "why" not in rows[n]]
        for number in planned:
            half = [
                n
                for n in planned
                if 2 * points[n].device_num == points[number].device_num and _alike(points, n, number)
            ]
            gain = rows[number]["tokens_per_s"] / rows[half[0]]["tokens_per_s"] - 1 if half else None
            first = rows[planned[0]]["tokens_per_s_device"]
            found[number] |= {"marginal_gain": gain, "efficiency": rows[number]["tokens_per_s_device"] / first}
    return found


def _alike(points: Sequence[Point], half: int, whole: int) -> bool:
    """Whether the batch is the same, or as large for a device."""
    one, other = points[half].global_batch_size, points[whole].global_batch_size
    return one == other or (one is not None and other == 2 * one)


def rises(points: Sequence[Point], rows: Sequence[Row]) -> list[str]:
    """Where the step, or the tokens per second and device, grow from one number of devices to the next: why, in a sentence."""
    found = []
    for curve in by_curve(points).values():
        planned = [n for n in curve if "why" not in rows[n]]
        for before, after in pairwise(planned):
            one, other = rows[before], rows[after]
            where = f"{points[after].said}, {one['device_num']} to {other['device_num']} devices"
            for name, said in (("step_time_s", "the step grows"), ("tokens_per_s_device", "tokens/s a device grow")):
                share = other[name] / one[name] - 1
                if share > RISES and one["device_num"] < other["device_num"]:
                    found.append(f"{where}: {said} by {100 * share:.1f} %: {_why(one, other, name)}")
    return found


def _why(one: Row, other: Row, name: str) -> str:
    """The part that changes most, of a step or of what a token costs, and the degrees that differ."""
    is_step = name == "step_time_s"
    before, after = (
        {part: s / (1 if is_step else _tokens(row)) for part, s in row["time_s"].items()} for row in (one, other)
    )
    changes = {part: after.get(part, 0.0) - before.get(part, 0.0) for part in sorted({*before, *after})}
    part = max(changes, key=changes.__getitem__) if is_step else min(changes, key=changes.__getitem__)
    was, now = seconds(before.get(part, 0.0)), seconds(after.get(part, 0.0))
    said = (
        f"{part} takes {now}, {was} before" if is_step else f"a token takes {now} of a device in {part}, {was} before"
    )
    keys = (*DEGREES, "optimizer_level", "recompute")
    degrees = [f"{key} {one[key]} to {other[key]}" for key in keys if one[key] != other[key]]
    return said + (f" ({', '.join(degrees)})" if degrees else "")


def _tokens(row: Row) -> float:
    """Tokens of a step for a device."""
    return float(row["global_batch_size"] * row["seq_length"] / row["device_num"])
