"""The whole outer space at once, against its points one by one."""

from dataclasses import replace

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.limits import SWAP, Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.places import places
from ms_symtensor.search.space.step_layouts import StepLayout, step_layouts
from ms_symtensor.search.stages.layout_candidates import ConfigGroup
from ms_symtensor.search.stages.screening import SHORT, screen
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.tables import Tables
from tests.search.problems import factors, problem

A2 = load("atlas_800t_a2")
GIB = 1024**3


def network(batch, model="llama2_7b", layers=SHORT):
    return build_graph(replace(dimensions_of(model, batch_size=batch, seq_length=1024), num_layers=layers))


def screened(device_num, global_batch_size, layers, limit_GiB=58.0):
    space = list(step_layouts(device_num, global_batch_size, layers))
    return screen(network, (1, layers, 1), space, Request(A2, 1, 1, 1, limit_GiB * GIB))


def test_depths_of_a_network():
    graph = network(4)
    assert places(graph, fold(graph)).depths == (1, SHORT, 1)


@pytest.mark.parametrize("layers", (3, 7))
def test_one_stage_costs_what_its_mesh_alone_costs(layers):
    """At full depth, from the tables of three blocks."""
    shape = StepLayout(1, 1, (64,), 64)
    (found,) = screen(network, (1, layers, 1), [shape], Request(A2, 1, 1, 1, 1e6 * GIB)).estimates
    alone = problem(network(64, layers=layers), A2, shape.mesh)
    least = min(
        minimise(
            alone.sizes,
            factors(
                alone,
                parameter_terms(alone.known, alone.parameters, replace(alone.settings, optimizer_level=level)),
                0,
                0,
                (1, layers, 1),
            ),
            alone.order,
        ).value[0]
        for level in (OptimizerLevel.NONE, OptimizerLevel.LEVEL1)
    )
    assert found.step_time_s == pytest.approx(least, rel=2e-3)


def test_no_estimate_is_below_the_bound():
    for limit_GiB in (58.0, 20.0):
        found = screened(128, 256, 12, limit_GiB)
        assert found.estimates
        assert all(e.step_time_s >= found.bounds_s[e.shape] * (1 - 1e-9) for e in found.estimates)
        assert all(e.peak_memory_B <= limit_GiB * GIB for e in found.estimates)


def test_cases_that_allow_the_same_layouts_share_their_problems():
    """The second one, with optimizer states on the host, finds what it finds by itself, and writes no problem down."""
    space, written = list(step_layouts(16, 32, 6)), {}
    cases = [Request(A2, 1, 1, 1, 20.0 * GIB, limits=Limits(least={SWAP: swap}, most={SWAP: swap})) for swap in (0, 1)]
    first, second = (screen(network, (1, 6, 1), space, case, written=written) for case in cases)
    alone = screen(network, (1, 6, 1), space, cases[1])
    figures = [(one.shape, one.step_time_s, one.peak_memory_B) for one in second.estimates]
    assert figures
    assert figures == [(one.shape, one.step_time_s, one.peak_memory_B) for one in alone.estimates]
    assert figures != [(one.shape, one.step_time_s, one.peak_memory_B) for one in first.estimates]
    terms = {id(row.problem.terms) for row in first.rows}
    assert {id(row.problem.terms) for row in second.rows} <= terms
    assert all(row.settings.swap_optimizer for row in second.rows)


def test_stages_hold_all_blocks():
    for estimate in screened(32, 64, 10).estimates:
        assert len(estimate.stages) == estimate.shape.stages
        assert sum(stage.blocks for stage in estimate.stages) == 10


def test_a_mesh_alone_has_all_that_its_family_has():
    """And more: its axes may change places."""
    shape = StepLayout(4, 16, (8, 4), 8)
    bound_s = screened(128, 128, 12).bounds_s[shape]
    alone = problem(network(8), A2, shape.mesh)
    fastest = []
    for level in (OptimizerLevel.NONE, OptimizerLevel.LEVEL1):
        terms = parameter_terms(alone.known, alone.parameters, replace(alone.settings, optimizer_level=level))
        fastest += ConfigGroup(
            alone, (shape,), np.zeros(1, int), (1, 12, 1), level, Tables(alone, terms), np.arange(1)
        ).fastest()
    assert min(r.bound_s for r in fastest) <= bound_s * (1 + 2e-3)


def test_the_space():
    found = list(step_layouts(16, 32, 8))
    assert all(s.stages * (s.mesh[0] * (s.mesh[1] if len(s.mesh) > 1 else 1)) == 16 for s in found)
    assert all(s.micro_batch_num * s.batch == 32 and (s.stages == 1 or s.micro_batch_num >= s.stages) for s in found)
    assert StepLayout(2, 4, (4, 2), 8) in found and len(set(found)) == len(found)
    assert not any(s.stages > 8 for s in found)
    assert (
        StepLayout(2, 16, (2, 4), 2) in found and StepLayout(2, 16, (8,), 2) not in found
    )  # an axis for the two samples
    assert StepLayout(2, 32, (8,), 1) in found


def test_one_axis_is_left_out_where_two_take_as_many_samples():
    found = step_layouts(64, 64, 8)
    two = {(s.stages, s.micro_batch_num, s.batch) for s in found if len(s.mesh) > 1}
    one = [s for s in found if s.mesh[0] > 2 and len(s.mesh) == 1]
    assert one and not any((s.stages, s.micro_batch_num, s.batch) in two for s in one)
    assert StepLayout(1, 1, (64,), 64) not in found and StepLayout(1, 1, (32, 2), 64) in found


def test_gradients_accumulate_on_one_stage_of_several_devices():
    """MindSpore accumulates in its parallel modes only."""
    assert any(s.stages == 1 and s.micro_batch_num == 8 for s in step_layouts(8, 64, 4))
    assert {s.micro_batch_num for s in step_layouts(1, 64, 4)} == {1}
