"""Cells with their own backward pass take slices as they come, or the plan is refused."""

import pytest

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.custom_backward import require_slices_as_they_come
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.tensor.graph import BPROP, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

X, W = TensorType((16, 8), "float32"), TensorType((32, 8), "float32")
Y, Z = TensorType((16, 32), "float32"), TensorType((), "float32")
MATMUL = Op("matmul", "MatMul", (InputRef("x"), ParameterRef("w")), (Y,), (("transpose_b", True),))
EXP = Op("exp", "Exp", (OpOutput("matmul"),), (Y,), ((BPROP, "loss.log_softmax"),))
SUM = Op("sum", "ReduceSum", (OpOutput("exp"),), (Z,))
GRAPH = Graph("net", (("x", X),), (Parameter("w", W),), (MATMUL, EXP, SUM), OpOutput("sum"))


def _plan(exp):
    matmul, total = OpStrategy(((1, 1), (4, 1))), OpStrategy(((1, 4),))
    return StagePlan({"matmul": matmul, "exp": OpStrategy((exp,)), "sum": total}, Settings(4))


def test_slices_that_stay_are_fine():
    require_slices_as_they_come(GRAPH, _plan((1, 4)))


def test_an_exchange_inside_is_refused_by_name():
    with pytest.raises(InvalidStrategyError, match=r"exp would exchange slices .* inside loss.log_softmax"):
        require_slices_as_they_come(GRAPH, _plan((4, 1)))


def test_what_stays_outside_has_its_gradient():
    backward = [c.op for c in partition(GRAPH, _plan((4, 1))).collectives() if c.phase.value == "backward"]
    assert "exp" not in backward and "sum" in backward
