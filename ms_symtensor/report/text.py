"""Numbers, names and tables for people: units, aligned columns."""

import re
from collections.abc import Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def seconds(time_s: float) -> str:
    """`2.31 s`, `14.2 ms`, `8.6 us`, three significant digits."""
    for unit_s, name in _TIMES:
        if time_s >= unit_s:
            return f"{_three(time_s / unit_s)} {name}"
    return "0 s" if time_s == 0 else f"{time_s / 1e-6:.2f} us"


def percent(share: float, digits: int = 2) -> str:
    """`share` in percent, with so many digits, or more where it is larger: 0.43, 12, 1,234."""
    text = f"{100 * share:.{digits}g}"
    return f"{100 * share:,.0f}" if "e+" in text else text


def size(size_B: int) -> str:
    """`3.14 GiB`, `512 KiB`, `4 B`."""
    for unit_B, name in _SIZES:
        if size_B >= unit_B:
            return f"{_three(size_B / unit_B)} {name}"
    return f"{size_B} B"


def share(part: float, whole: float) -> str:
    """`part` of `whole` in percent, empty where there is no whole."""
    return f"{100 * part / whole:.0f} %" if whole else ""


def numbered(names: Sequence[str]) -> str:
    """`names` in their order, those that differ in one number as one: `a_0.json … a_15.json, b.py`."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(re.sub(r"\d+", "#", name), []).append(name)
    return ", ".join(group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}" for group in alike.values())


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = (), right: Sequence[int] = (), indent: int = 2) -> str:
    """`rows` in aligned columns below `head`; the columns `right` are aligned to the right."""
    lines = [tuple(head), *map(tuple, rows)] if head else list(map(tuple, rows))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))] if lines else []
    margin = " " * indent
    shown = []
    for line in lines:
        cells = [
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append((margin + "  ".join(cells)).rstrip())
    return "\n".join(shown)


def beside(left: str, right: str, gap: int = 6) -> str:
    """Two texts side by side."""
    first, second = left.splitlines(), right.splitlines()
    width = max(map(len, first), default=0) + gap
    rows = max(len(first), len(second))
    first += [""] * (rows - len(first))
    second += [""] * (rows - len(second))
    return "\n".join((a.ljust(width) + b).rstrip() for a, b in zip(first, second, strict=True))


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def run_text(first: str, last: str) -> str:
    """A run of blocks: `layers.0 … 3`, `vision.13 … text.4` where it goes on in another list, or the name of its only one."""
    if first == last:
        return first
    (of_first, _, _), (of_last, _, number) = first.rpartition("."), last.rpartition(".")
    return f"{first} … {number if of_first == of_last else last}"
