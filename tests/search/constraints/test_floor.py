"""What a device needs at least: no plan needs less."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import HCCL_BUFFER_B
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.constraints.floor import floor_of
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.plan import planned
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
GRAPH = small_graph("llama2_7b", num_layers=2)


@pytest.mark.parametrize(
    "pins", [(), (("swap_optimizer", "yes"),), (("optimizer_level", 3),), (("model_parallel", 2),)]
)
@pytest.mark.parametrize("device_num", [1, 2, 8])
def test_no_plan_needs_less(device_num, pins):
    if device_num == 1 and pins:
        return
    request = Request(A2, device_num, 8, 128, 1 << 40, limits=limits_of(pins))
    found, floor = planned(GRAPH, request), floor_of(GRAPH)
    assert 0 < floor.of(request) <= found.prediction.peak_memory_B
    assert floor.always_B(request) == (HCCL_BUFFER_B if device_num > 1 else 0)


def test_where_not_even_a_communicator_fits_nothing_does():
    floor = floor_of(GRAPH)
    with pytest.raises(InfeasibleError, match="nothing fits 53 B on 4 devices: .*on any number of devices above 1"):
        floor.require_room(Request(A2, 4, 8, 128, 53))
    floor.require_room(Request(A2, 1, 8, 128, 53))
    floor.require_room(Request(A2, 4, 8, 128, HCCL_BUFFER_B))
