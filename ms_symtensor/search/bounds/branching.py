"""A bound that mixes layouts, raised by branches of which one is true: branch and bound (Land and Doig 1960)."""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from ms_symtensor.search.bounds.branches import EVERY, Branch
from ms_symtensor.search.bounds.duals import STEADY, Duals
from ms_symtensor.search.bounds.prices import slowest
from ms_symtensor.search.bounds.views import Views
from ms_symtensor.search.stages.rows import Row

AGAIN = 8
"""So often a branch is asked for with what it has met (empirical)."""

WIDE = 2e-3
"""A bound that is nearer to what is asked for is not looked for in branches (empirical)."""

SPLITS = 6
"""So often the branch that shows least is split (empirical)."""


def branched(duals: Duals, known: list[Row], views: Views, bound_s: float) -> float:
    """`bound_s`, where it mixes layouts, raised by branches of these: each has prices of its own."""
    numbers = count()
    leaves = [(bound_s, next(numbers), EVERY)]
    for _ in range(SPLITS):
        least_s, _, branch = leaves[0]
        if least_s >= (1 - WIDE) * duals.enough_s[known[0].shape]:
            break
        mixed = _mixed(duals, [row for row in known if branch.holds(row.choice)], views)
        if mixed is None:
            break
        heapq.heappop(leaves)
        for part in branch.split(*mixed, duals.setting.problem.sizes[mixed[0]]):
            value_s = max(least_s, _in_branch(duals, known, views, part))
            heapq.heappush(leaves, (value_s, next(numbers), part))
    return leaves[0][0]


def _in_branch(duals: Duals, known: list[Row], views: Views, branch: Branch) -> float:
    """The bound in `branch`; `known` grows by what is met."""
    best_s, met = 0.0, list[Row]()
    for _ in range(AGAIN):
        rows = [row for row in known if branch.holds(row.choice)]
        asked = replace(duals.ask(rows or known, views, met), branch=branch)
        ((value_s, found),) = duals.least([asked])
        best_s, new = max(best_s, value_s), found()
        if not new or (rows and best_s >= min(asked.most_s, duals.enough_s[known[0].shape]) * (1 - STEADY)):
            break
        known += [row for row in new if not row.is_among(known)]
        met += new
    return best_s


def _mixed(duals: Duals, known: Sequence[Row], views: Views) -> tuple[int, list[int]] | None:
    """The variable with the most work in which two layouts differ that a bound mixes, and its candidates there."""
    if not known:
        return None
    lines = duals.lines(known, views)
    seconds, over = lines.arrays()
    shares, prices = slowest(seconds, over, duals.enough_s[known[0].shape])
    at = seconds @ shares + over @ prices
    first, *others = [lines.rows[n] for n in np.argsort(at, kind="stable") if at[n] <= at.min() * (1 + STEADY)]
    for other in others:
        differ = np.flatnonzero(first.choice != other.choice)
        if len(differ):
            work_s = [float(duals.setting.problem.known.items[v].forward_s.max()) for v in differ]
            variable = int(differ[int(np.argmax(work_s))])
            return variable, sorted({int(first.choice[variable]), int(other.choice[variable])})
    return None
