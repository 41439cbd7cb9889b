"""Seconds of pipeline stages from their programs."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.bill import Bill, Key, Message, Part, Pass, traffic_B, work_s
from ms_symtensor.cost.move import node_cost
from ms_symtensor.cost.parameter import kernels_B
from ms_symtensor.cost.runtime import Hiding, Runtime, Stored, runtime_of
from ms_symtensor.cost.stage_time import StageSeconds, pipelined_step_s, seconds_of_bill, stage_seconds, update_s
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import COLLECTIVES, Phase, Role
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.stages.network import network

A2 = load("atlas_800t_a2")


def test_the_slowest_stage_sets_the_pace():
    stages = [StageSeconds(0.5, 0.5, 0.0, 0.5), StageSeconds(1.0, 2.0, 0.0, 0.25), StageSeconds(1.0, 1.0, 0.0, 0.0)]
    assert pipelined_step_s(stages, 4) == 4 * 3.0 + 1.0 + 2.0 + 0.5


def test_what_a_stage_does_once_runs_while_it_waits_for_others():
    """The second stage gathers weights while the first one passes its micro-batch forward, and sums gradients while that one
    passes the last one backward.
    """
    stages = [StageSeconds(2.0, 4.0, 0.0, 0.0), StageSeconds(2.0, 4.0, 1.5, 3.5)]
    assert pipelined_step_s(stages, 2) == 2 * 6.0 + 6.0
    late = [stages[0], StageSeconds(2.0, 4.0, 2.5, 5.0)]
    assert pipelined_step_s(late, 2) == 2 * 6.0 + 6.0 + 0.5 + 1.0
    assert pipelined_step_s(late, 2, interleave=2) == 2 * 6.0 + 3.0 + 1.5 + 3.0


def test_hidden_communication_takes_what_its_window_leaves_and_slows_the_work_beside_it():
    gradients = Key(Part.GRADIENTS, Phase.BACKWARD, True, "")
    work = Key(Part.COMPUTE, Phase.BACKWARD, False, "")
    summed, computed = Message("AllReduce", tuple(range(8)), 1 << 30), Pass("Mul", 1 << 30)
    bill = Bill({gradients: {summed: 1}, work: {computed: 1}})
    summed_s, computed_s = work_s(summed, A2), work_s(computed, A2)
    assert summed_s > computed_s  # so that some of it is exposed
    plain = seconds_of_bill(bill, 0.0, A2, Runtime("plain", ""))
    assert (plain.backward_s, plain.end_s) == pytest.approx((computed_s, summed_s))
    hides = seconds_of_bill(bill, 0.0, A2, Runtime("hides", "", {Part.GRADIENTS: Hiding(1.0, 0.25)}))
    assert hides.end_s == pytest.approx(summed_s - computed_s + 0.25 * computed_s)
    assert hides.hidden_s == {("end", Part.GRADIENTS): pytest.approx(computed_s)}


def test_launches_stand_between_kernels_where_the_host_waits_for_each():
    computed = Pass("Mul", 1 << 30)
    bill = Bill({Key(Part.COMPUTE, Phase.BACKWARD, False, ""): {computed: 3}})
    busy_s = 3 * work_s(computed, A2)
    assert busy_s > 3 * A2.device.host_overhead_s
    beside = seconds_of_bill(bill, 0.0, A2, Runtime("eager", "", is_eager=True))
    assert beside.backward_s == pytest.approx(busy_s)
    waiting = seconds_of_bill(bill, 0.0, A2, Runtime("waits", "", is_eager=True, is_blocking=True))
    assert waiting.backward_s == pytest.approx(busy_s + 3 * A2.device.host_overhead_s)


def test_only_a_share_hides_and_only_in_some_passes():
    """As of tensor-parallel layers under Megatron: in the backward pass, but for the layers that wait."""
    sent, computed = Message("AllGather", tuple(range(8)), 1 << 26), Pass("Mul", 1 << 34)
    passes = {
        phase: {Key(Part.TENSOR, phase, False, ""): {sent: 1}, Key(Part.COMPUTE, phase, False, ""): {computed: 1}}
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    }
    bill = Bill(passes[Phase.FORWARD] | passes[Phase.BACKWARD])
    sent_s, computed_s = work_s(sent, A2), work_s(computed, A2)
    hiding = Hiding(1.0, 0.0, share=0.75, passes=("backward",))
    found = seconds_of_bill(bill, 0.0, A2, Runtime("hides", "", {Part.TENSOR: hiding}))
    assert found.forward_s == pytest.approx(computed_s + sent_s)
    assert found.backward_s == pytest.approx(computed_s + 0.25 * sent_s)


def test_weights_that_are_sharded_wholly_are_gathered_in_every_micro_batch():
    gathered, scattered = (
        Message("AllGather", tuple(range(8)), 1 << 28),
        Message("ReduceScatter", tuple(range(8)), 1 << 28),
    )
    bill = Bill({
        Key(Part.WEIGHTS, Phase.FORWARD, True, ""): {gathered: 1},
        Key(Part.GRADIENTS, Phase.BACKWARD, True, ""): {scattered: 1},
    })  # fmt: skip
    first, third = (
        seconds_of_bill(bill, 0.0, A2, Runtime("sharded", "", stores=Stored(level=level)))
        for level in (OptimizerLevel.LEVEL1, OptimizerLevel.LEVEL3)
    )
    assert first.each_s == 0.0 and first.once_s == pytest.approx(work_s(gathered, A2) + work_s(scattered, A2))
    assert third.once_s == 0.0 and third.each_s == pytest.approx(2 * work_s(gathered, A2) + work_s(scattered, A2))


def test_an_optimizer_of_many_kernels_is_priced_kernel_by_kernel():
    assert kernels_B(("w>f", "ff>f", "f>w"), 2, 2) == {6: 2, 12: 1}
    assert kernels_B(("w>f", "ff>f", "f>w"), 4, 4) == {12: 1}  # casts of what is float32 are none
    graph = build_graph(replace(dimensions_of("llama2_7b", batch_size=1), num_layers=2))
    parameters = [(one, 1) for one in partition(graph, StagePlan({}, Settings(1))).parameters.values()]
    one, many = (
        update_s(parameters, Settings(1), A2, runtime_of(name).updates)
        for name in ("mindspore_graph", "mindformers_graph")
    )
    assert 5 * one < many < 10 * one  # some 150 bytes of a weight instead of 24, and 27 kernels each


def test_a_host_that_launches_is_waited_for():
    work = Key(Part.COMPUTE, Phase.FORWARD, False, "")
    bill = Bill({work: {Pass("Mul", 1024): 100}})
    eager = seconds_of_bill(bill, 0.0, A2, Runtime("eager", "", is_eager=True))
    assert eager.forward_s == pytest.approx(100 * A2.device.host_overhead_s)


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
        program.times(node) * node_cost(A2, node.kind, node.group, *traffic_B(program.micro, node))
        for program in programs
        for node in program.micro.nodes
        if node.role is Role.SYNC and node.kind in COLLECTIVES
    )
    assert plan.prediction.time_s["synchronisation"] == pytest.approx(synchronised_s / stages, rel=1e-9)


def test_gradients_are_summed_in_messages_of_a_bucket():
    key = Key(Part.GRADIENTS, Phase.BACKWARD, True, "")
    ranks, size_B = tuple(range(8)), 1 << 20
    bill = Bill({key: {Message("AllReduce", ranks, size_B): 8}})
    merged = seconds_of_bill(bill, 0.0, A2, Runtime("merges", "", bucket_B=4 * size_B))
    assert merged.end_s == pytest.approx(2 * work_s(Message("AllReduce", ranks, 4 * size_B), A2))
    assert merged.end_s < seconds_of_bill(bill, 0.0, A2, Runtime("plain", "")).end_s


def test_what_a_block_gathers_is_one_message():
    key, ranks = Key(Part.WEIGHTS, Phase.FORWARD, True, ""), tuple(range(8))
    bill = Bill({key: {Message("AllGather", ranks, size_B): 4 for size_B in (1 << 20, 3 << 20)}}, units=4)
    merged = seconds_of_bill(bill, 0.0, A2, Runtime("blocks", "", merges_blocks=True))
    assert merged.start_s == pytest.approx(4 * work_s(Message("AllGather", ranks, 4 << 20), A2))
