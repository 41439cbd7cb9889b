from collections import Counter
from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import Attention, BlockKind, DeltaSizes, IndexerSizes, StateSpaceSizes
from model_zoo.megatron import megatron_strategy, require_context
from ms_symtensor.errors import InputError

ARCHITECTURES = ("llama2_7b", "llama3_8b", "bert_large", "qwen1_5_72b")


def test_cuts_of_a_llama_layer() -> None:
    config = dimensions_of("llama2_7b", num_layers=1)
    strategy = megatron_strategy(build_graph(config), config, 2, 4, sequence_parallel=True)
    layer = "Default/layers-CellList/0-TransformerBlock"
    assert strategy[f"{layer}/attention-SelfAttention/query-Linear/MatMul-op0"] == (((2, 1), (4, 1)), None)
    assert strategy[f"{layer}/feed_forward-GatedFeedForward/down-Linear/MatMul-op0"] == (((2, 4), (1, 4)), ((8, 1),))
    assert strategy[f"{layer}/attention_norm-Norm/RmsNorm-op0"] == (((8, 1), (1,)), None)
    attention = f"{layer}/attention-SelfAttention/core-FlashAttention/FlashAttentionScore-op0"
    assert strategy[attention] == (((2, 1, 4, 1),) * 3 + ((1, 1),), None)


def test_ranks_of_a_sample_share_out_the_queries_of_an_indexer() -> None:
    config = replace(dimensions_of("deepseek_v3", num_layers=1, batch_size=8), indexer=IndexerSizes(64, 128, 2048))
    strategy = megatron_strategy(build_graph(config), config, 2, 4, sequence_parallel=True)
    attention = "Default/layers-CellList/0-TransformerBlock/attention-LatentAttention"
    indexer = f"{attention}/indexer-Indexer"
    rows = (2, 1, 4, 1)
    assert strategy[f"{indexer}/query-Linear/MatMul-op0"] == (((8, 1), (1, 1)), None)
    assert strategy[f"{indexer}/key_norm-Norm/LayerNorm-op0"] == (((8, 1), (1,), (1,)), None)
    assert strategy[f"{indexer}/rotate_query-RotaryEmbedding/Mul-op0"] == (((2, 4, 1, 1), (4, 1, 1)), None)
    assert strategy[f"{indexer}/BatchMatMul-op0"] == ((rows, (2, 1, 1, 1)), None)
    assert strategy[f"{indexer}/Add-op0"] == ((rows, (4, 1)), None)
    assert strategy[f"{indexer}/TopK-op0"] == ((rows,), None)
    core = strategy[f"{attention}/core-FlashAttention/FlashAttentionScore-op0"]
    assert core == (((2, 1, 4, 1),) * 3 + ((2, 1, 1, 1),), None)  # heads are cut there, and every rank has the choice


def test_heads_have_their_own_biases_by_distance() -> None:
    config = replace(dimensions_of("llama2_7b", num_layers=1), position="distance", normed_head=True)
    strategy = megatron_strategy(build_graph(config), config, 2, 4, sequence_parallel=True)
    attention = "Default/layers-CellList/0-TransformerBlock/attention-SelfAttention"
    assert strategy[f"{attention}/bias_query-DistanceBias/Add-op0"] == (((2, 1, 4, 1), (4, 1)), None)
    assert strategy[f"{attention}/bias_key-DistanceBias/Add-op0"] == (((2, 1, 4, 1), (1, 1, 1)), None)
    assert strategy["Default/head-VocabularyHead/L2Normalize-op0"] == (((4, 1),), None)


def test_heads_of_linear_attention_are_cut_and_its_sequences_whole() -> None:
    config = replace(
        dimensions_of("llama3_8b", num_layers=2, batch_size=8), delta=DeltaSizes(16, 32, 128, 128), attention_gate=True,
        kinds=(BlockKind(linear=True), BlockKind()),
    )  # fmt: skip
    strategy = megatron_strategy(build_graph(config), config, 2, 4, sequence_parallel=True, context_parallel=2)
    linear, full = (f"Default/layers-CellList/{n}-TransformerBlock/attention-" for n in (0, 1))
    linear, core = f"{linear}GatedDelta", f"{linear}GatedDelta/core-DeltaCore"
    assert strategy[f"{linear}/mixed-Linear/MatMul-op0"] == (((4, 1), (4, 1)), None)
    assert strategy[f"{linear}/Transpose-op0"] == (((2, 2, 4, 1),), None)  # tokens before, heads inside
    assert strategy[f"{core}/convolution-CausalConvolution/Split-op0"] == (((1, 8, 1, 1),), None)
    assert strategy[f"{core}/convolution-CausalConvolution/taps-CellList/1-Tap/Mul-op0"] == (
        ((2, 8, 1, 1), (1, 8, 1, 1)), None,
    )  # fmt: skip
    assert strategy[f"{core}/decay-Decay/Add-op0"] == (((2, 8, 1, 1), (8, 1, 1)), None)
    states = f"{core}/rule-DeltaRule/states-StatesBefore"
    assert strategy[f"{states}/Mul-op0"] == (((2, 8, 1, 1, 1), (1, 1, 1)), None)
    assert strategy[f"{states}/joins-CellList/0-JoinedSteps/BatchMatMul-op0"] == (((2, 8, 1, 1, 1),) * 2, None)
    assert strategy[f"{linear}/output-Linear/MatMul-op0"] == (((4, 4), (1, 4)), ((16, 1),))
    assert strategy[f"{full}SelfAttention/Sigmoid-op0"] == (((4, 4),), None)


@pytest.mark.parametrize(("groups", "heads"), [(8, 4), (1, 1)])
def test_heads_of_state_space_layers_are_cut_with_their_groups(groups: int, heads: int) -> None:
    config = replace(
        dimensions_of("llama3_8b", num_layers=1, batch_size=8), kinds=(BlockKind(linear=True),),
        state_space=StateSpaceSizes(128, 64, groups, 128),
    )  # fmt: skip
    strategy = megatron_strategy(build_graph(config), config, 2, 4, sequence_parallel=True)
    mixer = "Default/layers-CellList/0-TransformerBlock/attention-StateSpace"
    core = f"{mixer}/core-StateSpaceCore"
    assert strategy[f"{mixer}/key-Linear/MatMul-op0"] == (((2, 1), (heads, 1)), None)
    assert strategy[f"{core}/key_convolution-CausalConvolution/Add-op0"] == (((2, heads, 1, 1), (1, heads, 1, 1)), None)
    assert strategy[f"{core}/states-ChunkStates/CumSum-op0"] == (((2, heads, 1),), None)
    assert strategy[f"{core}/states-ChunkStates/BatchMatMul-op0"] == (((2, heads, 1, 1),) * 2, None)
    gate = strategy[f"{mixer}/norm-GroupedNorm/Mul-op0"]
    assert gate == (((2, heads), (2, heads)), None)


def test_what_does_not_divide_stays_whole() -> None:
    config = dimensions_of("gpt2_xl", num_layers=1)
    strategy = megatron_strategy(build_graph(config), config, 2, 4, sequence_parallel=False)
    layer = "Default/layers-CellList/0-TransformerBlock"
    assert strategy[f"{layer}/attention-SelfAttention/query-Linear/MatMul-op0"] == (((2, 1), (1, 1)), None)
    assert strategy["Default/head-VocabularyHead/MatMul-op0"] == (((2, 1), (1, 1)), None)


@pytest.mark.parametrize(("degrees", "reason"), [((3, 1), "batch_size 16"), ((1, 3), "width 11008")])
def test_degrees_that_divide_nothing_are_refused(degrees: tuple[int, int], reason: str) -> None:
    config = dimensions_of("llama2_7b", num_layers=1)
    with pytest.raises(InputError, match=reason):
        megatron_strategy(build_graph(config), config, *degrees, sequence_parallel=False)


def test_sequences_are_cut_between_the_groups_of_tokens_that_are_routed() -> None:
    config = dimensions_of("mixtral_8x7b", num_layers=1)
    with pytest.raises(InputError, match="give --token-groups 2"):
        megatron_strategy(build_graph(config), config, 2, 2, sequence_parallel=True, context_parallel=2)
    assert config.experts is not None
    config = replace(config, experts=replace(config.experts, token_groups=2))
    strategy = megatron_strategy(build_graph(config), config, 2, 2, sequence_parallel=True, context_parallel=2)
    mixture = "Default/layers-CellList/0-TransformerBlock/feed_forward-MixtureOfExperts"
    assert strategy[f"{mixture}/Gather-op0"] == (((8, 1, 1), (8, 1, 1)), None)


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        *(pytest.param(name, "flash", marks=pytest.mark.matrix) for name in ARCHITECTURES),
        ("qwen3_32b", "flash"),
        ("gpt2_xl", "flash"),
        ("llama3_8b", "self"),
    ],
)
def test_compiler_inserts_the_collectives_of_the_paper(name: str, attention: Attention) -> None:
    """Per layer, all-gather and reduce-scatter twice each, forward and backward, where heads can be cut; else once."""
    pytest.importorskip("mindspore")
    import mindspore as ms
    import numpy as np

    from model_zoo.network import build
    from ms_symtensor.bridge.apply.training import training_cell
    from ms_symtensor.bridge.capture.capture import primitive_of
    from ms_symtensor.bridge.compiled.collectives import collectives
    from ms_symtensor.bridge.compiler.compile import compile_rank

    config = dimensions_of(name, num_layers=2, attention=attention)
    graph, (cell, inputs) = build_graph(config), build(config)
    for op_name, (in_cuts, out_cuts) in megatron_strategy(graph, config, 2, 4, sequence_parallel=True).items():
        primitive_of(cell, graph.op_by_name[op_name]).shard(in_cuts, out_cuts)
    program = compile_rank(training_cell(cell), *inputs, ms.Tensor(np.float32(1)), device_num=8)
    found = Counter((c.kind, c.backward) for c in collectives(program))
    pairs = 2 * config.num_layers if config.num_heads % 4 == 0 else config.num_layers
    assert found["ReduceScatter", False] == found["AllGather", True] == pairs
    # one more before the head: the final norm's tokens are cut finer than the logits'
    extra = 1 if pairs == 2 * config.num_layers else 1 + config.num_layers
    assert found["AllGather", False] == found["ReduceScatter", True] == pairs + extra


@pytest.mark.parametrize(
    "model, change, remedy",
    (
        ("llama2_7b", {"attention": "self", "sinks": True}, "leave it at 1"),
        ("llama2_7b", {"attention": "self"}, "give flash attention"),
        ("llama2_7b", {"seq_length": 4095}, "give a length that divides"),
    ),
)
def test_sequences_that_cannot_be_cut_have_a_remedy_that_is_possible(model: str, change: dict, remedy: str):
    with pytest.raises(InputError, match=remedy):
        require_context(replace(dimensions_of(model), **change), 2)
