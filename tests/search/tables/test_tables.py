"""Sums over tables: the same for one member of a family, laid out in a row, as for it among others."""

from dataclasses import replace

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.folded.batches import batch_powers
from ms_symtensor.search.folded.places import occurrences
from ms_symtensor.search.space.family import family
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.tables import Tables
from ms_symtensor.search.tables.terms import Weights
from tests.search.problems import factors, problem_of_family

MESHES = ((4, 2), (8, 4), (16, 2))


@pytest.fixture(scope="module")
def tables():
    small, large = (
        build_graph(replace(dimensions_of("gpt2_xl", batch_size=batch, seq_length=1024), num_layers=3))
        for batch in (4, 8)
    )
    of = problem_of_family(
        small,
        load("atlas_800t_a2"),
        family(MESHES, [mesh[0] / 4 for mesh in MESHES]),
        powers=batch_powers(small, large),
    )
    settings = replace(of.settings, optimizer_level=OptimizerLevel.LEVEL1)
    return Tables(of, parameter_terms(of.known, of.parameters, settings))


def summed(tables, which, price=1e-9):
    """The factors by scope, for members that count twice, and half recomputed."""
    here = np.array(occurrences(tables.of.places.depths), dtype=float)[:, None] * np.full(len(which), 2.0)
    found = tables.factors(0.5, np.full(len(which), price), Weights(*[here] * 6), np.array(which))
    return {factor.scope: factor.table for factor in found}


@pytest.mark.parametrize("price", (0.0, 1e-9))
def test_one_member_alone_and_among_others(tables, price):
    alone, among = summed(tables, [1, 1], price), summed(tables, [1, 2], price)
    assert alone.keys() == among.keys()
    for scope, table in alone.items():
        np.testing.assert_array_equal(table[0], among[scope][0])
        np.testing.assert_array_equal(table[0], table[1])


def test_costs_of_one_member_alone_and_among_others(tables):
    least = minimise(tables.of.sizes, factors(tables.of, tables.parameters, 0.0, 0.0), tables.of.order)
    among = tables.by_place(least.assignment[[1, 2]], np.array([1, 2]))
    alone = tables.by_place(least.assignment[[1]], np.array([1]))
    for name in ("each_s", "recompute_s", "once_s", "kept_B", "kept_recomputed_B", "at_rest_B"):
        np.testing.assert_array_equal(getattr(alone, name)[:, 0], getattr(among, name)[:, 0])


def test_costs_by_place_are_the_least_sum(tables):
    least = minimise(tables.of.sizes, factors(tables.of, tables.parameters, 0.0, 0.0), tables.of.order)
    costs = tables.by_place(least.assignment[[0]], np.array([0]))
    occurs = np.array(occurrences(tables.of.places.depths))
    assert least.value[0] == pytest.approx(float(occurs @ (costs.each_s + costs.once_s)[:, 0]))
