"""Plans whose stages hold several runs of blocks."""

import itertools
import random
from dataclasses import replace

import pytest

from benchmarks.brute_force import size
from benchmarks.small_networks import layered_network
from benchmarks.stage_space import LEVELS, Case, Parts, divisions
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.stage_time import pipelined_step_s, stage_seconds
from ms_symtensor.errors import ImpossibleError, InvalidStrategyError
from ms_symtensor.program.parameters import is_synchronised
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import FREE, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.space.step_layouts import StepLayout, interleaved
from ms_symtensor.search.stages.network import network
from ms_symtensor.search.tables.problem import plain_settings
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import Constant, Op, OpOutput, TensorType, replaced
from tests.strategy.plans import small

A2 = load("atlas_800t_a2")
TWO = limits_of([("pipeline_stages", 2), ("pp_interleave_num", 2)])
SMALL = dimensions_of("llama2_7b", num_layers=9, batch_size=16)


def at(batch, layers):
    return build_graph(replace(SMALL, batch_size=batch, num_layers=layers or SMALL.num_layers))


def planned(fix, most=()):
    request = Request(A2, 8, 16, SMALL.seq_length, 1 << 40, limits=limits_of(fix, most))
    return best_plan(network(at(16, None), at), request)


def test_runs_per_stage_that_are_searched():
    assert FREE.interleaves == (1, 2, 4)
    assert limits_of([], [("pp_interleave_num", 2)]).interleaves == (1, 2)
    assert limits_of([("pp_interleave_num", 3)]).interleaves == (3,)


def test_micro_batches_go_round_in_groups_and_every_run_has_a_block():
    shape = StepLayout(2, 4, (4,), 4)
    assert interleaved(shape, 2, 4).interleave == 2
    assert interleaved(shape, 2, 3) is None
    assert interleaved(replace(shape, micro_batch_num=3), 2, 4) is None
    assert interleaved(StepLayout(1, 4, (4,), 4), 2, 4) is None


def test_a_plan_of_interleaved_stages():
    plan = planned([("pipeline_stages", 2), ("pp_interleave_num", 2)])
    assert plan.pp_interleave_num == 2 and plan.fixed["pp_interleave_num"] == "2"
    runs = [[len(run) for run in runs] for runs in plan.pipeline.layers]
    assert sorted(n for stage in runs for n in stage) == [2, 2, 2, 3]
    programs = partition_stages(at(16 // plan.micro_batch_num, None), plan.stages, plan.pipeline)
    each = [stage_seconds(p, stage, A2) for p, stage in zip(programs, plan.stages, strict=True)]
    alone_s = pipelined_step_s(each, plan.micro_batch_num, 2)
    assert plan.prediction.step_time_s == pytest.approx(alone_s)
    peaks_B = [sum(stage_memory_B(p.micro, 2, False, stage_activation_peak_B(p), {}, {}).values()) for p in programs]
    assert plan.prediction.peak_memory_B == max(peaks_B)


def test_interleaving_shortens_the_bubble():
    fixed = [("pipeline_stages", 4), ("micro_batch_num", 4)]
    plain, dealt = planned([*fixed, ("pp_interleave_num", 1)]), planned(fixed)
    assert plain.pp_interleave_num == 1 and dealt.pp_interleave_num == 2
    assert dealt.prediction.time_s["bubble"] < 0.8 * plain.prediction.time_s["bubble"]
    assert dealt.prediction.peak_memory_B >= plain.prediction.peak_memory_B


def test_one_stage_has_one_run():
    with pytest.raises(ImpossibleError, match="virtual stages want several pipeline stages"):
        planned([("pipeline_stages", 1), ("pp_interleave_num", 2)])


@pytest.mark.parametrize(("seed", "others"), ((0, ()), (1, ()), (5, ()), (0, (0,)), (2, (0, 1))))
def test_no_step_of_two_runs_per_stage_is_faster(seed, others):
    """Of every choice of strategies, optimizer sharding, micro-batches and blocks of every run, priced from its programs, none is
    faster than the gap that the plan states.
    """
    draw = random.Random(f"il/{seed}")
    while True:
        blocks, device_num, batch = draw.randint(4, 6), draw.choice((2, 4, 8)), draw.choice((2, 4, 8))
        graph_at = layered_network(draw, blocks, 1, others)
        case = Case(network(graph_at(batch, None), graph_at), blocks, device_num, batch, TWO, A2)
        numbers = [n for n in divisors(batch) if n % 2 == 0]
        if sum(size(graph_at(batch // n, 2), device_num // 2) for n in numbers) * len(divisions(blocks, 4)) <= 750:
            break
    best_s = min(step_s for n in numbers for step_s in every_step_s(case, n))
    found = case.planned()
    assert found.prediction.step_time_s >= best_s * (1 - 1e-9)
    assert found.prediction.step_time_s <= best_s * (1 + found.search.optimality_gap) * (1 + 1e-9)


def every_step_s(case, micro_batch_num):
    """Seconds of every step in so many micro-batches on two stages of two runs."""
    devices = case.device_num // 2
    parts = Parts(case, case.batch // micro_batch_num, devices)
    graph, known, folded = parts.of(case.blocks)
    classes = [m for m in folded.members if known[m[0].name][1].shardable]
    for chosen, level in itertools.product(parts.choices(), LEVELS):
        strategies = {op.name: s for members, s in zip(classes, chosen, strict=True) for op in members}
        settings = replace(plain_settings(graph, devices), optimizer_level=level)
        for runs in divisions(case.blocks, 4):
            try:
                stages, pipeline = pipeline_stages(graph, runs, [strategies] * 2, settings, micro_batch_num, 2)
                programs = partition_stages(graph, stages, pipeline, known=known)
            except InvalidStrategyError:
                continue
            trained = [p for one in programs for p in one.parameters.values() if p.requires_grad]
            if all(map(is_synchronised, trained)):
                each = [stage_seconds(one, stage, A2) for one, stage in zip(programs, stages, strict=True)]
                yield pipelined_step_s(each, micro_batch_num, 2)


def test_a_plan_whose_first_and_last_stage_read_one_table():
    assert_priced_as_written(small("gpt2_xl", num_layers=8, batch_size=16))


def test_a_plan_whose_chunks_are_of_two_kinds_of_blocks():
    """Three dense blocks, on both stages, and eight with experts behind them."""
    assert_priced_as_written(small("deepseek_v3", num_layers=11, batch_size=16, head_dim=192))


def assert_priced_as_written(config):
    """A plan of two stages of two model chunks has the step and the peak of its stages' own programs."""

    def at(batch, kept):
        return build_graph(replace(config, batch_size=batch, num_layers=kept or config.num_layers))

    plan = best_plan(network(at(16, None), at), Request(A2, 8, 16, config.seq_length, 1 << 40, limits=TWO))
    assert plan.pp_interleave_num == 2
    programs = partition_stages(at(16 // plan.micro_batch_num, None), plan.stages, plan.pipeline)
    each = [stage_seconds(p, stage, A2) for p, stage in zip(programs, plan.stages, strict=True)]
    assert plan.prediction.step_time_s == pytest.approx(pipelined_step_s(each, plan.micro_batch_num, 2))
    peaks_B = [sum(stage_memory_B(p.micro, 2, False, stage_activation_peak_B(p), {}, {}).values()) for p in programs]
    assert plan.prediction.peak_memory_B == max(peaks_B)


@pytest.mark.parametrize("primitive", ("", "add"))
@pytest.mark.parametrize("shared", (False, True))
def test_blocks_that_may_make_constants_on_the_fly_are_not_interleaved(primitive, shared):
    """Every block adds a constant to its result, or an operator that all share does to another constant first."""

    def made(batch, layers):
        return with_constants(at(batch, layers), primitive, shared)

    request = Request(A2, 8, 16, SMALL.seq_length, 1 << 40, limits=TWO)
    if primitive:
        assert best_plan(network(made(16, None), made), request).pp_interleave_num == 2
    else:
        with pytest.raises(ImpossibleError, match="which a functional operator makes of constants"):
            best_plan(network(made(16, None), made), request)


def with_constants(graph, primitive, shared):
    """`graph` with an Add behind the first norm of every block, which reads a constant or, if `shared`, what Exp makes of it."""
    norms = {op.block: op for op in reversed(graph.ops) if op.block is not None and op.type == "RmsNorm"}
    first = next(iter(reversed(norms.values())))
    constant = Constant(tensor=TensorType((first.outputs[0].shape[-1],), first.outputs[0].dtype))
    exp = Op("Exp", "Exp", (constant,), (constant.tensor,), cell=("exp",) if primitive else (), primitive=primitive)
    ops = [exp] if shared else []
    renamed = {}
    for op in graph.ops:
        ops.append(replace(op, inputs=tuple(replaced(s, lambda one: renamed.get(one, one)) for s in op.inputs)))
        if op in norms.values():
            other = OpOutput("Exp") if shared else constant
            cell = (*op.cell[:2], "add") if primitive else ()
            name = f"{op.block}/Add"
            ops.append(Op(name, "Add", (OpOutput(op.name), other), op.outputs[:1], (), cell, primitive, op.block))
            renamed[OpOutput(op.name)] = OpOutput(name)
    return replace(graph, ops=tuple(ops))
