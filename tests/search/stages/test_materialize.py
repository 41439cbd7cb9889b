"""Plans over stages and micro-batches against every step that there is, priced from its programs."""

import random
from dataclasses import replace

import pytest

from benchmarks.brute_force_stages import disagreements, random_case
from benchmarks.stage_space import all_steps
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.search.space.step_layouts import step_layouts
from ms_symtensor.search.stages.materialize import as_given, fastest_plan, made_feasible
from ms_symtensor.search.stages.network import network
from ms_symtensor.search.stages.question import Question

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("seed", range(12))
def test_no_step_is_faster(seed):
    draw, limited = random.Random(f"test/{seed}"), seed % 2 == 1
    case = random_case(draw, 150, limited, A2)
    assert disagreements(case, list(all_steps(case, limited)), limited, draw) == []


def test_where_any_plan_will_do_what_needs_least_is_tried_first():
    config = dimensions_of("llama2_7b", num_layers=8, batch_size=16)

    def graph_at(batch, layers):
        return build_graph(replace(config, batch_size=batch, num_layers=layers or 8))

    of, limit_B = network(graph_at(16, None), graph_at), 9 << 30
    space = [one for one in step_layouts(8, 16, 8) if one.stages == 2 and one.micro_batch_num == 8]

    def incumbents(any_plan):
        """The bytes that layouts need with all blocks recomputed, in the order in which they are tried."""
        found = []

        def fit(network, row, limit_B, rules):
            peaks_B = made_feasible(network, row, float("inf"), rules)
            layers = [stage.blocks for stage in peaks_B.estimate.stages]
            found.append(as_given(network, row, layers, layers).estimate.peak_memory_B)

        _, plan = fastest_plan(of, space, Question(A2, limit_B), fit=fit, any_plan=any_plan)
        assert plan is None  # of all that were tried
        return found

    every, fastest_first = incumbents(True), incumbents(False)
    assert len(every) > 2 and every[0] == min(every) < fastest_first[0]
