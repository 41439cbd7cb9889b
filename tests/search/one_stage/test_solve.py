"""The best choice under a memory limit."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.one_stage.solve import solve
from tests.search.problems import problem

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("model", ("llama2_7b", "gpt2_xl"))
def test_what_the_smallest_choice_needs_is_enough(model):
    config = replace(dimensions_of(model, batch_size=8, seq_length=512), num_layers=4)
    of = problem(build_graph(config), A2, (2, 2))
    smallest = solve(of, 1).smallest
    found = solve(of, smallest.memory_B)
    assert found.best is not None and found.best.memory_B <= smallest.memory_B
