"""Buffers that an operator surely needs are those of the program, or fewer."""

import random

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.one_stage.buffers import buffer_terms
from ms_symtensor.search.one_stage.solve import settings_of
from tests.search.problems import problem
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("model", ("llama2_7b", "gpt2_xl"))
def test_no_program_has_smaller_buffers(model):
    draw = random.Random(model)
    graph = small_graph(model)
    of = problem(graph, A2, (4, 2))
    (table,) = buffer_terms(of.known, of.parameters, of.places.behind)
    found = set()
    for _ in range(30):
        choice = [draw.randrange(size) for size in of.sizes]
        named = {name: of.known.items[v].strategies[choice[v]] for name, v in of.known.index.items()}
        needed_B = table.kept_B[(0, *(choice[v] for v in table.scope))]
        for settings in settings_of(of.settings):
            try:
                program = partition(graph, StagePlan(named, settings))
            except InvalidStrategyError:
                continue
            assert needed_B <= buffers_B(program)
            found.add(needed_B)
    assert max(found) > 0
