"""Layouts that the bounds of plans with selections meet, and that promise more than the plan's."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.models import planned, resolve
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.least_bounds import Raised
from ms_symtensor.search.selected_shapes import _promising
from ms_symtensor.search.space.shapes import Shape
from ms_symtensor.search.stages.rows import Row
from ms_symtensor.search.tables.terms import Costs
from ms_symtensor.strategy.plan import Plan


def plan() -> Plan:
    cluster, model = load("atlas_800t_a2"), resolve("llama3_70b", 2048, None, {"num_layers": 32})
    limit_B = int(cluster.device.hbm_usable_B)
    return planned(model, Request(cluster, 2048, 2048, model.seq_length, limit_B, model.name, model.source))[0]


SHAPE = Shape(2, 4, (4, 2), 4)


def row_of(mesh: tuple[int, ...], each_s: float) -> Row:
    zero = np.zeros(3)
    costs = replace(Costs(*(zero for _ in fields(Costs))), each_s=np.full(3, each_s), kept_B=np.ones(3))
    return Row(replace(SHAPE, mesh=mesh), OptimizerLevel.NONE, 0.0, costs, 0, 0, None, np.zeros(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_far, found", ((False, [(4, 2)]), (True, [(4, 2), (2, 4)])))
def test_a_plan_far_from_its_bound_is_compared_with_what_it_takes(is_far: bool, found: list[tuple[int, ...]]):
    """The plan on 8 devices takes 10 s and promised 8: 7 s are more than it promises, 9 s may be kept better."""
    better, mine, worse = row_of((4, 2), 1.0), row_of((8,), 2.0), row_of((2, 4), 3.0)
    steps = [(7.0, better), (8.0, mine), (9.0, worse)]
    met = SimpleNamespace(steps=lambda below_s, wanted: [one for one in steps if one[0] < below_s and wanted(one[1])])
    raised = Raised({row.shape: 6.0 for _, row in steps}, (met,))  # type: ignore[arg-type]
    plan_ = SimpleNamespace(row=mine, estimate=SimpleNamespace(shape=mine.shape))
    assert [row.shape.mesh for _, row in _promising(raised, plan_, 10.0, is_far)] == found  # type: ignore[arg-type]
