"""The numbers that pins have to agree with, read off graphs."""

from dataclasses import replace

from ms_symtensor.cluster.load import load
from ms_symtensor.search.constraints.arithmetic.facts import Facts
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.possible import facts_of
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")


def facts(graph: Graph, parts: int = 1) -> Facts:
    return facts_of(graph, Request(A2, 8, 8, 128, 1 << 60, "net"), parts)


def test_a_decoder():
    found = facts(small_graph("llama2_7b", num_layers=3))
    assert (found.device_num, found.batch, found.samples, found.blocks) == (8, 8, 8, 3)
    assert {tuple(one.sizes.items()) for one in found.weights} == {
        (("k", 256), ("n", 256)), (("k", 256), ("n", 512)), (("k", 512), ("n", 256)),
    }  # fmt: skip
    assert not any(one.instead for one in found.weights) and not found.experts
    assert [dict(one.sizes) for one in found.attention] == [{"s": 128, "n": 8}]
    assert not (found.whole or found.one_stage or found.no_accumulation or found.one_run)


def test_a_graph_that_is_a_part_of_the_step():
    assert facts(small_graph("llama2_7b", batch_size=2), parts=4).samples == 8


def test_experts_and_a_table_that_two_operators_read():
    found = facts(small_graph("qwen3_30b_a3b"))
    assert {one.sizes["b0"] for one in found.experts} == {128}
    assert not facts(small_graph("gpt2_xl")).one_run


def test_what_is_made_on_the_fly_is_cut_along_its_leading_dim_alone():
    graph = small_graph("llama2_7b")
    ops = tuple(replace(op, cell=(), primitive="") if op.type == "MatMul" else op for op in graph.ops)
    first = facts(replace(graph, ops=ops)).weights[0]
    assert not first.sizes and "(MatMul): a functional MatMul has its leading dim cut" in first.instead


def test_a_linear_layer_of_mint():
    x, w, y = (TensorType(shape, "float32") for shape in ((8, 64), (128, 64), (8, 128)))
    dense = Op("Default/fc-Linear/Dense-op0", "Dense", (InputRef("x"), ParameterRef("fc.weight")), (y,))
    found = facts(Graph("net", (("x", x),), (Parameter("fc.weight", w),), (dense,), OpOutput(dense.name)))
    (one,) = found.weights
    assert not one.sizes and one.instead.startswith("fc.Dense (Dense): MindSpore has no distributed form of Dense")
    assert found.samples is None and "no repeated blocks" in found.whole
