"""Of all shapes' bounds where blocks make parts again, only those are raised on which something depends."""

import math
from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.duals import STEADY
from ms_symtensor.search.bounds.least_bounds import selection_bounds
from ms_symtensor.search.pipelined import Pipelined, pipelined_plan
from ms_symtensor.search.stages.network import Network, network
from ms_symtensor.search.stages.tried import Surveyed

LIMIT_B = 9 << 30


@pytest.fixture(scope="module")
def of() -> Network:
    config = dimensions_of("llama2_7b", num_layers=8, batch_size=16)

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    return network(graph_at(16, None), graph_at)


@pytest.fixture(scope="module")
def found(of: Network) -> Pipelined:
    return pipelined_plan(of, Request(load("atlas_800t_a2"), 8, 16, 4096, LIMIT_B))


def test_the_least_bound_is_that_of_every_shape_by_itself(of: Network, found: Pipelined):
    surveyed, enough_s = found.outcome.surveyed, 1.1 * found.time_s
    alone = {}
    for one in surveyed:
        for row in one.free:
            by_itself = [Surveyed(one.setting, (row,), one.known)]
            (bound_s,) = selection_bounds(by_itself, of.depths, LIMIT_B, enough_s).bounds_s.values()
            alone[row.shape] = min(bound_s, alone.get(row.shape, math.inf))
    bounds_s = selection_bounds(surveyed, of.depths, LIMIT_B, enough_s).bounds_s
    assert min(bounds_s.values()) >= min(alone.values())
    # A shape by itself stops within STEADY of what it could show; what others have met can take it there.
    assert all(bound_s <= (1 + STEADY) * alone[shape] for shape, bound_s in bounds_s.items())
    assert any(bound_s < alone[shape] for shape, bound_s in bounds_s.items())


def test_no_step_that_is_met_is_faster_than_the_bound_of_its_shape(of: Network, found: Pipelined):
    raised = selection_bounds(found.outcome.surveyed, of.depths, LIMIT_B, found.time_s)
    steps = raised.steps(math.inf)
    assert len({row.shape for _, row in steps}) > 5
    assert [step_s for step_s, _ in steps] == sorted(step_s for step_s, _ in steps)
    assert all(step_s >= (1 - 1e-9) * raised.bounds_s[row.shape] for step_s, row in steps)
    below_s = steps[len(steps) // 2][0]
    assert [step_s for step_s, _ in raised.steps(below_s)] == [step_s for step_s, _ in steps if step_s < below_s]
