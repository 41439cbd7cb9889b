"""Every micro-batch has its samples cut out of the batch: what of them waits for the backward pass lies in memory."""

import pytest

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.program.stage_memory import micro_batch
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

SAMPLES = TensorType((8, 4), "float32")
BLOCKS = ("blocks.0", "blocks.1")


def masked(recompute):
    """Two blocks that both multiply with `mask`, an input, on two devices, which cut it."""
    ops = [Op("first", "Mul", (InputRef("x"), ParameterRef("v")), (SAMPLES,), primitive="first")]
    for block in BLOCKS:
        before = OpOutput(ops[-1].name)
        ops.append(Op(block, "Mul", (before, InputRef("mask")), (SAMPLES,), primitive="mul", block=block))
    ops.append(Op("sum", "ReduceSum", (OpOutput(BLOCKS[-1]),), (TensorType((), "float32"),), primitive="sum"))
    graph = Graph("net", (("x", SAMPLES), ("mask", SAMPLES)), (Parameter("v", SAMPLES),), tuple(ops), OpOutput("sum"))
    strategies = dict.fromkeys(("first", *BLOCKS), OpStrategy(((2, 1), (2, 1)))) | {"sum": OpStrategy(((2, 1),))}
    return partition(graph, StagePlan(strategies, Settings(2, recompute=recompute)))


@pytest.mark.parametrize("recompute, kept", [({}, 1), (dict.fromkeys(BLOCKS, Recompute()), 2)])
def test_samples_wait_for_the_backward_pass(recompute, kept):
    """The slice of x and that of the mask do; where blocks are recomputed the whole mask, to be cut again."""
    found = micro_batch(masked(recompute), OptimizerLevel.NONE, interleaved=False)
    assert found.kept_B == {"blocks.0": (1 + kept) * SAMPLES.size_B // 2}


def test_every_block_cuts_samples_again():
    """As `recompute_…/StridedSlice` is compiled in each: it waits for the backward pass of its block."""
    program = masked(dict.fromkeys(BLOCKS, Recompute()))
    again = [n for n in program.nodes if n.phase is Phase.RECOMPUTE and n.kind == "StridedSlice"]
    assert [n.block for n in again] == [*reversed(BLOCKS)]
