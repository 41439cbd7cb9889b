from dataclasses import replace
from typing import Any

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import Attention, BlockKind, DeltaSizes, Experts, IndexerSizes, LatentSizes, Lora, StateSpaceSizes
from ms_symtensor.tensor.graph import Graph

# BERT: with the masked-token head, without pooler and next-sentence head, as transformers' BertForMaskedLM has it.
PARAMETERS = {
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama3_8b": 8_030_261_248,
    "gpt2_xl": 1_557_611_200,
    "bert_large": 335_174_458,
    "llama2_70b": 68_976_648_192,
    "llama3_70b": 70_553_706_496,
    "qwen1_5_72b": 72_287_920_128,
    "deepseek_coder_7b": 6_910_365_696,
    "internlm2_20b": 19_861_149_696,
    "codellama_34b": 33_743_970_304,
    "qwen3_32b": 32_762_123_264,
    "mixtral_8x7b": 46_702_792_704,
    "qwen3_30b_a3b": 30_532_122_624,
    "deepseek_v3": 671_026_419_200 + 11_610_068_224,  # the main network, and what predicts the second token
    "qwen_7b_lora": 7_721_324_544 + 159_907_840,  # Qwen-7B, and its adapters of rank 64
}


def parameter_num(graph: Graph) -> int:
    return sum(parameter.type.element_num for parameter in graph.parameters)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    assert parameter_num(build_graph(dimensions_of(name))) == PARAMETERS[name]


@pytest.mark.parametrize("attention", ["flash", pytest.param("self", marks=pytest.mark.matrix)])
@pytest.mark.parametrize("name", PUBLISHED)
def test_graph_is_the_captured_one(name: str, attention: Attention) -> None:
    pytest.importorskip("mindspore")
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    config = dimensions_of(name, num_layers=PUBLISHED[name].dense_layers + 2, attention=attention)
    built, captured = build_graph(config), capture(*flat(build(config)))
    for mine, theirs in zip(built.ops, captured.ops, strict=True):
        assert mine == theirs
    assert built == captured


def test_experts_of_parts_of_a_sample_and_padded_values_capture_to_the_same_graph() -> None:
    pytest.importorskip("mindspore")
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    config = dimensions_of("deepseek_v3", num_layers=1, seq_length=64)
    assert config.experts is not None and config.latent_attention is not None
    config = replace(
        config,
        dense_layers=0,
        experts=replace(config.experts, token_groups=4),
        latent_attention=replace(config.latent_attention, pads_values=True),
    )
    assert capture(*flat(build(config))) == build_graph(config)


@pytest.mark.parametrize("form", ["dropless", "by_sample"])
def test_other_forms_of_experts_capture_to_the_same_graph(form: str) -> None:
    pytest.importorskip("mindspore")
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    config = dimensions_of("mixtral_8x7b", num_layers=1, seq_length=512, experts=form)
    assert capture(*flat(build(config))) == build_graph(config)


_TINY = {
    "hidden_size": 64, "num_layers": 3, "num_heads": 4, "n_kv_heads": 2, "head_dim": 16, "intermediate_size": 96,
    "vocab_size": 128, "seq_length": 64, "batch_size": 2,
}  # fmt: skip
_KINDS = (BlockKind(window=8), BlockKind(rotary=False), BlockKind(window=8, rotary_base=500.0))
_EXPERTS = Experts(8, 2, 32, shared_size=32)
_PARTS = {
    "windows": {"kinds": _KINDS, "rotated_size": 8, "qk_norm": "projection", "branch_norm": "after"},
    "windows of plain operators": {
        "kinds": _KINDS, "attention": "self", "activation": "geglu", "branch_norm": "both", "score_cap": 50.0, "logit_cap": 30.0,
        "embedding_scale": 8.0, "score_size": 32, "output_bias": True,
    },
    "kinds of experts": {
        "kinds": (BlockKind(), BlockKind(experts=True), BlockKind()),
        "experts": replace(_EXPERTS, groups=4, groups_per_token=2, corrected=True, normalised=False, scale=16.0),
        "n_kv_heads": 4, "latent_attention": LatentSizes(0, 16, 8, 8),
    },
    "sinks, biases": {
        "num_layers": 2, "attention": "self", "sinks": True, "qkv_bias": True, "head_bias": True,
        "experts": Experts(8, 2, 32, bias=True, clamp=7.0), "kinds": (BlockKind(True, window=8), BlockKind(True)),
    },
    "norms without weights, weights before experts": {
        "num_layers": 2, "qk_norm": "rotated", "kinds": (BlockKind(experts=True), BlockKind(rotary=False)),
        "experts": Experts(8, 1, 32, shared_size=32, scoring="sigmoid", normalised=False, scales_input=True),
    },
    "branches beside each other, norms once rotated": {
        "activation": "relu2", "branch_norm": "beside", "qk_norm": "rotated_head", "norm": "layer_norm", "linear_bias": True,
        "kinds": _KINDS, "branch_scale": 0.5, "logit_scale": 0.25,
    },
    "branches of one norm without a bias": {
        "activation": "relu", "branch_norm": "shared", "norm": "layer_norm_no_bias", "n_kv_heads": 1, "tied_embeddings": True,
    },
    "gated linear attention, gates of attention": {
        "kinds": (BlockKind(linear=True), BlockKind(linear=True, experts=True), BlockKind(experts=True)), "experts": _EXPERTS,
        "delta": DeltaSizes(2, 4, 8, 12), "attention_gate": True, "seq_length": 512, "qk_norm": "head", "rotated_size": 8,
    },
    "gates of attention beside windows, norms around branches": {
        "kinds": (BlockKind(window=8), BlockKind(True, window=8), BlockKind(True, rotary=False)), "attention_gate": True,
        "experts": replace(_EXPERTS, scoring="sigmoid"), "branch_norm": "both", "qk_norm": "head", "embedding_scale": 8.0,
    },
    "sinks in blocks of several bases": {
        "attention": "self", "sinks": True, "branch_scale": 0.5, "tied_embeddings": True,
        "kinds": (BlockKind(rotary=False), BlockKind(window=8), BlockKind(rotary_base=2e4)),
    },
    "gated linear attention of one chunk, of heads alike": {
        "kinds": (BlockKind(linear=True), BlockKind(), BlockKind(linear=True)), "compute_dtype": "float32",
        "delta": DeltaSizes(4, 4, 8, 12, kernel=2, largest_beta=2.0, norm_epsilon=1e-5), "seq_length": 16,
    },
    "gated linear attention by channels, latent attention without rotation": {
        "kinds": (BlockKind(linear=True), BlockKind(rotary=False), BlockKind(linear=True)), "seq_length": 256, "n_kv_heads": 4,
        "delta": DeltaSizes(4, 4, 8, 12, channel_rank=6), "latent_attention": LatentSizes(0, 16, 8, 8),
    },
    "state-space layers of one group": {
        "kinds": (BlockKind(linear=True), BlockKind(linear=True, experts=True), BlockKind(rotary=False)), "experts": _EXPERTS,
        "state_space": StateSpaceSizes(4, 16, 1, 8), "seq_length": 192, "branch_scale": 0.5,
    },
    "state-space layers of groups, with biases": {
        "kinds": (BlockKind(linear=True),) * 3, "seq_length": 256,
        "state_space": StateSpaceSizes(4, 16, 2, 8, kernel=3, bias=True, least_step=0.001),
    },
    "state-space layers of one chunk": {
        "kinds": (BlockKind(linear=True), BlockKind(), BlockKind()), "compute_dtype": "float32",
        "state_space": StateSpaceSizes(4, 16, 4, 8, conv_bias=False), "seq_length": 48,
    },
    "blocks of one branch, experts without a gate": {
        "num_layers": 4, "experts": replace(_EXPERTS, scoring="sigmoid"), "state_space": StateSpaceSizes(4, 16, 2, 8),
        "activation": "relu2", "kinds": (
            BlockKind(linear=True, only="attention"), BlockKind(experts=True, only="feed_forward"),
            BlockKind(rotary=False, only="attention"), BlockKind(only="feed_forward"),
        ),
    },
    "an activation with weights": {
        "num_layers": 2, "activation": "xielu", "qk_norm": "head",
    },
    "an activation with frozen weights": {"num_layers": 1, "activation": "xielu", "lora": Lora(4, 8.0, False)},
    "experts of GPT": {"experts": _EXPERTS, "activation": "gelu", "norm": "layer_norm"},
    "norms without weights": {"norm": "layer_norm_no_weight", "branch_scale": 2.0},
    "keys that an indexer chooses": {
        "num_layers": 2, "n_kv_heads": 4, "latent_attention": LatentSizes(24, 16, 8, 8), "indexer": IndexerSizes(4, 16, 8),
        "second_token_weight": 0.3,
    },
    "keys that blocks share": {
        "num_layers": 4, "n_kv_heads": 4, "latent_attention": LatentSizes(24, 16, 8, 8), "indexer": IndexerSizes(4, 16, 8),
        "second_token_weight": 0.3, "kinds": (BlockKind(), BlockKind(), *[BlockKind(shares_choice=True)] * 2),
    },
    "keys that an indexer chooses for plain operators": {
        "num_layers": 1, "attention": "self", "n_kv_heads": 4, "latent_attention": LatentSizes(24, 16, 8, 8, pads_values=True),
        "indexer": IndexerSizes(4, 8, 128), "lora": Lora(4, 8.0, False),
    },
    "biases by distance, a norm of embeddings": {
        "num_layers": 2, "num_heads": 6, "n_kv_heads": 3, "seq_length": 200, "position": "distance", "norm": "layer_norm",
        "linear_bias": True, "qkv_bias": True, "activation": "gelu", "tied_embeddings": True, "embedding_norm": True,
    },
    "biases by distance, a normed head": {"num_layers": 1, "position": "distance", "normed_head": True, "head_bias": True},
    "a frozen bias of the head": {"num_layers": 1, "head_bias": True, "lora": Lora(4, 8.0, False)},
    "a gate, one group": {
        "num_layers": 1, "second_token_weight": 0.3,
        "experts": replace(_EXPERTS, shared_gate=True, scoring="sigmoid", scale=2.8),
    },
}  # fmt: skip


@pytest.mark.parametrize("parts", _PARTS.values(), ids=_PARTS)
def test_every_part_captures_to_the_same_graph(parts: dict[str, Any]) -> None:
    pytest.importorskip("mindspore")
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    config = replace(PUBLISHED["llama3_8b"], **_TINY | parts)
    assert capture(*flat(build(config))) == build_graph(config)


@pytest.mark.parametrize(("name", "num_layers"), [("llama3_8b", 11), ("deepseek_v3", 5)])
def test_shared_blocks_capture_to_the_same_graph(name: str, num_layers: int) -> None:
    pytest.importorskip("mindspore")
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    config = dimensions_of(name, num_layers=num_layers, lazy_inline=True)
    assert capture(*flat(build(config))) == build_graph(config)


def flat(built: tuple) -> tuple:
    cell, inputs = built
    return cell, *inputs


def test_operators_come_after_what_they_need() -> None:
    graph = build_graph(dimensions_of("bert_large"))
    seen: set[str] = set()
    for op in graph.ops:
        assert {s.op for s in graph.tensor_inputs(op) if hasattr(s, "op")} <= seen
        seen.add(op.name)


def test_every_layer_is_one_block() -> None:
    graph = build_graph(dimensions_of("llama2_13b"))
    blocks = {op.block for op in graph.ops if op.block is not None}
    assert blocks == {f"layers.{layer}" for layer in range(40)}
    sizes = {block: sum(op.block == block for op in graph.ops) for block in blocks}
    assert len(set(sizes.values())) == 1
