"""Bounds of shapes on several meshes, some of which are asked for as on another one, against the steps that are found there."""

import math
from dataclasses import replace

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.models import planned, resolve
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.asked.limits import limits_of
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.branches import Branch
from ms_symtensor.search.bounds.duals import Duals
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.least_bounds import selection_bounds
from ms_symtensor.search.bounds.met import Met
from ms_symtensor.search.bounds.views import of_shape
from ms_symtensor.search.pipelined import pipelined_plan
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.network import network

CLUSTER = load("atlas_800t_a2")
MODEL = resolve("llama2_13b", 128, None, {})
REQUEST = Request(CLUSTER, 64, 128, MODEL.seq_length, int(CLUSTER.device.hbm_usable_B), MODEL.name)
STAGES = 4
SHORT = 0.45
"""Of the memory, so much that all layouts make something again."""


@pytest.fixture(scope="module")
def surveyed():
    limits = limits_of([("pipeline_stages", str(STAGES))], ())
    assert MODEL.graph_at is not None
    of = network(MODEL.graph, MODEL.graph_at)
    found = pipelined_plan(of, replace(REQUEST, limits=limits))
    assert found.outcome is not None
    return found.outcome.surveyed, of.depths, found.time_s


def _bounds(surveyed):
    every, depths, step_s = surveyed
    return selection_bounds(every, depths, REQUEST.limit_B, step_s).bounds_s


def test_prices_of_another_mesh_show_what_own_ones_do(surveyed, monkeypatch):
    asked = []
    ask = Duals.ask
    monkeypatch.setattr(Duals, "ask", lambda self, *args: asked.append(1) or ask(self, *args))
    shared = min(_bounds(surveyed).values())
    with_shared = len(asked)
    monkeypatch.setattr(Shape, "on_any_mesh", property(lambda shape: shape))
    alone = min(_bounds(surveyed).values())
    assert shared == pytest.approx(alone, rel=2e-3)
    assert with_shared < len(asked) - with_shared  # fewer questions


def test_no_value_promises_more_than_layouts_that_were_met_allow(surveyed):
    every, depths, step_s = surveyed
    setting = next(one for one in every if one.setting.level is OptimizerLevel.LEVEL1)
    duals = Met(setting, Fronts(), depths, SHORT * REQUEST.limit_B, 2 * step_s).duals
    for row in setting.free:
        if row.shape.stages > 1:
            views = of_shape(setting.setting.occurrences, row.shape)
            ((_, rows),) = duals.least([duals.ask([row], views)])
            for met in rows():
                asked = duals.ask([row], views, [met])
                alone = Branch({v: frozenset({candidate}) for v, candidate in enumerate(met.choice.tolist())})
                ((value_s, _),) = duals.least([replace(duals.towards(asked, met)[-1], branch=alone)])
                assert asked.most_s <= value_s * (1 + 1e-6)
                # Nor do any other multipliers.
                others = duals.least(duals.in_orders(asked, rows()))
                assert len(others) > 1 and all(other_s <= value_s * (1 + 1e-6) for other_s, _ in others)


@pytest.mark.parametrize("interleave", [1, 2, 4])
def test_no_bound_lies_above_a_step_that_is_found(surveyed, interleave):
    found = _bounds(surveyed)
    for micro_batch_num in (4, 8, 16):
        mine = [
            bound_s
            for shape, bound_s in found.items()
            if (shape.interleave, shape.micro_batch_num) == (interleave, micro_batch_num)
        ]
        pinned = [
            ("pipeline_stages", STAGES), ("micro_batch_num", micro_batch_num), ("pp_interleave_num", interleave),
        ]  # fmt: skip
        limits = limits_of([(name, str(value)) for name, value in pinned], ())
        plan, _ = planned(MODEL, replace(REQUEST, limits=limits))
        assert min(mine, default=math.inf) <= plan.prediction.step_time_s * (1 + 2e-3)
