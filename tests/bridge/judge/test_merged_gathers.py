"""Which AllGathers of one operator's outputs MindSpore merges before it differentiates: predicted and compiled alike."""

import mindspore
import pytest

from benchmarks.exactness import line, run
from benchmarks.exactness_cases import Case
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from tests.bridge.networks import TwoReaders, empty

CUTS = {
    "w": ((4, 1), (4, 1)),
    "split": ((4, 1),),
    "sum": ((2, 2),),
    "div": ((1, 2), (1, 1)),
    "add": ((1, 2), (1, 2)),
    "square": ((2, 1),),
    "mean": ((1, 2),),
}
"""The sum and the quotient read the first half of the columns, rows cut in 4, and begin with the same AllGather."""


@pytest.mark.parametrize("also", ["nothing", "other half", "cast"])
def test_what_is_gathered_beside_keeps_equal_gathers_apart(also: str) -> None:
    net, x = TwoReaders(also), empty(64, 8, dtype=mindspore.float32)
    graph = capture(net, x)
    strategies = {op.name: OpStrategy(CUTS[op.primitive]) for op in graph.ops if op.primitive in CUTS}
    result = run(net, (x,), graph, Case("two readers", "random", 0, StagePlan(strategies, Settings(8)), rank=0))
    assert result["accepted"] and not result["differences"], line(result)
