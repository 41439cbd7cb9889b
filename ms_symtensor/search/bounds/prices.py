"""Prices at which what is known of a step is as slow as can be: the best multipliers of a Lagrangian dual for a few layouts.

Every line is a layout: seconds by several bounds, each of which a step takes at least, and bytes beyond several limits, none of
which may be exceeded. Whatever shares of the bounds (their sum is 1) and prices of the limits are chosen, a step takes no less
than the least line; the largest least line is a linear program:

    max z    z <= Σ shares · seconds + Σ prices · bytes of every line,    Σ shares <= 1,    z <= enough,    all >= 0

Written out because of several best solutions every version of a solver takes another, and the stated gap must be the same bytes
everywhere; and because a search asks some hundred times for a fraction of a millisecond each.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CHEAP = 1e-7
"""A price of a second for all of a limit counts so many seconds less: of equal prices the lowest are taken (empirical)."""

TURNS = 400
"""Pivots after which what was found so far is taken; Bland's rule (1977) ends long before (empirical)."""

DANTZIG = 60
"""Pivots that take the steepest direction, before Bland's rule takes over, which never cycles (empirical)."""

DIGITS = 36
"""Binary digits of a price of a byte (empirical: sums of the same few numbers differ by less)."""

TINY = 1e-10
"""Less than this is nothing, where all numbers are about 1 (empirical)."""


def rounded_up(prices: Array) -> Array:
    """`prices` to DIGITS: those that differ by how sums are rounded are one. With a dearer byte a bound is no larger."""
    mantissa, exponent = np.frexp(prices)
    found: Array = np.ldexp(np.ceil(np.ldexp(mantissa, DIGITS)), exponent - DIGITS)
    return found


def slowest(seconds: Array, over: Array, enough_s: float) -> tuple[Array, Array]:
    """The shares [bounds] and prices [limits] at which the least of the lines, `seconds` [lines, bounds] with `over` [lines,
    limits], is as large as can be, or `enough_s`.
    """
    bounds, limits = seconds.shape[1], over.shape[1]
    scale = np.maximum(np.abs(over).max(axis=0, initial=0.0), 1.0)
    unit_s = max(enough_s, TINY)
    lines = np.concatenate([-seconds / unit_s, -over / scale, np.ones((len(seconds), 1))], axis=1)
    shares = np.concatenate([np.ones(bounds), np.zeros(limits + 1)])
    top = np.concatenate([np.zeros(bounds + limits), np.ones(1)])
    gain = np.concatenate([np.zeros(bounds), np.full(limits, -CHEAP), np.ones(1)])
    found = maximised(gain, np.vstack([lines, shares, top]), np.concatenate([np.zeros(len(lines)), np.ones(2)]))
    share = np.maximum(found[:bounds], 0.0)
    total = share.sum()
    share = share / total if total > 0 else np.eye(bounds)[0]
    return share, np.maximum(found[bounds : bounds + limits], 0.0) * unit_s / scale


def maximised(gain: Array, rows: Array, most: Array) -> Array:
    """x >= 0 with the largest gain · x for which rows · x <= most, where most >= 0: the simplex method on a dictionary."""
    count = len(gain)
    table = np.zeros((len(rows) + 1, count + 1))
    table[:-1, :count], table[:-1, count], table[-1, :count] = rows, most, gain
    inside, outside = np.arange(count, count + len(rows)), np.arange(count)
    for turn in range(TURNS):
        gains = table[-1, :count]
        column = int(gains.argmax())
        if gains[column] <= TINY:
            break
        if turn >= DANTZIG:
            rising = (gains > TINY).nonzero()[0]
            column = int(rising[outside[rising].argmin()])
        tight = (table[:-1, column] > TINY).nonzero()[0]
        if not len(tight):
            break
        room = table[tight, count] / table[tight, column]
        least = tight[room <= np.minimum.reduce(room) + TINY]
        row = int(least[inside[least].argmin()])
        _pivot(table, row, column)
        inside[row], outside[column] = outside[column], inside[row]
    found = np.zeros(count + len(rows))
    found[inside] = table[:-1, count]
    return found[:count]


def _pivot(table: Array, row: int, column: int) -> None:
    """What is inside in `row` and what is outside in `column` change places."""
    pivot = table[row, column]
    mine = table[row] / pivot
    mine[column] = 1.0 / pivot
    others = table[:, column].copy()
    others[row] = 0.0
    table[:, column] = 0.0
    table[row] = 0.0
    table -= others[:, None] * mine
    table[row] = mine
