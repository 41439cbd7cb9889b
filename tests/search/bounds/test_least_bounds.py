"""Of all shapes' bounds where blocks make parts again, only those are raised on which something depends."""

import math
from dataclasses import replace

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.least_bounds import selection_bounds
from ms_symtensor.search.pipelined import pipelined_plan
from ms_symtensor.search.stages.network import network
from ms_symtensor.search.stages.tried import Surveyed

LIMIT_B = 9 << 30


def test_the_least_bounds_are_those_of_every_shape_by_itself():
    config = dimensions_of("llama2_7b", num_layers=8, batch_size=16)

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    of = network(graph_at(16, None), graph_at)
    found = pipelined_plan(of, Request(load("atlas_800t_a2"), 8, 16, config.seq_length, LIMIT_B))
    surveyed, enough_s, plan = found.outcome.surveyed, 1.1 * found.time_s, found.whole.estimate.shape
    alone = {}
    for one in surveyed:
        for row in one.free:
            (bound_s,) = selection_bounds(
                [Surveyed(one.setting, (row,), one.known)], of.depths, LIMIT_B, enough_s
            ).values()
            alone[row.shape] = min(bound_s, alone.get(row.shape, math.inf))

    def least_s(bounds_s, but=None):
        way = None if but is None else (but.stages, but.micro_batch_num)
        return min(s for shape, s in bounds_s.items() if (shape.stages, shape.micro_batch_num) != way)

    for known in (None, plan):
        bounds_s = selection_bounds(surveyed, of.depths, LIMIT_B, enough_s, known)
        assert least_s(bounds_s) == least_s(alone)
        assert least_s(bounds_s, known) == least_s(alone, known)
        assert all(bound_s <= alone[shape] for shape, bound_s in bounds_s.items())
    assert any(bound_s < alone[shape] for shape, bound_s in bounds_s.items())
