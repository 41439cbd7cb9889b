"""Branches leave nothing out, and forbid just what they do not hold."""

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.search.bounds.branches import EVERY, forbidden

SIZES = (3, 2, 4)


@st.composite
def leaves(draw):
    """The leaves of a tree of splits."""
    found = [EVERY]
    for _ in range(draw(st.integers(0, 4))):
        branch = found.pop(draw(st.integers(0, len(found) - 1)))
        variable = draw(st.integers(0, len(SIZES) - 1))
        allowed = sorted(branch.allowed.get(variable, range(SIZES[variable])))
        candidates = draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=2, unique=True))
        found += branch.split(variable, candidates, SIZES[variable])
    return found


@given(leaves())
def test_every_layout_is_in_one_leaf(found):
    for choice in product(*map(range, SIZES)):
        assert sum(branch.holds(choice) for branch in found) == 1


@given(leaves())
def test_tables_forbid_what_a_branch_does_not_hold(found):
    tables = list(forbidden(found, SIZES))
    for choice in product(*map(range, SIZES)):
        penalty = np.sum([np.zeros(len(found)), *(one.table[:, choice[one.scope[0]]] for one in tables)], axis=0)
        assert [bool(np.isinf(p)) for p in penalty] == [not branch.holds(choice) for branch in found]


def test_nothing_is_forbidden_without_branches():
    assert not list(forbidden([EVERY, EVERY], SIZES))
