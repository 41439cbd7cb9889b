"""Operators of one primitive: MindSpore gives all of them the one strategy that the primitive carries."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ms_symtensor.search.folded.places import Places
from ms_symtensor.search.tables.terms import Terms, terms
from ms_symtensor.search.tables.variables import Variables

APART_S = 1e6
"""Seconds that operators of one primitive are charged where their strategies differ: more than any step takes (empirical), and
finite, so that nothing is charged where they do not occur."""


def sharing(known: Variables, where: Places) -> Iterator[Terms]:
    """Tables that keep the strategies of operators with one primitive the same."""
    pairs: dict[tuple[int, int], None] = {}
    for numbers in _by_primitive(known).values():
        pairs |= dict.fromkeys(pairwise(numbers))
    for first, second in pairs:
        one, other = known.items[first], known.items[second]
        apart = np.array([[a != b for b in other.strategies] for a in one.strategies])
        if apart.any():
            shape = (known.pricer.family.members, *apart.shape)
            counts = where.counts(dict.fromkeys(one.members, 1))
            yield terms((first, second), counts, shape, np.where(apart, APART_S, 0.0)[None])


def _by_primitive(known: Variables) -> dict[tuple[str, ...], dict[int, None]]:
    """The variables of every primitive, by its path, in the graph's order."""
    found: dict[tuple[str, ...], dict[int, None]] = {}
    for number, variable in enumerate(known.items):
        for op in variable.members:
            if op.primitive and op.body is None:
                found.setdefault((*op.cell, op.primitive), {})[number] = None
    return found
