"""Plans with selections inside blocks: faster, and as large, as their programs say."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.errors import InputError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.stage_memory import stage_activation_peak_B
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import ALL, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.stages.network import network

GIB = 1 << 30
A2 = load("atlas_800t_a2")


def _case(model, layers, stages, limit_B, **pins):
    config = dimensions_of(model, num_layers=layers, batch_size=16)

    def graph_at(batch, some):
        return build_graph(replace(config, batch_size=batch, num_layers=some or layers))

    fix = {"pipeline_stages": stages, **({"micro_batch_num": 1} if stages == 1 else {}), **pins}
    limits = limits_of(fix.items())
    request = Request(A2, 8, 16, config.seq_length, int(limit_B), model, limits=limits)
    return network(graph_at(16, None), graph_at), request


def _in_whole_blocks(request):
    return replace(request, limits=replace(request.limits, most={**request.limits.most, "recompute": ALL}))


@pytest.mark.parametrize(("model", "limit_B"), [("llama2_7b", 14 * GIB), ("gpt2_xl", 5 * GIB)])
def test_one_stage_with_selections_is_faster_and_priced_as_its_whole_program(model, limit_B):
    of, request = _case(model, 8, 1, limit_B)
    graph = of.graph_at(16)
    whole, better = best_plan(of, _in_whole_blocks(request)), best_plan(of, request)
    assert len(whole.settings.recompute) > 0 and not any(r.in_part for r in whole.settings.recompute.values())
    assert any(r.in_part for r in better.settings.recompute.values())
    assert better.prediction.step_time_s < whole.prediction.step_time_s and better.prediction.fits
    program = partition(graph, better.stage)
    cost = price(graph, better.stage, program, A2)
    assert cost.step_time_s == pytest.approx(better.prediction.step_time_s, rel=1e-9)
    assert cost.memory_B == better.prediction.memory_B


def test_stages_with_selections_are_faster_and_as_large_as_their_programs():
    of, request = _case("llama2_7b", 12, 2, 13 * GIB, micro_batch_num=4)
    before, found = best_plan(of, _in_whole_blocks(request)), best_plan(of, request)
    assert any(stage.settings.recompute for stage in before.stages)
    assert any(r.in_part for r in found.settings.recompute.values())
    assert found.prediction.step_time_s < before.prediction.step_time_s
    programs = partition_stages(of.graph_at(16 // found.micro_batch_num), found.stages, found.pipeline)
    peaks_B = [stage_activation_peak_B(program) for program in programs]
    assert found.prediction.memory_B["activations"] in peaks_B
    assert found.prediction.peak_memory_B <= request.limit_B


def test_no_block_as_a_whole_where_selections_are_pinned():
    of, request = _case("llama2_7b", 8, 1, 14 * GIB, recompute="select")
    found = best_plan(of, request)
    assert found.settings.recompute and all(r.in_part for r in found.settings.recompute.values())
    assert request.limits.fixed["recompute"] == "select"
    with pytest.raises(InputError, match="recompute=select"):
        limits_of([("recompute", "select")], [("recompute", 4)])


def test_a_pinned_number_of_blocks_is_recomputed_as_a_whole():
    of, request = _case("llama2_7b", 8, 1, 14 * GIB, recompute="full")
    found = best_plan(of, request)
    assert len(found.settings.recompute) == 8 and not any(r.in_part for r in found.settings.recompute.values())
