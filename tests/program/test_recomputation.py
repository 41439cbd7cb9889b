"""Which operators of a recomputed block are recomputed."""

from dataclasses import replace

import pytest

from benchmarks.exactness_cases import small_config_of
from model_zoo.megatron import megatron_strategy
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType
from tests.program.zoo import collectives, program, small_graph

ALL = Recompute()
PRODUCTS = tuple(f"attention.{name}.matmul" for name in ("query", "key", "value", "output")) + tuple(
    f"feed_forward.{name}.matmul" for name in ("gate", "up")
)


def _recomputation(found, role=Role.WORK):
    return {
        n.op.rsplit("/", 2)[-2].rsplit("-", 1)[-1] + "/" + n.kind for n in found.nodes if _is_copy(n) and n.role is role
    }


def _is_copy(node):
    return node.phase is Phase.RECOMPUTE


def test_operators_are_named_within_their_block():
    names = {name_in_block(op) for op in small_graph("llama2_7b").ops if op.block == "layers.1" and is_selectable(op)}
    assert {*PRODUCTS, "attention_norm.norm", "feed_forward.silu"} <= names
    outside = next(op for op in small_graph("llama2_7b").ops if op.block is None)
    assert name_in_block(outside) == outside.name


def test_what_is_kept_has_no_copy():
    recomputation = dict.fromkeys(("layers.0", "layers.1"), Recompute(kept=PRODUCTS))
    found = program("llama2_7b", 8, 1, recompute=recomputation)
    assert not any(kind.endswith("/MatMul") for kind in _recomputation(found))
    assert {kind.rsplit("/")[-1] for kind in _recomputation(found)} >= {"RmsNorm", "SiLU", "Mul"}


def test_operators_alone_have_a_copy_and_nothing_else_has():
    only = ("feed_forward.silu", "attention_norm.norm", "attention.query.matmul")
    found = program("llama2_7b", 2, 4, sequence=True, recompute={"layers.1": Recompute(only=only)})
    assert {kind.rsplit("/")[-1] for kind in _recomputation(found)} == {
        "RmsNorm",
        "SiLU",
    }  # no gradient reads the product
    assert not collectives(found, phase=Phase.RECOMPUTE)
    assert {node.block for node in found.nodes if _is_copy(node)} == {"layers.1"}


@pytest.mark.parametrize(("kind", "recomputed"), [("Chunk", {"ReLU", "Chunk"}), ("ChunkView", {"ReLU"})])
def test_views_are_not_recomputed(kind, recomputed):
    whole, half = TensorType((8, 4), "float32"), TensorType((8, 2), "float32")
    ops = (
        Op("mul", "Mul", (InputRef("x"), ParameterRef("v")), (whole,), primitive="mul"),
        Op("relu", "ReLU", (OpOutput("mul"),), (whole,), primitive="relu", block="block"),
        Op("chunk", kind, (OpOutput("relu"), Constant(2), Constant(1)), (half, half), primitive="chunk", block="block"),
        Op("gate", "Mul", (OpOutput("chunk"), OpOutput("chunk", 1)), (half,), primitive="gate", block="block"),
        Op("sum", "ReduceSum", (OpOutput("gate"),), (TensorType((), "float32"),), primitive="sum"),
    )
    graph = Graph("net", (("x", whole),), (Parameter("v", whole),), ops, OpOutput("sum"))
    cuts = {op.name: OpStrategy(((1, 1),) * len(graph.tensor_inputs(op))) for op in ops}
    found = partition(graph, StagePlan(cuts, Settings(1, recompute={"block": ALL})))
    assert {node.kind for node in found.nodes if _is_copy(node)} == recomputed


def test_a_selection_keeps_more_than_the_whole_block_and_less_than_nothing():
    blocks = ("layers.0", "layers.1")
    peaks = [
        activation_peak_B(program("llama2_7b", 2, 1, recompute=recomputation))
        for recomputation in (dict.fromkeys(blocks, ALL), dict.fromkeys(blocks, Recompute(kept=PRODUCTS)), {})
    ]
    assert peaks == sorted(peaks) and len({*peaks}) == 3


@pytest.mark.parametrize(("kept", "sums"), [((), 1), (("attention.output.matmul",), 0)])
def test_the_sum_behind_an_operator_can_be_kept(kept, sums):
    """The sum behind attention has a copy because the norm behind it has; that behind the feed-forward delivers the result."""
    found = program("llama2_7b", 2, 4, recompute={"layers.1": Recompute(kept_communication=kept)})
    assert (
        collectives(found, phase=Phase.RECOMPUTE) == {"AllReduce": sums}
        if sums
        else not collectives(found, phase=Phase.RECOMPUTE)
    )


def _moved_before_a_reshape(recomputation, graph):
    """Kinds of what is done again before the Reshape that merges heads: these are cut before it, and tokens behind it."""
    cuts = megatron_strategy(graph, small_config_of("llama2_7b"), 1, 2, False)
    output = next(op.name for op in graph.ops if op.block == "layers.1" and op.cell[-1:] == ("output",))
    strategies = {name: OpStrategy(*pair) for name, pair in cuts.items()} | {output: OpStrategy(((2, 1), (1, 1)))}
    found = partition(
        graph, StagePlan(strategies, Settings(2, enable_alltoall=True, recompute={"layers.1": recomputation}))
    )
    return {n.kind for n in found.nodes if _is_copy(n) and n.role is Role.MOVE and n.op.endswith("Reshape-op3")}


@pytest.mark.parametrize(
    ("recomputation", "moves"),
    [
        (ALL, {"AlltoAll", "Reshape"}),
        (Recompute(kept_communication=("attention.merge_heads",)), set()),
        (Recompute(kept_communication=("attention.output.matmul",)), {"AlltoAll", "Reshape"}),
        (Recompute(communication=False), set()),
        (Recompute(only=("attention.output.matmul",)), set()),
        (Recompute(only=("attention.core.flash_attention", "attention.merge_heads")), {"AlltoAll", "Reshape"}),
    ],
)
def test_what_is_moved_before_a_reshape_goes_by_its_mark(recomputation, moves):
    assert _moved_before_a_reshape(recomputation, small_graph("llama2_7b")) == moves


def test_a_reshape_made_on_the_fly_has_no_mark():
    graph = small_graph("llama2_7b")
    plain = [replace(op, cell=(), primitive="") if op.type == "Reshape" else op for op in graph.ops]
    functional = Graph(graph.name, graph.inputs, graph.parameters, tuple(plain), graph.output)
    for recomputation in (ALL, Recompute(communication=False)):
        assert _moved_before_a_reshape(recomputation, functional) == {"AlltoAll", "Reshape"}


def test_equal_selections_make_equal_blocks():
    recomputation = dict.fromkeys(("layers.0", "layers.1"), Recompute(kept=PRODUCTS[:3]))
    found = program("llama2_7b", 2, 4, sequence=True, recompute=recomputation)
    first, second = (
        [n.kind for n in found.nodes if n.phase is Phase.RECOMPUTE and n.block == b and n.role is Role.WORK]
        for b in recomputation
    )
    assert sorted(first) == sorted(second)
