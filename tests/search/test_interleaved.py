"""Plans whose stages hold several runs of blocks."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.stage_time import pipelined_step_s, stage_seconds
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.limits import FREE, limits_of
from ms_symtensor.search.network import network
from ms_symtensor.search.request import Request
from ms_symtensor.search.shapes import Shape, interleaved

A2 = load("atlas_800t_a2")
SMALL = dimensions_of("llama2_7b", num_layers=9, batch_size=16)


def at(batch, layers):
    return build_graph(replace(SMALL, batch_size=batch, num_layers=layers or SMALL.num_layers))


def planned(fix, most=()):
    request = Request(A2, 8, 16, SMALL.seq_length, 1 << 40, limits=limits_of(fix, most))
    return best_plan(network(at(16, None), at), request)


def test_one_run_unless_others_are_asked_for():
    assert FREE.interleaves == (1,)
    assert limits_of([], [("pp_interleave_num", 2)]).interleaves == (1, 2)
    assert limits_of([("pp_interleave_num", 3)]).interleaves == (3,)


def test_micro_batches_go_round_in_groups_and_every_run_has_a_block():
    shape = Shape(2, 4, (4,), 4)
    assert interleaved(shape, 2, 4).interleave == 2
    assert interleaved(shape, 2, 3) is None
    assert interleaved(replace(shape, micro_batch_num=3), 2, 4) is None
    assert interleaved(Shape(1, 4, (4,), 4), 2, 4) is None


def test_a_plan_of_interleaved_stages():
    plan = planned([("pipeline_stages", 2), ("pp_interleave_num", 2)])
    assert plan.pp_interleave_num == 2 and plan.fixed["pp_interleave_num"] == "2"
    runs = [[len(run) for run in runs] for runs in plan.pipeline.layers]
    assert sorted(n for stage in runs for n in stage) == [2, 2, 2, 3]
    programs = partition_stages(at(16 // plan.micro_batch_num, None), plan.stages, plan.pipeline)
    each = [stage_seconds(p, stage, A2) for p, stage in zip(programs, plan.stages, strict=True)]
    alone_s = pipelined_step_s(each, plan.micro_batch_num, 2)
    assert alone_s < plan.prediction.step_time_s < 1.1 * alone_s  # what is sent between the runs is priced too
    peaks_B = [sum(stage_memory_B(p.micro, False, stage_activation_peak_B(p), {}, {}).values()) for p in programs]
    assert plan.prediction.peak_memory_B == pytest.approx(max(peaks_B), rel=0.01)


def test_interleaving_shortens_the_bubble():
    fixed = [("pipeline_stages", 4), ("micro_batch_num", 4)]
    plain, dealt = planned(fixed), planned(fixed, [("pp_interleave_num", 2)])
    assert plain.pp_interleave_num == 1 and dealt.pp_interleave_num == 2
    assert dealt.prediction.time_s["bubble"] < 0.8 * plain.prediction.time_s["bubble"]
    assert dealt.prediction.peak_memory_B >= plain.prediction.peak_memory_B


def test_one_stage_has_one_run():
    with pytest.raises(InfeasibleError):
        planned([("pipeline_stages", 1), ("pp_interleave_num", 2)])
