"""Predicted programs: what is known of them without a compiler. benchmarks/exactness.py compares them with MindSpore's."""

from dataclasses import replace

import pytest

from benchmarks.exactness_cases import small_config_of
from model_zoo.builder import build_graph
from model_zoo.config import Lora
from model_zoo.megatron import megatron_strategy
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import COLLECTIVES, Phase, Role
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType
from tests.program.zoo import collectives, program

LAYERS = 2
BLOCKS = tuple(f"layers.{i}" for i in range(LAYERS))


def test_megatron_sums_twice_per_layer_and_direction():
    found = program("llama2_7b", 2, 4)
    sums = [n for n in found.nodes if n.role is Role.COMBINE and n.block is not None]
    assert sum(n.phase is Phase.FORWARD for n in sums) == 2 * LAYERS
    assert sum(n.phase is Phase.BACKWARD for n in sums) == 2 * LAYERS


def test_sequence_parallel_scatters_instead():
    forward = collectives(program("llama2_7b", 2, 4, sequence=True), phase=Phase.FORWARD)
    assert forward["ReduceScatter"] == 2 * LAYERS
    assert forward["AllGather"] >= 2 * LAYERS


def test_every_node_comes_after_what_it_reads():
    recomputation = dict.fromkeys(BLOCKS, Recompute())
    found = program("llama3_8b", 2, 4, sequence=True, recompute=recomputation, optimizer_level=OptimizerLevel.LEVEL3)
    made_by = {t for n in found.nodes for t in n.outputs}
    seen: set[int] = set()
    for node in found.nodes:
        assert all(t in seen or t not in made_by for t in node.inputs)
        seen.update(node.outputs)


@pytest.mark.parametrize("model", ["llama2_7b-self", "gpt2_xl", "bert_large"])
def test_every_gradient_has_the_shape_and_type_of_its_parameter(model):
    found = program(model, 2, 4, optimizer_level=OptimizerLevel.LEVEL1, parallel_optimizer_threshold_KB=0)
    last = {n.parameter: found.tensors[n.outputs[0]] for n in found.nodes if n.role is Role.SYNC}
    for name, placement in found.parameters.items():
        if name in last:
            assert last[name] == TensorType(placement.slice_shape, placement.dtype), name


def test_recompute_repeats_a_blocks_work_but_not_its_result():
    plain, recomputation = (
        program("llama2_7b", 2, 4),
        program("llama2_7b", 2, 4, recompute=dict.fromkeys(BLOCKS, Recompute())),
    )
    repeated = {n.op for n in recomputation.nodes if n.phase is Phase.RECOMPUTE and n.role is Role.WORK}
    assert not any(n.phase is Phase.RECOMPUTE for n in plain.nodes)
    assert any("RmsNorm" in name for name in repeated) and any("FlashAttention" in name for name in repeated)
    assert not any(name.endswith("TransformerBlock/Add-op1") for name in repeated)
    assert collectives(recomputation, phase=Phase.RECOMPUTE)["AllReduce"] > 0


def test_recompute_without_communication_repeats_no_moves():
    quiet = dict.fromkeys(BLOCKS, Recompute(communication=False))
    found = program("llama2_7b", 2, 4, sequence=True, recompute=quiet)
    repeated = [n for n in found.nodes if n.phase is Phase.RECOMPUTE]
    assert repeated
    assert not any(n.kind in COLLECTIVES or n.role is Role.MOVE for n in repeated)


def test_only_the_chosen_blocks_are_recomputed():
    found = program("llama2_7b", 2, 4, recompute={"layers.1": Recompute()})
    assert {n.block for n in found.nodes if n.phase is Phase.RECOMPUTE} == {"layers.1"}


def test_level3_gathers_weights_again_but_no_embedding():
    found = program("llama2_7b", 8, 1, optimizer_level=OptimizerLevel.LEVEL3)
    gathered = {n.parameter for n in found.nodes if n.role is Role.WEIGHT and n.kind == "AllGather"}
    recomputation = {n.parameter for n in found.nodes if n.phase is Phase.RECOMPUTE}
    assert gathered - recomputation == {"word_embedding.table"}


def test_a_tied_weight_is_gathered_and_summed_once():
    found = program("gpt2_xl", 8, 1, optimizer_level=OptimizerLevel.LEVEL1)
    table = [n for n in found.nodes if n.parameter == "word_embedding.table" and n.kind in COLLECTIVES]
    assert [(n.kind, found.tensors[n.inputs[0]].dtype) for n in table] == [
        ("AllGather", "float32"),
        ("ReduceScatter", "float32"),
    ]


def test_sums_in_the_type_in_use_come_before_the_cast():
    name = "layers.0.attention.query.weight"
    for exact, kinds in ((True, ["Cast", "AllReduce"]), (False, ["AllReduce", "Cast"])):
        found = program("llama2_7b", 8, 1, gradient_fp32_sync=exact)
        assert [n.kind for n in found.nodes if n.parameter == name and n.role is Role.SYNC] == kinds


# -- weights that MindSpore does not synchronise ---------------------------------------------------------------------------


def product(weight_first: tuple[Op, ...], read: OpOutput | ParameterRef, transposed: bool) -> Graph:
    """x [32, 16] times a weight [64, 16] that `weight_first` prepares, summed."""
    matmul = Op(
        "MatMul-op0", "MatMul", (InputRef("x"), read), (TensorType((32, 64), "float32"),),
        (("transpose_a", False), ("transpose_b", not transposed)),
    )  # fmt: skip
    total = Op("ReduceSum-op0", "ReduceSum", (OpOutput("MatMul-op0"),), (TensorType((), "float32"),))
    weight = Parameter("w", TensorType((64, 16), "float32"))
    return Graph(
        "Net",
        (("x", TensorType((32, 16), "float32")),),
        (weight,),
        (*weight_first, matmul, total),
        OpOutput(total.name),
    )


TRANSPOSE = Op(
    "Transpose-op0", "Transpose", (ParameterRef("w"),), (TensorType((16, 64), "float32"),), (("perm", (1, 0)),)
)  # fmt: skip


def placed(graph: Graph, **settings):
    strategies = {"MatMul-op0": OpStrategy(((4, 1), (1, 1))), "Transpose-op0": OpStrategy(((1, 1),))}
    known = {op.name for op in graph.ops}
    plan = StagePlan({k: v for k, v in strategies.items() if k in known}, Settings(4, **settings))
    return partition(graph, plan)


def test_the_gradient_of_a_transposed_weight_is_not_summed():
    right, wrong = (
        placed(product((), ParameterRef("w"), False)),
        placed(product((TRANSPOSE,), OpOutput(TRANSPOSE.name), True)),
    )
    assert [n.kind for n in right.nodes if n.role is Role.SYNC] == ["AllReduce"]
    assert not any(n.role is Role.SYNC for n in wrong.nodes)


def test_sharding_by_the_optimizer_sums_it():
    graph = product((TRANSPOSE,), OpOutput(TRANSPOSE.name), True)
    found = placed(graph, optimizer_level=OptimizerLevel.LEVEL1, parallel_optimizer_threshold_KB=0)
    assert [n.kind for n in found.nodes if n.role is Role.SYNC] == ["ReduceScatter"]


def test_two_users_must_agree():
    graph = product((TRANSPOSE,), OpOutput(TRANSPOSE.name), True)
    twice = Op("MatMul-op1", "MatMul", (InputRef("x"), ParameterRef("w")), (TensorType((32, 64), "float32"),),
               (("transpose_a", False), ("transpose_b", True)))  # fmt: skip
    both = Graph(graph.name, graph.inputs, graph.parameters, (*graph.ops, twice), graph.output)
    strategies = {"MatMul-op0": OpStrategy(((1, 1), (1, 4))), "MatMul-op1": OpStrategy(((4, 1), (1, 1))),
                  "Transpose-op0": OpStrategy(((4, 1),))}  # fmt: skip
    with pytest.raises(InvalidStrategyError, match="parameter w: Transpose-op0 wants it cut"):
        partition(both, StagePlan(strategies, Settings(4)))


def test_level3_with_partial_shards_gathers_norms_again_only_where_they_are_recomputed():
    partial = {
        "optimizer_level": OptimizerLevel.LEVEL3,
        "optimizer_weight_shard_size": 2,
        "parallel_optimizer_threshold_KB": 0,
    }
    found = program("llama2_7b", 8, 1, recompute={"layers.1": Recompute()}, **partial)
    recomputation = {n.parameter for n in found.nodes if n.phase is Phase.RECOMPUTE and n.kind == "AllGather"}
    assert "layers.1.attention_norm.gamma" in recomputation and "layers.0.attention.query.weight" in recomputation
    assert "layers.0.attention_norm.gamma" not in recomputation


def test_only_what_trains_has_a_gradient():
    for trains_vocabulary in (True, False):
        config = replace(small_config_of("qwen_7b_lora"), lora=Lora(8, 16.0, trains_vocabulary))
        graph = build_graph(config)
        cuts = megatron_strategy(graph, config, 4, 2, sequence_parallel=False)
        strategies = {name: OpStrategy(*pair) for name, pair in cuts.items()}
        found = partition(graph, StagePlan(strategies, Settings(8)))
        summed = {node.parameter for node in found.nodes if node.role is Role.SYNC}
        assert summed == {p.name for p in graph.parameters if p.requires_grad}
        assert ("word_embedding.table" in summed) == trains_vocabulary


def test_tokens_travel_to_their_experts_and_back_by_alltoall():
    found = program("mixtral_8x7b", 4, 2, enable_alltoall=True)
    layers = small_config_of("mixtral_8x7b").num_layers
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        (exchange,) = {(c.ranks, c.size_B) for c in found.collectives(3) if c.kind == "AlltoAll" and c.phase is phase}
        assert exchange[0] == (1, 3, 5, 7)
        assert collectives(found, phase=phase)["AlltoAll"] == 2 * layers
