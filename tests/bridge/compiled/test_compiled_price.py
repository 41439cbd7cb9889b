"""Compiled programs cost what the formulas say of the same operators."""

from dataclasses import replace

import pytest

from ms_symtensor.bridge.compiled.compiled_price import compiled_time_s
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.operator import evaluate
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import OpView
from ms_symtensor.tensor.graph import Constant, InputRef, TensorType

A2 = load("atlas_800t_a2")
HEADS = TensorType((2, 16, 4096, 128), "bfloat16")
STATISTICS = TensorType((2, 16, 4096, 8), "float32")
OUTPUTS = (STATISTICS, STATISTICS, TensorType((1,), "bfloat16"), HEADS)
ARGUMENTS = (*(None,) * 7, 16, 1.0, 0.088, 2147483647, 2147483647, 0, 1, 0)


def compute_s(*nodes):
    graph = NodeGraph(nodes, (("x", HEADS),), (), Constant())
    return compiled_time_s(CompiledProgram(graph, 2, 0, ParallelConfig(), (), {}, 0.0, ""), A2)["compute"]


def test_attention_takes_what_the_search_charges_forward_and_back():
    inputs = (InputRef("x"),) * 3
    constants = tuple(Constant(value) for value in ARGUMENTS)
    forward = Node("attention", "FlashAttentionScore", "", (*inputs, *constants), OUTPUTS, ())
    back = Node("Gradients/attention", "FlashAttentionScoreGrad", "", inputs, (HEADS,) * 3, ())
    op = OpView("FlashAttentionScore", "attention", (HEADS,) * 3, OUTPUTS, ARGUMENTS, {}, (0, 1, 2))
    charged = evaluate(op, signature(op), 3, [{}], A2)
    assert compute_s(forward) == pytest.approx(charged.forward_s[0])
    assert compute_s(forward, back) == pytest.approx(charged.forward_s[0] + charged.backward_s[0])


def test_products_on_tensors_of_the_same_type_do_not_change_what_attention_takes_backward():
    inputs = (InputRef("x"),) * 3
    constants = tuple(Constant(value) for value in ARGUMENTS)
    forward = Node("attention", "FlashAttentionScore", "", (*inputs, *constants), OUTPUTS, ())
    scores = replace(HEADS, shape=(*HEADS.shape[:-1], HEADS.shape[-2]))
    product = Node("rotary", "BatchMatMul", "", (*inputs[:2], Constant(False), Constant(True)), (scores,), ())
    back = Node("Gradients/attention", "FlashAttentionScoreGrad", "", inputs, (HEADS,) * 3, ())
    assert compute_s(forward, product, back) - compute_s(product) == pytest.approx(compute_s(forward, back))
