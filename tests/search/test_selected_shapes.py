"""Layouts that the bounds of plans with selections meet, and that promise more than the plan's."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.models import planned, resolve
from ms_symtensor.search import selected_shapes
from ms_symtensor.search.asked.request import Request
from ms_symtensor.strategy.plan import Plan


def plan() -> Plan:
    cluster, model = load("atlas_800t_a2"), resolve("llama2_7b", 1024, None, {})
    limit_B = int(cluster.device.hbm_usable_B)
    return planned(model, Request(cluster, 64, 1024, model.seq_length, limit_B, model.name, model.source))[0]


def test_a_layout_that_a_bound_met_can_be_the_best(monkeypatch: pytest.MonkeyPatch):
    found = plan()
    monkeypatch.setattr(selected_shapes, "FAR", 0)
    without = plan()
    assert found.prediction.step_time_s < without.prediction.step_time_s
    assert found.search.optimality_gap < without.search.optimality_gap
    assert found.prediction.fits
