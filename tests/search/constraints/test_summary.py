"""Degrees as people name them, for plans that people write by hand."""

import pytest

from model_zoo.builder import build_graph
from model_zoo.dimensions import dimensions_of
from model_zoo.megatron import megatron_strategy
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.search.constraints.summary import Degrees, degrees
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

SIZES = {"num_layers": 2, "batch_size": 8, "seq_length": 64}


def megatron(name, data, model, sequence=False, expert=None, **more):
    config = dimensions_of(name, **SIZES, **more)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, data, model, sequence, expert)
    strategies = {op: OpStrategy(*of) for op, of in cuts.items()}
    return graph, StagePlan(strategies, Settings(data * model))


def attending(graph, plan, inputs):
    """`plan` with another strategy for attention."""
    chosen = [op.name for op in graph.ops if op.type == "FlashAttentionScore"]
    return StagePlan({**plan.strategies, **dict.fromkeys(chosen, OpStrategy(inputs))}, plan.settings)


@pytest.mark.parametrize("name", ["llama2_7b", "llama3_8b", "bert_large"])
@pytest.mark.parametrize("sequence", [False, True])
def test_tensor_parallelism_shares_out_heads_but_no_sequence(name, sequence):
    assert degrees(*megatron(name, 2, 2, sequence)) == Degrees(2, 2, sequence)


def test_attention_written_in_plain_operators():
    assert degrees(*megatron("llama2_7b", 4, 2, attention="self")) == Degrees(4, 2, False)


def test_a_cut_of_the_querys_sequence():
    graph, plan = megatron("llama3_8b", 2, 1)
    plan = StagePlan(plan.strategies, Settings(8))
    plan = attending(graph, plan, ((2, 4, 1, 1), (2, 1, 1, 1), (2, 1, 1, 1), (1, 1)))
    assert degrees(graph, plan).context_parallel == 4


def test_tokens_outside_and_heads_inside():
    """Ulysses: all products cut the tokens by 8, which is four slices of each of two samples; attention cuts heads by 4."""
    _, plan = megatron("llama3_8b", 8, 1)
    graph = build_graph(dimensions_of("llama3_8b", **{**SIZES, "batch_size": 2}))
    products = {name: plan.strategies[name] for name in plan.strategies if graph.op_by_name[name].type == "MatMul"}
    plan = StagePlan(products, plan.settings)
    found = degrees(graph, attending(graph, plan, ((2, 1, 4, 1), (2, 1, 4, 1), (2, 1, 4, 1), (1, 1))))
    assert found == Degrees(2, 1, False, context_parallel=4)


def test_attention_in_plain_operators_of_one_sample():
    """All products cut its tokens by 8, attention its heads."""
    _, plan = megatron("llama2_7b", 8, 1)
    graph = build_graph(dimensions_of("llama2_7b", **{**SIZES, "batch_size": 1}, attention="self"))
    products = {op.name: plan.strategies[op.name] for op in graph.ops if op.type == "MatMul"}
    cores = [op.name for op in graph.ops if op.type == "BatchMatMul" and "CoreAttention" in op.name]
    heads = dict.fromkeys(cores, OpStrategy(((1, 8, 1, 1), (1, 8, 1, 1))))
    assert degrees(graph, StagePlan(products | heads, plan.settings)) == Degrees(1, 1, False, context_parallel=8)


def test_samples_outside_and_heads_inside_are_no_context_parallelism():
    graph, plan = megatron("llama3_8b", 8, 1)
    plan = attending(graph, plan, ((2, 1, 4, 1), (2, 1, 4, 1), (2, 1, 4, 1), (1, 1)))
    assert degrees(graph, plan) == Degrees(8, 1, False)


@pytest.mark.parametrize("name", ["mixtral_8x7b", "qwen3_30b_a3b"])
def test_experts_are_counted_apart(name):
    assert degrees(*megatron(name, 4, 2, expert=4)) == Degrees(4, 2, False, expert_parallel=4)


def routed(choice: str, kept: int = 2) -> tuple[Graph, StagePlan]:
    """A router of operators of its own, which chooses among 8 experts, each a product with a weight of its own."""
    x, tokens, scores = (TensorType(shape, "float16") for shape in ((64, 32), (8, 16, 32), (64, 8)))
    gate, up, y = (TensorType(shape, "float16") for shape in ((32, 8), (8, 32, 64), (8, 16, 64)))
    ops = (
        Op("gate", "MatMul", (InputRef("x"), ParameterRef("gate")), (scores,)),
        Op(
            "choice",
            choice,
            (OpOutput("gate"), Constant(2)),
            (TensorType((64, kept), "float16"), TensorType((64, kept), "int32")),
        ),
        Op("up", "BatchMatMul", (InputRef("tokens"), ParameterRef("up")), (y,)),
    )
    weights = Parameter("gate", gate), Parameter("up", up)
    strategies = {"up": OpStrategy(((8, 1, 1), (8, 1, 1)))}
    graph = Graph("net", (("x", x), ("tokens", tokens)), weights, ops, OpOutput("up"))
    return graph, StagePlan(strategies, Settings(8))


def test_experts_of_a_router_of_its_own_are_experts():
    assert degrees(*routed("TopkExt")).expert_parallel == degrees(*routed("TopK")).expert_parallel == 8
    assert degrees(*routed("Sort", 8)).expert_parallel == 1
