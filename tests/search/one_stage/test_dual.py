"""The dual bounds every choice with so many recomputed blocks that fits."""

import math
import random

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.search.one_stage.dual import Dual
from ms_symtensor.search.one_stage.solve import settings_of
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.tables import totals
from tests.search.problems import problem
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("model", ("llama2_7b", "gpt2_xl"))
def test_no_choice_that_fits_is_faster_than_the_dual(model):
    draw = random.Random(model)
    of = problem(small_graph(model, num_layers=6), A2, (2, 2))
    blocks = len(of.blocks)
    terms = parameter_terms(of.known, of.parameters, settings_of(of.settings)[0])

    def cost(choice):
        return totals(of, terms, choice)

    free = Dual(of, terms, 0, (0, blocks), cost)
    free.begin()
    (_, most_B), (_, least_B) = (cost(free.fast.choice).recomputing(of.repeated(k)) for k in (0, blocks))
    for share in (0.3, 0.7):
        limit_B = int(least_B + share * (most_B - least_B))
        met = {free.fast.choice}
        for least, most in ((0, blocks), (0, blocks // 2), (blocks // 2 + 1, blocks)):
            dual = Dual(of, terms, limit_B, (least, most), cost)
            dual.begin()
            dual.go_on(math.inf)
            met |= set(dual.met)
            assert dual.bound_s >= free.bound_s * (1 - 1e-9)
            for _ in range(30):
                met.add(
                    tuple(draw.randrange(n) if draw.random() < 0.02 else x for x, n in zip(free.fast.choice, of.sizes))
                )
            for choice in met:
                found = cost(choice)
                for count in range(least, most + 1):
                    time_s, kept_B = found.recomputing(of.repeated(count))
                    assert kept_B > limit_B or time_s >= dual.bound_s * (1 - 1e-9)
