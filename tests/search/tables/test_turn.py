"""What is alive while the loss is computed is most of what is alive at the peak."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.space.settings import settings_of
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.parameters import parameter_terms
from tests.search.problems import factors, problem, totals
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("model", ("llama2_7b", "bert_large"))
def test_the_bytes_of_a_plan_are_those_of_its_peak(model):
    """With a vocabulary so large that the loss decides: less than 2 % is missing, buffers of communicators aside."""
    graph = small_graph(model, num_layers=4, vocab_size=4096)
    of = problem(graph, A2, (8,))
    for settings in settings_of(of.settings):
        terms = parameter_terms(of.known, of.parameters, settings)
        (choice,) = minimise(of.sizes, factors(of, terms, 0.0, 0.0), of.order).assignment
        named = {name: of.known.items[v].strategies[choice[v]] for name, v in of.known.index.items()}
        plan = StagePlan(named, settings)
        cost = price(graph, plan, partition(graph, plan), A2)
        peak_B = cost.peak_memory_B - cost.memory_B["buffers"]
        _, kept_B = totals(of, terms, choice)
        assert 0.98 * peak_B <= kept_B <= peak_B
