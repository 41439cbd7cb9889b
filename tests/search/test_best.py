"""Plans over pipeline stages: what fits together, what is pinned, and what is said where nothing fits."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.stage_time import pipelined_step_s, stage_seconds
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import Limits, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.stages.network import network
from ms_symtensor.strategy.primitives import strategies_by_primitive

GIB = 1 << 30
A2 = load("atlas_800t_a2")
SMALL = dimensions_of("llama2_7b", num_layers=8, batch_size=16)


def graph_at(batch, layers):
    return build_graph(replace(SMALL, batch_size=batch, num_layers=layers or SMALL.num_layers))


NETWORK = network(graph_at(16, None), graph_at)
REQUEST = Request(A2, 8, 16, SMALL.seq_length, 58 * GIB, "llama2_7b", {"model": "llama2_7b", "batch_size": "16"})


def test_a_short_network_stands_for_the_whole_one():
    assert NETWORK.depths == (1, 8, 1)
    assert len({op.block for op in NETWORK.short(4).ops if op.block}) == 3


@pytest.mark.parametrize("stages", (2, 4))
def test_pinned_stages(stages):
    found = best_plan(
        NETWORK, replace(REQUEST, limits=Limits({"pipeline_stages": stages}, {"pipeline_stages": stages}))
    )
    assert found.pipeline_stages == stages and found.device_num == 8
    assert found.pipeline.layer_num == 8
    batch = 16 // found.micro_batch_num
    assert found.source["batch_size"] == str(batch)
    assert found.graph_hash == graph_at(batch, None).hash
    assert found.prediction.peak_memory_B <= 58 * GIB
    assert 0 <= found.search.optimality_gap < 0.5
    assert set(found.prediction.time_s) == {"compute", "communication", "synchronisation", "optimizer", "bubble"}


@pytest.mark.parametrize(
    "name, op_type, devices, batch", [("gpt2_xl", "Add", 32, 16), ("llama2_7b", "BatchMatMul", 64, 48)]
)
def test_functional_operators_are_cut_as_mindspore_does_where_devices_do_not_divide_the_batch(
    name, op_type, devices, batch
):
    small = dimensions_of(name, num_layers=2, batch_size=batch, seq_length=512)

    def at(batch, layers):
        graph = build_graph(replace(small, batch_size=batch, num_layers=layers or 2))
        ops = (replace(op, cell=(), primitive="") if op.type == op_type else op for op in graph.ops)
        return replace(graph, ops=tuple(ops))

    found = best_plan(network(at(batch, None), at), Request(A2, devices, batch, 512, 58 * GIB, name, {}))
    graph = at(batch // found.micro_batch_num, None)
    assert not any(op.type == op_type for op, _ in strategies_by_primitive(graph, found.whole).values())


def test_gradients_accumulate_where_a_batch_is_large_and_the_network_small():
    """On one stage nobody waits for others."""
    small = dimensions_of("gpt2_xl", num_layers=4, batch_size=1024)

    def at(batch, layers):
        return build_graph(replace(small, batch_size=batch, num_layers=layers or 4))

    found = best_plan(network(at(1024, None), at), replace(REQUEST, global_batch_size=1024, limit_B=16 * GIB))
    assert found.pipeline_stages == 1 and found.micro_batch_num > 1
    assert found.pipeline.layer_num == 4 and "bubble" not in found.prediction.time_s
    assert found.graph_hash == at(1024 // found.micro_batch_num, None).hash
    assert found.prediction.peak_memory_B <= 16 * GIB


@pytest.mark.matrix
def test_gradients_are_scattered_at_every_micro_batch_where_their_memory_is_worth_that():
    small = dimensions_of("qwen3_30b_a3b", batch_size=16)

    def at(batch, layers):
        return build_graph(replace(small, batch_size=batch, num_layers=layers or small.num_layers))

    of = network(at(16, None), at)
    request = replace(REQUEST, device_num=16, seq_length=small.seq_length, limit_B=50 * GIB)
    free = best_plan(of, request)
    assert free.settings.optimizer_level is OptimizerLevel.LEVEL2 and free.micro_batch_num == free.pipeline_stages == 2
    for level in range(2):
        pinned = best_plan(of, replace(request, limits=limits_of([("optimizer_level", level)])))
        assert pinned.prediction.step_time_s > free.prediction.step_time_s


def test_level2_is_not_for_micro_batches_on_one_stage():
    pins = {"pipeline_stages": 1, "micro_batch_num": 2, "optimizer_level": 2}
    with pytest.raises(InputError, match="level2 is not for micro-batches on one stage"):
        best_plan(NETWORK, replace(REQUEST, limits=limits_of(pins.items())))


def test_a_block_without_a_twin_is_planned_on_one_stage():
    small = dimensions_of("llama2_7b", num_layers=1, batch_size=16, seq_length=512)

    def at(batch, layers):
        return build_graph(replace(small, batch_size=batch, num_layers=layers or small.num_layers))

    of = network(at(16, None), at)
    found = best_plan(of, REQUEST)
    assert found.pipeline is None and found.prediction.fits
    assert found.search.method.endswith("; one stage, the batch as a whole: layers.0 is like no other block")
    for name, what in (
        ("pipeline_stages", "laid out over pipeline stages"),
        ("micro_batch_num", "split into micro-batches"),
    ):
        with pytest.raises(InputError, match=rf"{what}: layers\.0 is like no other block"):
            best_plan(of, replace(REQUEST, limits=limits_of([(name, 2)])))


def frozen(layers):
    """The network at any batch, the blocks with these numbers frozen."""
    names = tuple(f"layers.{n}." for n in layers)

    def at(batch, layers):
        graph = graph_at(batch, layers)
        return replace(
            graph, parameters=tuple(replace(p, requires_grad=not p.name.startswith(names)) for p in graph.parameters)
        )

    return at


def test_kinds_of_blocks_that_stand_in_no_order_are_planned_on_one_stage():
    at = frozen((1, 2, 4))
    of, why = network(at(16, None), at), "layers.1 stands between layers.0 and layers.7, and is not like them"
    found = best_plan(of, replace(REQUEST, device_num=32))
    assert found.pipeline is None and found.search.method.endswith(f"; one stage, the batch as a whole: {why}")
    with pytest.raises(InputError, match=f"laid out over pipeline stages: {why}"):
        best_plan(of, replace(REQUEST, limits=limits_of([("pipeline_stages", 2)])))


def as_its_programs(found, graph):
    """Whether the step and the peak of a plan on stages are those of its programs."""
    programs = partition_stages(graph, found.stages, found.pipeline)
    seconds = [stage_seconds(program, stage, A2) for program, stage in zip(programs, found.stages, strict=True)]
    peaks_B = [
        sum(stage_memory_B(p.micro, 2, p.scatters_gradients, stage_activation_peak_B(p), {}, {}).values())
        for p in programs
    ]
    step_s, peak_B = pipelined_step_s(seconds, found.micro_batch_num, found.pipeline.interleave), max(peaks_B)
    return found.prediction.step_time_s == pytest.approx(step_s, rel=1e-9) and found.prediction.peak_memory_B == peak_B


@pytest.mark.parametrize("lone", (0, 7))
def test_a_block_like_no_other_before_or_behind_equal_ones_goes_on_stages(lone):
    at = frozen((lone,))
    of = network(at(16, None), at)
    assert sorted(of.depths) == [1, 1, 1, 7]
    pins = limits_of([("pipeline_stages", 2), ("micro_batch_num", 4)])
    for limit_B in (64 * GIB, 7 * GIB):
        found = best_plan(of, replace(REQUEST, limits=pins, limit_B=limit_B))
        assert found.prediction.fits and as_its_programs(found, at(4, None))
    assert any(stage.settings.recompute for stage in found.stages)


@pytest.mark.parametrize(
    "layers",
    [(1, 3, 5, 7), pytest.param((2, 5), marks=pytest.mark.matrix), pytest.param((0, 3, 6), marks=pytest.mark.matrix)],
    ids=["abababab", "aabaabaa", "baabaaba"],
)
def test_kinds_of_blocks_that_take_turns_go_on_stages(layers):
    at = frozen(layers)
    of, graph = network(at(16, None), at), at(4, None)
    pins = {"pipeline_stages": 2, "micro_batch_num": 4, "pp_interleave_num": 1}
    plain, short = (
        best_plan(of, replace(REQUEST, limits=limits_of(pins.items()), limit_B=limit_B))
        for limit_B in (64 * GIB, int(7.3 * GIB))
    )
    for found in (plain, short):
        assert found.graph_hash == graph.hash and as_its_programs(found, graph)
        assert "kinds of blocks take turns" in found.search.method and found.fixed["pipeline_stages"] == "2"
    recomputation = {name: chosen for stage in short.stages for name, chosen in stage.settings.recompute.items()}
    assert recomputation and short.prediction.fits
    select = limits_of([*pins.items(), ("recompute", "select")])
    selective = best_plan(of, replace(REQUEST, limits=select, limit_B=int(7.3 * GIB)))
    assert short.prediction.step_time_s <= selective.prediction.step_time_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("layers", "number", "stages"), [((1, 3, 5, 7), 3, 2), ((2, 5), 7, 1), ((2, 5), 3, 2)], ids=str
)
def test_any_number_of_blocks_that_take_turns_is_recomputed(layers, number, stages):
    at = frozen(layers)
    of = network(at(16, None), at)
    pins = [("pipeline_stages", stages), ("recompute", number)]
    found = best_plan(of, replace(REQUEST, limits=limits_of(pins)))
    assert sum(len(stage.settings.recompute) for stage in found.stages) == number
    assert found.fixed["recompute"] == str(number)
    with pytest.raises(
        InputError, match="recompute = 9: the network has 8 repeated blocks; nearest that works: recompute = 8"
    ):
        best_plan(of, replace(REQUEST, limits=limits_of([("recompute", 9)])))


@pytest.mark.parametrize(("stages", "interleave"), [(8, 1), (2, 1), (2, 3)])
def test_stages_begin_inside_periods(stages, interleave):
    at = frozen((1, 3, 5, 7))  # ab ab ab ab
    pins = [("pipeline_stages", stages), ("pp_interleave_num", interleave)]
    found = best_plan(network(at(16, None), at), replace(REQUEST, limits=limits_of(pins)))
    assert as_its_programs(found, at(16 // found.micro_batch_num, None))
    assert found.pipeline.stage_num == stages and found.pipeline.interleave == interleave


def test_every_operator_has_its_strategy_on_its_stage():
    found = best_plan(NETWORK, replace(REQUEST, limits=Limits({"pipeline_stages": 2}, {"pipeline_stages": 2})))
    one = best_plan(NETWORK, replace(REQUEST, limits=Limits({}, {"pipeline_stages": 1})))
    assert set(found.strategies) == set(one.strategies)


def test_the_best_is_the_better_of_one_stage_and_several():
    whole = best_plan(NETWORK, REQUEST)
    pinned = [
        best_plan(NETWORK, replace(REQUEST, limits=limits))
        for limits in (Limits({}, {"pipeline_stages": 1}), Limits({"pipeline_stages": 2}))
    ]
    assert whole.prediction.step_time_s == min(one.prediction.step_time_s for one in pinned)


def test_a_pinned_shape_is_what_the_list_of_all_says():
    found = best_plan(NETWORK, replace(REQUEST, limits=limits_of([("pipeline_stages", 2)])))
    worked_out = [one for one in found.search.considered if one.step_time_s is not None]
    for one in worked_out[:2]:
        pins = limits_of([("pipeline_stages", 2), ("micro_batch_num", one.micro_batch_num)])
        pinned = best_plan(NETWORK, replace(REQUEST, limits=pins))
        assert pinned.micro_batch_num == one.micro_batch_num
        same = [w.step_time_s for w in worked_out if w.micro_batch_num == one.micro_batch_num]
        assert pinned.prediction.step_time_s == pytest.approx(min(same), rel=0.02)


def test_the_plans_own_way_is_listed_with_the_step_of_its_programs():
    """A survey promised another one."""
    found = best_plan(NETWORK, replace(REQUEST, limit_B=11 * GIB, limits=limits_of([("pipeline_stages", 2)])))
    worked_out = [one for one in found.search.considered if one.step_time_s is not None]
    (own,) = [one for one in worked_out if one.step_time_s == found.prediction.step_time_s]
    assert own.micro_batch_num == found.micro_batch_num and own.peak_memory_B == found.prediction.peak_memory_B
    assert sum(own.time_s.values()) == pytest.approx(own.step_time_s, rel=0.02)


def test_a_tight_limit_is_kept():
    found = best_plan(NETWORK, replace(REQUEST, limit_B=11 * GIB))
    assert found.prediction.fits and found.prediction.peak_memory_B <= 11 * GIB


def test_where_nothing_fits():
    with pytest.raises(
        InfeasibleError, match=r"nothing found that fits 1\.0 GiB on 8 devices: of the plan that needs least"
    ):
        best_plan(NETWORK, replace(REQUEST, limit_B=GIB))
    with pytest.raises(InputError, match="pipeline_stages = 3: 3 stages do not divide 8 devices; nearest that work: "):
        best_plan(NETWORK, replace(REQUEST, limits=Limits({"pipeline_stages": 3}, {"pipeline_stages": 3})))


@pytest.mark.parametrize(
    "limits, message",
    (
        (
            ({"tensor_parallel": 2}, {}),
            "tensor_parallel cannot be pinned: known are pipeline_stages, micro_batch_num",
        ),
        (({"pipeline_stages": 0}, {}), "pipeline_stages=0: give a number from 1"),
        (({"pipeline_stages": 4}, {"pipeline_stages": 2}), "at least 4 and at most 2 leave nothing"),
    ),
)
def test_wrong_limits(limits, message):
    with pytest.raises(InputError, match=message):
        Limits(*limits)


def test_so_few_micro_batches_are_planned_as_are_pinned():
    """More samples of each than are searched by themselves."""
    pinned = {"pipeline_stages": 1, "micro_batch_num": 2}
    of, question = network(graph_at(256, None), graph_at), replace(REQUEST, global_batch_size=256)
    found = best_plan(of, replace(question, limits=Limits(pinned, pinned), limit_B=1 << 45))
    assert found.micro_batch_num == 2 and found.pipeline_stages == 1


def test_a_weight_that_one_stage_cannot_cut_alike_for_its_readers_leaves_several():
    """On 24 devices the rows of an odd vocabulary and the head's columns agree on no mesh; on 8 of a stage they do."""
    small = dimensions_of("bert_large", num_layers=6, batch_size=16)

    def at(batch, layers):
        return build_graph(replace(small, batch_size=batch, num_layers=layers or small.num_layers))

    of, request = network(at(16, None), at), replace(REQUEST, device_num=24, seq_length=small.seq_length)
    assert best_plan(of, request).pipeline_stages == 3
    with pytest.raises(InfeasibleError, match="there is no plan for 24 devices with pipeline_stages = 1"):
        best_plan(of, replace(request, limits=limits_of([("pipeline_stages", 1)])))


@pytest.mark.parametrize(
    ("device_num", "said"),
    [(1000, "in none of 29 step layouts .*: try 512 devices"), (100_000, "goes with 16 samples.*: try 65536 devices")],
)
def test_a_number_of_devices_with_odd_divisors_is_told_with_one_near(device_num, said):
    dimensions = dimensions_of("llama2_7b", batch_size=16)
    of = network(build_graph(dimensions), lambda batch, layers: build_graph(replace(dimensions, batch_size=batch)))
    with pytest.raises(
        InfeasibleError, match=f"there is no plan for {device_num} devices: .*{said}, or a global batch"
    ):
        best_plan(of, replace(REQUEST, device_num=device_num, seq_length=dimensions.seq_length))
