"""Operators that MindSpore names as if no cell had called them."""

import pytest

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

CELL = "Default/blocks-CellList/0-Block"


@pytest.mark.parametrize("name, kinds", [("Default/Sin-op0", ["Exp"]), (f"{CELL}/Sin-op0", ["Sin", "Exp"])])
def test_they_are_not_recomputed_with_their_block(name, kinds):
    """As `mint.repeat_interleave` is compiled in one: without `recompute_` before its name."""
    x, block = TensorType((8, 4), "float32"), "blocks.0"
    ops = (
        Op("first", "Mul", (InputRef("x"), ParameterRef("v")), (x,), primitive="first"),
        Op(name, "Sin", (OpOutput("first"),), (x,), block=block),
        Op(f"{CELL}/Exp-op0", "Exp", (OpOutput(name),), (x,), block=block),
        Op(f"{CELL}/Sin-op1", "Sin", (OpOutput(f"{CELL}/Exp-op0"),), (x,), block=block),
        Op("sum", "ReduceSum", (OpOutput(f"{CELL}/Sin-op1"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", x),), (Parameter("v", x),), ops, OpOutput("sum"))
    strategies = {"first": OpStrategy(((1, 1), (1, 1))), "sum": OpStrategy(((1, 1),))}
    program = partition(graph, StagePlan(strategies, Settings(1, recompute={block: Recompute()})))
    assert [n.kind for n in program.nodes if n.phase is Phase.RECOMPUTE] == kinds
