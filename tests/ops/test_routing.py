"""Routing of tokens to experts."""

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.routing import routes_tokens
from ms_symtensor.ops.signature import view


def test_groups_of_tokens_are_routed_apart():
    graph = build_graph(dimensions_of("mixtral_8x7b", num_layers=1))
    (op,) = (op for op in graph.ops if op.type == "TopKRouter")
    found = signature(view(graph, op))
    assert found.cuttable == ("b",) and found.reduced == ()
    assert found.outputs == (("b", None, None), ("b", None, None))
    assert found.differentiable == ()


def test_only_networks_with_experts_route_tokens():
    assert routes_tokens(build_graph(dimensions_of("qwen3_30b_a3b", num_layers=1)))
    assert not routes_tokens(build_graph(dimensions_of("qwen3_32b", num_layers=1)))
