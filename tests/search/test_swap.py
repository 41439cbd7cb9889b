"""Optimizer offload: searched where asked for, chosen where it helps, named where nothing else fits."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.host import Host
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.program.partition import partition
from ms_symtensor.search.best import best_plan
from ms_symtensor.search.constraints.limits import FREE, limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.plan import plan
from ms_symtensor.search.stages.network import network

A2 = load("atlas_800t_a2")
A2 = replace(A2, levels=A2.levels[:1])  # of one node: no larger number of devices is looked for
SMALL = dimensions_of("llama2_7b", num_layers=2, batch_size=2, seq_length=256)
GRAPH = build_graph(SMALL)
YES = {"swap_optimizer": "yes"}


def planned(limit_B=None, cluster=A2, **pins):
    return plan(
        GRAPH, cluster, device_num=2, global_batch_size=2, seq_length=256, memory_limit_B=limit_B, **pins
    )  # fmt: skip


def test_states_stay_on_the_device_unless_it_is_asked_for():
    assert FREE.swaps == (False,)
    assert limits_of([("swap_optimizer", "yes")]).swaps == (True,)
    assert limits_of([], [("swap_optimizer", "yes")]).swaps == (False, True)
    assert limits_of([("swap_optimizer", "no")]).swaps == (False,)


def test_a_plan_that_fits_without_is_not_slowed_down():
    free, chosen = planned(), planned(at_most=YES)
    assert not chosen.settings.swap_optimizer
    assert (chosen.stage, chosen.prediction) == (free.stage, free.prediction)


def test_where_nothing_else_fits_it_is_named_and_found():
    free, swapped = planned(), planned(fix=YES)
    assert free.prediction.host_memory_B == 0
    least_B = swapped.prediction.peak_memory_B
    limit_B = least_B + (1 << 20)
    with pytest.raises(InfeasibleError, match=r"what fits: .*optimizer offload \(swap_optimizer=yes\)"):
        planned(limit_B)
    with pytest.raises(InfeasibleError) as nothing:
        planned(limit_B // 8)
    assert "swap_optimizer" not in str(nothing.value)
    with pytest.raises(InfeasibleError, match="on 2 devices with swap_optimizer <= yes: .*, optimizer offload[),]"):
        planned(limit_B // 2, at_most=YES)
    found = planned(limit_B, at_most=YES)
    assert found.settings.swap_optimizer
    assert found.prediction.fits
    assert found.at_most == YES


def test_the_price_is_that_of_its_program_and_of_the_copies():
    found = planned(fix=YES)
    program = partition(GRAPH, found.stage)
    cost = price(GRAPH, found.stage, program, A2)
    assert cost.step_time_s == pytest.approx(found.prediction.step_time_s, rel=1e-12)
    assert cost.memory_B == found.prediction.memory_B
    assert cost.memory_B["optimizer_states"] == 0
    there = replace(found.stage, settings=replace(found.settings, swap_optimizer=False))
    kept = price(GRAPH, there, partition(GRAPH, there), A2)
    assert found.prediction.host_memory_B == kept.memory_B["optimizer_states"] > 0
    copies_s = 2 * found.prediction.host_memory_B / A2.host.bandwidth_Bps
    copies_s += len(program.parameters) * A2.device.op_overhead_s
    assert cost.time_s["optimizer"] - kept.time_s["optimizer"] == pytest.approx(copies_s, rel=1e-9)
    assert {**cost.time_s, "optimizer": 0.0} == {**kept.time_s, "optimizer": 0.0}


def test_a_faster_step_is_worth_the_copies():
    long = dimensions_of("llama2_7b", num_layers=4, batch_size=64)

    def at(batch, layers):
        return build_graph(replace(long, batch_size=batch, num_layers=layers or 4))

    def within(most=()):
        limits = limits_of([], most)
        return best_plan(network(at(64, None), at), Request(A2, 2, 64, 4096, 14 << 30, limits=limits))

    kept, swapped = within(), within(YES.items())
    assert swapped.settings.swap_optimizer
    assert kept.prediction.fits and swapped.prediction.fits
    assert swapped.prediction.step_time_s < 0.97 * kept.prediction.step_time_s


def test_stages_hold_no_states_either():
    def at(batch, layers):
        return build_graph(replace(SMALL, batch_size=batch, num_layers=layers or 2))

    def staged(*pins):
        limits = limits_of([("pipeline_stages", 2), *pins])
        return best_plan(network(at(2, None), at), Request(A2, 2, 2, 256, 1 << 40, limits=limits)).prediction

    kept, swapped = staged(), staged(("swap_optimizer", "yes"))
    assert swapped.memory_B["optimizer_states"] == 0
    assert swapped.host_memory_B == kept.memory_B["optimizer_states"] > 0
    of_copies_s = 2 * swapped.host_memory_B / A2.host.bandwidth_Bps
    assert swapped.step_time_s - kept.step_time_s == pytest.approx(of_copies_s, rel=0.01)


def test_host_memory_is_a_limit_where_it_is_known():
    scarce = replace(A2, host=Host(A2.host.bandwidth_Bps, 1 << 20))
    with pytest.raises(InfeasibleError, match="of host memory, which has 0.0 GiB for each"):
        planned(cluster=scarce, fix=YES)
    assert not planned(cluster=scarce, at_most=YES).settings.swap_optimizer


def test_a_cluster_that_says_nothing_of_its_host():
    with pytest.raises(InputError, match="cluster a100_80g says nothing of its host"):
        planned(cluster=load("a100_80g"), fix=YES)
