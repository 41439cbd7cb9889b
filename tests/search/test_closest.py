"""What stands in the way where nothing fits, against the plan that is found with as much memory as it says."""

from dataclasses import replace

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.obstacle import DoesNotFitError
from ms_symtensor.search.constraints.request import GIB, Request

CLUSTER = load("atlas_800t_a2")
MODEL = resolve("llama2_7b", 32, 2048, {"num_layers": 8})


def _obstacle(limit_B: int, **fix: str):
    request = Request(CLUSTER, 8, 32, 2048, limit_B, MODEL.name, limits=limits_of(fix.items(), ()))
    with pytest.raises(InfeasibleError) as caught:
        planned(MODEL, request)
    assert isinstance(caught.value, DoesNotFitError)
    assert f"{caught.value.obstacle.peak_B / GIB:.1f} GiB" in str(caught.value)
    return caught.value.obstacle, request


@pytest.mark.parametrize(
    "fix",
    [
        {},
        pytest.param({"pipeline_stages": "2", "swap_optimizer": "yes"}, marks=pytest.mark.matrix),
        {"pipeline_stages": "4", "recompute": "none"},
    ],
)
def test_with_as_much_memory_there_is_a_plan(fix):
    obstacle, request = _obstacle(2 * GIB, **fix)
    assert obstacle.peak_B > 2 * GIB and sum(obstacle.memory_B.values()) == obstacle.peak_B
    plan, _ = planned(MODEL, replace(request, limit_B=obstacle.peak_B))
    assert plan.prediction.fits
    assert (obstacle.stage is None) == obstacle.layout.startswith("one stage")


def test_what_fills_the_memory_is_named():
    obstacle, _ = _obstacle(GIB, pipeline_stages="2", recompute="full")
    assert "2 stages" in obstacle.layout and "everything recomputed" in obstacle.layout
    largest = max(obstacle.memory_B, key=lambda kind: obstacle.memory_B[kind])
    whole = {"optimizer_states": "the optimizer states of ", "gradients": "the gradient of ", "parameters": ""}
    if largest in whole:
        name = obstacle.largest.removeprefix(whole[largest])
        assert name in {parameter.name for parameter in MODEL.graph.parameters}
    assert 0 < obstacle.largest_B <= obstacle.memory_B[largest]


def test_an_activation_is_named_by_its_operator():
    obstacle, _ = _obstacle(4 * GIB, pipeline_stages="1", micro_batch_num="1", recompute="none")
    assert obstacle.memory_B["activations"] > obstacle.at_rest_B
    assert obstacle.largest.startswith(("the result of ", "a gradient of "))
    assert 0 < obstacle.largest_B < obstacle.memory_B["activations"]


def test_what_only_the_limits_forbid_is_said_to_fit():
    """Blocks recomputed as a whole fit in less than blocks recomputed in part."""
    whole, _ = _obstacle(GIB, pipeline_stages="1", micro_batch_num="1")
    request = Request(
        CLUSTER, 8, 32, 2048, whole.peak_B, MODEL.name,
        limits=limits_of([("pipeline_stages", "1"), ("micro_batch_num", "1"), ("recompute", "select")], ()),
    )  # fmt: skip
    with pytest.raises(
        InfeasibleError, match="GiB would do for one stage, .*everything recomputed, which is not asked for"
    ):
        planned(MODEL, request)
