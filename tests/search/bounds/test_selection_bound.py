"""Bounds of one stage whose blocks may make parts again."""

import math
import random

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.selection_bound import EVERYTHING, SelectionDual
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.tables import factors, totals
from tests.search.problems import problem


@pytest.fixture(scope="module")
def case():
    """A problem with its parameters, what its blocks may make again, and its fastest layouts with their bytes."""
    of = problem(build_graph(dimensions_of("llama2_7b", num_layers=3, batch_size=8)), load("atlas_800t_a2"), (4, 2))
    parameters = parameter_terms(of.known, of.parameters, of.settings)
    fastest = tuple(minimise(of.sizes, factors(of, parameters, 0.0, 0.0), of.order).assignment[0].tolist())
    return of, parameters, Remaking(of), fastest, totals(of, parameters, fastest)


def test_no_layouts_with_what_they_make_again_are_faster_than_the_bound(case):
    of, parameters, remaking, fastest, plain = case
    draw = random.Random(0)
    for share in (0.95, 0.85, 0.75):
        limit_B = int(share * (plain.kept_B + plain.at_rest_B))
        dual = SelectionDual(of, remaking, parameters, limit_B, 0.0)
        dual.raised(fastest, math.inf)
        assert plain.plain_s < dual.bound_s < math.inf
        for choice in [fastest, *(tuple(draw.randrange(n) for n in of.sizes) for _ in range(5))]:
            least_s, _ = dual._at(choice, 1.0)
            assert least_s >= (1 - 1e-9) * dual.bound_s


def test_where_nothing_fits_by_little_memory_gets_dearer_though_the_same_layouts_are_the_least(case):
    of, parameters, remaking, _, _ = case
    slim = tuple(minimise(of.sizes, factors(of, parameters, 1.0, EVERYTHING), of.order).assignment[0].tolist())
    plain, counts = totals(of, parameters, slim), np.array(of.places.occurrences)
    saved_B = float(counts @ remaking.given(slim).at(EVERYTHING).saved_B)
    least_B = plain.kept_B + plain.at_rest_B - saved_B
    dual = SelectionDual(of, remaking, parameters, int(0.97 * least_B), 0.0)
    enough_s = 1.5 * (plain.plain_s + sum(plain.again_s))
    assert dual.raised(slim, enough_s) == []
    assert dual.bound_s >= enough_s
