"""Which of its users' layouts a Reshape takes: predicted and compiled alike."""

import mindspore
import pytest

from benchmarks.exactness import line, run
from benchmarks.exactness_cases import Case
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from tests.bridge.networks import ReshapedMask, ReshapedTwice, ReshapeUsers, empty

CUTS = {"far": (1, 2, 1, 1), "near": (2, 1, 1, 1), "further": (1, 1, 2, 1), "sum": (1, 1, 1, 1)}
"""What the Reshape takes is sent on to the other user by an AllGather of its own size."""


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("near_first", [False, True])
def test_a_reshape_takes_the_layout_of_the_user_that_is_asked_first(near_first: bool, nested: bool) -> None:
    net, x = ReshapeUsers(near_first, nested), empty(128, 64, dtype=mindspore.float32)
    graph = capture(net, x)
    strategies = {op.name: OpStrategy((CUTS[op.primitive],)) for op in graph.ops if op.primitive in CUTS}
    strategies |= {op.name: OpStrategy((CUTS["sum"],) * 2) for op in graph.ops if op.primitive == "add"}
    strategies |= {op.name: OpStrategy(((1, 1), (1, 1))) for op in graph.ops if op.type == "MatMul"}
    result = run(net, (x,), graph, Case("reshape users", "random", 0, StagePlan(strategies, Settings(2)), rank=0))
    assert result["accepted"] and result["collectives"] and not result["differences"], line(result)


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(("product", "exp"), [((8, 1, 1), (1, 8)), ((1, 1, 8), (8, 1))])
def test_a_reshape_takes_what_another_one_delivered_from_where_that_had_it(product, exp, reads) -> None:
    net, x = ReshapedTwice(reads), empty(128, 64, dtype=mindspore.bfloat16)
    m, k, n = product
    cuts = {"exp": (exp,), "between": ((1, 8, 1),), "sum": ((1, 1),), "sum_between": ((1, 1, 1),)}
    cuts |= {"matmul": ((m, k), (k, n))}
    found = judged(net, x, cuts)
    assert found["collectives"] and not found["differences"], line(found)


@pytest.mark.parametrize("enable_alltoall", [False, True])
def test_a_mask_that_is_reshaped_travels_as_integers(enable_alltoall) -> None:
    cuts = {"less": ((8, 1), ()), "negate": ((1, 1, 8),)}
    found = judged(ReshapedMask(), empty(128, 64, dtype=mindspore.float32), cuts, enable_alltoall=enable_alltoall)
    assert found["collectives"] and not found["differences"], line(found)


def judged(net, x, cuts, **settings):
    graph = capture(net, x)
    strategies = {op.name: OpStrategy(cuts[op.primitive]) for op in graph.ops if op.primitive in cuts}
    plan = StagePlan(strategies, Settings(8, **settings))
    return run(net, (x,), graph, Case("reshape users", "random", 0, plan, rank=0))
