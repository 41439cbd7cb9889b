"""Operators that cannot be cut freely: those of one primitive, and those made on the fly."""

import random
from dataclasses import replace

import pytest

from benchmarks.brute_force import bound_case, disagreement, planned
from benchmarks.small_networks import Network
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import BlockKind, DeltaSizes
from ms_symtensor.cluster.load import load
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.meanings import default_strategy
from ms_symtensor.search.plan import plan
from ms_symtensor.strategy.primitives import strategies_by_primitive
from ms_symtensor.tensor.graph import Graph

A2 = load("atlas_800t_a2")


@pytest.fixture(scope="module")
def two_products() -> Graph:
    """Two products in a row, the first one fastest with its columns cut, the second one with nothing but what it sums over."""
    net = Network()
    x = net.matmul(net.input(513, 8192), 4096)
    return net.graph(net.matmul(net.unary("SiLU", x), 513))


def changed(graph: Graph, **fields: str | tuple[str, ...]) -> Graph:
    """`graph` with these fields of its products."""
    return replace(graph, ops=tuple(replace(op, **fields) if op.type == "MatMul" else op for op in graph.ops))


def products(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops if op.type == "MatMul"]


def test_operators_of_one_primitive_have_one_strategy(two_products):
    shared = changed(two_products, primitive="matmul")
    free, bound = (planned(graph, A2, 2) for graph in (two_products, shared))
    assert len({free.strategies[name] for name in products(two_products)}) == 2
    assert len({bound.strategies[name] for name in products(shared)}) == 1
    assert bound.prediction.step_time_s > free.prediction.step_time_s
    assert strategies_by_primitive(shared, bound.stage)


def test_operators_made_on_the_fly_are_cut_as_mindspore_does(two_products):
    on_the_fly = changed(two_products, cell=(), primitive="")
    bound = planned(on_the_fly, A2, 2)
    for name in products(on_the_fly):
        seen = view(on_the_fly, on_the_fly.op_by_name[name])
        assert bound.strategies[name] == default_strategy(seen, signature(seen), 2)
    assert not any("matmul" in path for path in strategies_by_primitive(on_the_fly, bound.stage))


@pytest.mark.parametrize("seed", range(12))
def test_no_combination_that_the_network_can_carry_is_faster(seed):
    graph, device_num = bound_case(random.Random(seed), 150)
    assert disagreement(graph, A2, device_num) is None


def test_a_primitive_of_many_operators_is_one_unknown():
    """Apart, they would join in one table of more entries than are ever built."""
    net = Network()
    x = net.matmul(net.input(64, 64), 64)
    parts = [net.unary("Exp", x) for _ in range(9)]
    total = parts[0]
    for other in (*parts[1:], *reversed(parts)):
        total = net.binary("Mul", total, other)
    graph = net.graph(net.total(total))
    shared = replace(graph, ops=tuple(replace(op, primitive=op.type) for op in graph.ops))
    found = planned(shared, A2, 8)
    assert len({found.strategies[op.name] for op in shared.ops if op.type == "Mul"}) == 1


def test_a_primitive_for_tensors_of_other_numbers_of_dims_is_given_no_strategy():
    net = Network()
    x = net.matmul(net.input(64, 64), 64)
    y = net.unary("Exp", net.reshape(net.unary("Exp", x), 4, 16, 64))
    graph = net.graph(net.total(y))
    shared = replace(graph, ops=tuple(replace(op, primitive="e") if op.type == "Exp" else op for op in graph.ops))
    found = planned(shared, A2, 8)
    for op in shared.ops:
        if op.type == "Exp":
            seen = view(shared, op)
            assert found.strategies[op.name] == default_strategy(seen, signature(seen), 8)
    assert ("e",) not in strategies_by_primitive(shared, found.stage)


def test_one_strategy_suits_products_of_which_only_one_can_be_cut():
    net = Network()
    x = net.matmul(net.input(32, 32), 64)
    y = net.matmul(net.cast(net.input(35, 77, dtype="float32"), "bfloat16"), 33)
    graph = net.graph(net.binary("Add", net.total(x), net.total(y)))
    found = planned(changed(graph, primitive="matmul"), A2, 8)
    assert {found.strategies[name].inputs for name in products(graph)} == {((1, 1), (1, 1))}


@pytest.mark.parametrize("heads", [1, 4])
def test_linear_attention_is_cut_alike_in_samples_and_heads(heads):
    config = replace(
        dimensions_of("llama3_8b", num_layers=2, seq_length=256), hidden_size=256, num_heads=4, n_kv_heads=4, head_dim=64,
        vocab_size=512, intermediate_size=512, delta=DeltaSizes(4, 8, 32, 32), kinds=(BlockKind(linear=True),) * 2,
    )  # fmt: skip
    found = plan(
        build_graph(config), A2, device_num=4, global_batch_size=16, seq_length=256, fix={"model_parallel": heads}
    )
    every = {name: s.inputs for name, s in found.strategies.items() if "/0-TransformerBlock/" in name}
    core = [dims for name, inputs in every.items() if "-DeltaCore/" in name for dims in inputs if len(dims) > 3]
    assert len(core) > 90
    assert all(dims[:2] in ((4 // heads, heads), (1, heads)) and {*dims[2:]} == {1} for dims in core)
