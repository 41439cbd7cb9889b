"""Which changes are tried where nothing fits, and which are named."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import MOST_DEVICES
from ms_symtensor.errors import InfeasibleError, InvalidStrategyError
from ms_symtensor.search.constraints.floor import Floor
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.obstacle import DoesNotFitError, Obstacle
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.search.nearest import naming_what_fits

CLUSTER = load("atlas_800t_a2")


def _searching(at_rest_GiB: float, activations_GiB: float):
    """A search of which every device needs so much at rest on 8 devices, half of it states, and so much for 64 samples there."""
    question = []

    def search(request: Request) -> str:
        question.append(request)
        weights_B = int(at_rest_GiB * GIB * 4 / request.device_num)
        states_B = 0 if request.limits.swaps == (True,) else weights_B
        kept = int(activations_GiB * GIB * 8 / request.device_num * request.global_batch_size / 64)
        if weights_B + states_B + kept <= request.limit_B and not request.limits.names("pipeline_stages"):
            return "found"
        memory_B = {
            "parameters": weights_B,
            "gradients": 0,
            "optimizer_states": states_B,
            "activations": kept,
            "buffers": 0,
        }
        raise DoesNotFitError(request, Obstacle("one stage", None, memory_B, "the result of x", kept))

    return search, question


def _said(search, limits: Limits | None = None, any_batch: bool = True, limit_GiB: int = 10) -> str:
    request = Request(CLUSTER, 8, 64, 1, limit_GiB * GIB, limits=limits or Limits())
    with pytest.raises(InfeasibleError) as caught:
        naming_what_fits(request, search, any_batch)
    return str(caught.value).rpartition("; ")[2]


def test_what_fits_is_found_at_once():
    search, question = _searching(4, 4)
    assert naming_what_fits(Request(CLUSTER, 8, 64, 1, 10 * GIB), search) == "found" and len(question) == 1


@pytest.mark.parametrize(
    ("at_rest", "activations", "said"),
    [
        (4, 8, "what fits: 16 devices, or a global batch of 32, or optimizer offload (swap_optimizer=yes)"),
        (2, 64, "what fits: 64 devices, or a global batch of 8"),
        (15, 1, "what fits: 16 devices, or optimizer offload (swap_optimizer=yes)"),
        (100, 1, "what fits: 128 devices"),
    ],
)
def test_the_smallest_changes_that_fit_are_named(at_rest, activations, said):
    search, _ = _searching(at_rest, activations)
    assert _said(search) == said


def test_a_network_with_one_batch_keeps_it():
    search, question = _searching(4, 8)
    assert "batch" not in _said(search, any_batch=False)
    assert {request.global_batch_size for request in question} == {64}


def test_limits_that_forbid_what_would_fit_are_named():
    search, _ = _searching(4, 4)
    pinned = Limits({"pipeline_stages": 2}, {"pipeline_stages": 2})
    assert _said(search, pinned) == "what fits: without pipeline_stages = 2"


def test_a_pin_that_forbids_takes_no_innocent_one_along():
    search, _ = _searching(4, 4)
    pinned = Limits(
        {"pipeline_stages": 2, "data_parallel": 2}, {"pipeline_stages": 2, "data_parallel": 2, "recompute": 3}
    )
    assert _said(search, pinned) == "what fits: without pipeline_stages = 2"


def test_few_searches_are_made():
    search, question = _searching(9, 4000)
    _said(search)
    assert len(question) < 12


def test_where_no_change_fits_that_is_said():
    def search(request: Request) -> str:
        raise InfeasibleError("no operators' layouts")

    assert _said(search) == "no change that was tried fits"


def test_what_mindspore_rejects_on_more_devices_hides_no_answer():
    def search(request: Request) -> str:
        if request.device_num > 8:
            raise InvalidStrategyError("MindSpore rejects Embedding-op0 without a strategy of its own")
        raise InfeasibleError("no operators' layouts on 8 devices")

    with pytest.raises(InfeasibleError, match="^no operators' layouts on 8 devices; no change that was tried fits$"):
        naming_what_fits(Request(CLUSTER, 8, 64, 1, 10 * GIB), search)


def test_what_more_devices_do_not_make_less_ends_the_search_before_it_begins():
    search, question = _searching(4, 4)
    with pytest.raises(
        InfeasibleError, match=r"nothing fits 56 B on 8 devices: .*communicator.* take 0\.4 GiB of a device"
    ):
        naming_what_fits(Request(CLUSTER, 8, 64, 1, 56), search, True, Floor(4 * GIB // 10))
    assert not question


def test_devices_among_which_weights_do_not_fit_are_not_tried():
    search, question = _searching(2, 400)
    with pytest.raises(InfeasibleError):
        naming_what_fits(Request(CLUSTER, 8, 64, 1, 10 * GIB), search, floor=Floor(GIB, 600 * GIB, 600 * GIB))
    devices = {request.device_num for request in question if request.limits.swaps != (True,)}
    assert devices > {8} and min(devices - {8}) * 9 >= 1200  # a GiB of 10 is a buffer's


def test_however_little_room_there_is_few_numbers_of_devices_are_tried():
    search, question = _searching(1, 400)
    with pytest.raises(InfeasibleError):
        naming_what_fits(Request(CLUSTER, 8, 64, 1, 1 * GIB), search, floor=Floor(GIB - 1))
    assert len({request.device_num for request in question}) <= 5
    assert all(request.is_trial for request in question[1:]) and not question[0].is_trial


def test_more_devices_than_any_cluster_has_are_not_tried():
    search, question = _searching(25 * MOST_DEVICES / 16, 0)  # 25 GiB of a device, so that four times as many would do
    with pytest.raises(InfeasibleError):
        naming_what_fits(Request(CLUSTER, MOST_DEVICES // 2, 64, 1, 10 * GIB), search)
    assert {request.device_num for request in question} == {MOST_DEVICES // 2}
