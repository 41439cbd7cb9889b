"""Seconds of pipeline stages from their programs."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.move import node_cost
from ms_symtensor.cost.stage_time import StageSeconds, pipelined_step_s, stage_seconds
from ms_symtensor.cost.step import traffic_B
from ms_symtensor.program.program import Role
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.asked.limits import limits_of
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.stages.network import network

A2 = load("atlas_800t_a2")


def test_the_slowest_stage_sets_the_pace():
    stages = [StageSeconds(1.0, 0.5), StageSeconds(3.0, 0.25), StageSeconds(2.0, 0.0)]
    assert pipelined_step_s(stages, 4) == 4 * 3.0 + 1.0 + 2.0 + 0.5


@pytest.mark.parametrize(
    ("model", "device_num", "stages", "level"),
    [
        ("llama2_7b", 8, 2, 1),
        ("llama2_7b", 8, 2, 2),
        ("llama2_7b", 4, 4, 1),
        ("llama2_7b", 8, 4, 2),
        ("llama2_7b", 2, 1, 1),
        ("llama2_7b", 8, 2, 0),
        ("gpt2_xl", 8, 2, 1),
        ("gpt2_xl", 4, 4, 0),
        ("gpt2_xl", 2, 1, 0),
        ("bert_large", 4, 2, 1),
    ],
)
def test_the_programs_of_a_plan_take_the_time_that_is_predicted(model, device_num, stages, level):
    """Tied embeddings included: both ends read them, and add up their gradients."""
    small = dimensions_of(model, num_layers=5, batch_size=16, seq_length=512)

    def at(batch, layers):
        return build_graph(replace(small, batch_size=batch, num_layers=layers or small.num_layers))

    pins = {"pipeline_stages": stages, "pp_interleave_num": 1, "micro_batch_num": 4, "optimizer_level": level}
    limits = limits_of(pins.items())
    plan = best_plan(network(at(16, None), at), Request(A2, device_num, 16, 512, 1 << 40, limits=limits))
    programs = partition_stages(at(16 // plan.micro_batch_num, None), plan.stages, plan.pipeline)
    seconds = [stage_seconds(p, stage, A2) for p, stage in zip(programs, plan.stages, strict=True)]
    assert plan.prediction.step_time_s == pytest.approx(pipelined_step_s(seconds, plan.micro_batch_num), rel=1e-9)
    synchronised_s = sum(
        program.times(node) * node_cost(A2, node.kind, node.group, *traffic_B(program.micro, node)).communication_s
        for program in programs
        for node in program.micro.nodes
        if node.role is Role.SYNC
    )
    assert plan.prediction.time_s["synchronisation"] == pytest.approx(synchronised_s / stages, rel=1e-9)
