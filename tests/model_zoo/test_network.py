import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from model_zoo import FACTORIES, PUBLISHED
from model_zoo.config import (
    BlockKind,
    DeltaSizes,
    Experts,
    IndexerSizes,
    LatentSizes,
    Lora,
    StateSpaceSizes,
    TransformerConfig,
)
from model_zoo.delta import ChunkedKeys, DeltaRule, GatedNorm
from model_zoo.network import build, optimizer
from model_zoo.state_space import GroupedNorm
from ms_symtensor.bridge.proof.attention_definition import FlashAttention
from ms_symtensor.bridge.proof.definitions import Product
from tests.model_zoo.reference import Reference
from tests.model_zoo.routing import RouterDefinition


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_primitive_object_serves_two_operators(name: str) -> None:
    cell, _ = FACTORIES[name](num_layers=2, attention="self")
    owners = Counter(
        id(value)
        for _, part in cell.cells_and_names()
        for value in {**vars(part), **part.__dict__.get("_primitives", {})}.values()
        if isinstance(value, ops.Primitive)
    )
    assert owners and set(owners.values()) == {1}


def test_full_size_network_holds_no_weights() -> None:
    cell, inputs = FACTORIES["llama2_13b"]()
    weights = cell.trainable_params()
    assert sum(math.prod(p.shape) for p in weights) == 13_015_864_320
    assert all(p.has_init for p in weights)
    assert [(tuple(t.shape), t.dtype) for t in inputs] == [((16, 4096), ms.int32)] * 2 + [((16, 4096), ms.float32)]


def test_optimizer_keeps_float32_states_and_spares_norms_and_biases() -> None:
    cell, _ = FACTORIES["gpt2_xl"](num_layers=1)
    adam = optimizer(cell.trainable_params())
    states = [*adam.moments1, *adam.moments2]
    assert len(states) == 2 * len(cell.trainable_params()) and {s.dtype for s in states} == {ms.float32}
    spared = {p.name for p, decay in zip(adam.group_params, adam.weight_decay, strict=True) if not float(decay)}
    assert all(len(p.shape) <= 1 for p in adam.group_params if p.name in spared)
    assert {"norm.gamma", "norm.beta", "layers.0.attention.query.bias"} <= spared
    assert "word_embedding.table" not in spared


SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": 50,
    "max_position_embeddings": 16,
    "seq_length": 6,
    "batch_size": 3,
    "compute_dtype": "float32",
}


_ROTARY = replace(PUBLISHED["llama3_8b"], **SMALL, attention="self", n_kv_heads=2, norm="layer_norm")
PARTS = {
    "windows, other bases, no rotation, a part of a head rotated, norms of projections and after": replace(
        _ROTARY, name="windows", num_layers=3, rotated_size=4, qk_norm="projection", output_bias=True, branch_norm="after",
        kinds=(BlockKind(window=3), BlockKind(rotary=False), BlockKind(window=2, rotary_base=9.0)),
    ),
    "caps, GeGLU, four norms": replace(
        _ROTARY, name="four_norms", activation="geglu", branch_norm="both", score_cap=0.5, logit_cap=1.0,
        embedding_scale=4.0, score_size=32,
    ),
    "branches beside each other, norms once rotated": replace(
        _ROTARY, name="beside", activation="relu2", branch_norm="beside", qk_norm="rotated_head", rotated_size=4,
        linear_bias=True, qkv_bias=True, branch_scale=0.5, logit_scale=0.25,
    ),
    "an activation with weights": replace(_ROTARY, name="xielu", activation="xielu", qk_norm="head"),
    "branches of one norm without a bias": replace(
        _ROTARY, name="shared", norm="layer_norm_no_bias", activation="relu", branch_norm="shared", tied_embeddings=True,
    ),
    "keys that an indexer chooses": replace(
        _ROTARY, name="sparse", n_kv_heads=4, head_dim=12, latent_attention=LatentSizes(16, 10, 4, 6),
        indexer=IndexerSizes(16, 8, 3), seq_length=9,
    ),
    "keys that blocks share": replace(
        _ROTARY, name="shares", n_kv_heads=4, head_dim=12, latent_attention=LatentSizes(16, 10, 4, 6), num_layers=3,
        indexer=IndexerSizes(16, 8, 3), seq_length=9, kinds=(BlockKind(), BlockKind(shares_choice=True), BlockKind()),
    ),
    "norms without weights": replace(_ROTARY, name="no_weight", norm="layer_norm_no_weight", branch_scale=2.0),
}  # fmt: skip


# MindSpore has no RmsNorm kernel for CPU, so rotary decoders run with LayerNorm here; BatchMatMul does not broadcast there,
# and is defined by what does.
@pytest.mark.parametrize(
    "config",
    [
        replace(PUBLISHED["llama3_8b"], **SMALL, attention="self", n_kv_heads=2, norm="layer_norm"),
        replace(PUBLISHED["qwen3_32b"], **SMALL, attention="self", n_kv_heads=2, norm="layer_norm"),
        replace(
            PUBLISHED["qwen_7b_lora"],
            **SMALL,
            attention="self",
            n_kv_heads=4,
            norm="layer_norm",
            lora=Lora(2, 3.0, True),
        ),
        *PARTS.values(),
        replace(PUBLISHED["gpt2_xl"], **SMALL, attention="self", n_kv_heads=4),
        replace(PUBLISHED["bert_large"], **SMALL, attention="self", n_kv_heads=4),
    ],
    ids=lambda config: config.name,
)
def test_loss_is_what_the_definition_gives(config: TransformerConfig) -> None:
    cell, _ = build(config)
    _assert_loss(config, cell)


class Flash(ms.nn.Cell):
    """Flash attention with a causal mask, which MindSpore has not on CPU, from plain operators."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        seen = np.tril(np.ones((config.seq_length, config.seq_length), bool))
        scale = 1.0 / math.sqrt(config.score_size or config.head_dim)
        self.of = FlashAttention("BSND", config.num_heads, scale, seen, False)

    def construct(self, query: Any, key: Any, value: Any, *others: Any) -> Any:
        return self.of(query, key, value)


@pytest.mark.parametrize("seq_length", [6, 140])
def test_loss_with_biases_by_distance_is_what_the_definition_gives(seq_length: int) -> None:
    biased = SMALL | {"num_heads": 6, "n_kv_heads": 3, "seq_length": seq_length, "attention": "flash"}
    config = replace(
        PUBLISHED["llama3_8b"], **biased, position="distance", norm="layer_norm", embedding_norm=True, normed_head=True
    )
    cell, _ = build(config)
    _define(cell, "flash_attention", lambda: Flash(config))
    _define(cell, "widen", lambda: Product(False, False))
    _assert_loss(config, cell)


def _define(cell: Any, primitive: str, definition: Callable[[], Any]) -> None:
    """Have every cell that has `primitive` call a definition of it."""
    for _, part in cell.cells_and_names():
        if primitive in part.__dict__.get("_primitives", {}):
            del part._primitives[primitive]
            setattr(part, primitive, definition())


def _assert_loss(config: TransformerConfig, cell: Any) -> None:
    for number, parameter in enumerate(cell.get_parameters()):
        values = np.random.default_rng(number).normal(0.0, 0.3, parameter.shape).astype(np.float32)
        parameter.set_data(ms.Tensor(values))
    of_samples = ("matmul_gate", "matmul_up", "matmul_down") if config.experts and config.experts.by_sample else ()
    for broadcast in ("swap_halves", "sum_decays", *of_samples):
        _define(cell, broadcast, lambda: Product(False, False))
    _define(cell, "score", lambda: Product(False, True))
    inputs = _inputs(config)
    ms.set_context(mode=ms.GRAPH_MODE)
    loss = float(cell(*(ms.Tensor(array) for array in inputs)).asnumpy())
    weights = {p.name: p.asnumpy().astype(np.float64) for p in cell.get_parameters()}
    assert loss == pytest.approx(Reference(config, weights).loss(*inputs), rel=1e-4)


class RootNorm(nn.Cell):
    """x / sqrt(mean(x^2) + epsilon) gamma, for the first of two results."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def construct(self, x: Any, gamma: Any) -> Any:
        return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + self.epsilon) * gamma, None


@pytest.mark.parametrize(
    ("tokens", "delta"),
    [
        (32, DeltaSizes(2, 4, 6, 10, chunk=4, norm_epsilon=0.1)),  # eight chunks: steps are joined twice
        (16, DeltaSizes(2, 2, 6, 10, kernel=2, chunk=8, largest_beta=2.0)),
        (8, DeltaSizes(1, 3, 6, 10)),
        (32, DeltaSizes(2, 2, 6, 10, chunk=4, channel_rank=5)),
        (16, DeltaSizes(2, 2, 6, 10, channel_rank=3)),
    ],
    ids=["eight chunks", "two chunks", "one chunk", "channels of eight chunks", "channels of one chunk"],
)
def test_gated_linear_attention_is_what_the_definition_gives(tokens: int, delta: DeltaSizes) -> None:
    kinds = (BlockKind(linear=True), BlockKind())
    config = replace(_ROTARY, **SMALL | {"seq_length": tokens}, delta=delta, attention_gate=True, kinds=kinds)
    cell, _ = build(config)
    for _, part in cell.cells_and_names():
        if isinstance(part, ChunkedKeys | GatedNorm):
            epsilon = part._primitives.pop("norm").epsilon
            part.norm = RootNorm(epsilon)
    _assert_loss(config, cell)


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [
        (20, StateSpaceSizes(4, 6, 1, 10, chunk=4)),
        (16, StateSpaceSizes(4, 6, 2, 10, kernel=2, chunk=8, bias=True, least_step=0.7)),
        (7, StateSpaceSizes(3, 6, 3, 10, conv_bias=False)),
    ],
    ids=["five chunks of one group", "two chunks of groups", "one chunk"],
)
def test_state_space_layers_are_what_the_definition_gives(tokens: int, sizes: StateSpaceSizes) -> None:
    kinds = (BlockKind(linear=True), BlockKind())
    config = replace(_ROTARY, **SMALL | {"seq_length": tokens}, state_space=sizes, kinds=kinds)
    cell, _ = build(config)
    for _, part in cell.cells_and_names():
        if isinstance(part, GroupedNorm):
            part.norm = RootNorm(part._primitives.pop("norm").epsilon)
    for primitive, flags in (("attend", (False, True)), ("write", (True, False)), ("read_state", (False, False))):
        _define(cell, primitive, lambda flags=flags: Product(*flags))  # keys of one group are broadcast
    _assert_loss(config, cell)


@pytest.mark.parametrize("rank", [0, 3])
def test_strong_decay_has_no_exponent_above_zero(rank: int) -> None:
    delta = DeltaSizes(2, 2, 6, 10, chunk=16, channel_rank=rank)
    config = replace(_ROTARY, **SMALL | {"seq_length": 32}, delta=delta, kinds=(BlockKind(linear=True),) * 2)
    rule = DeltaRule(config, delta)
    _define(rule, "sum_decays", lambda: Product(False, False))
    shape = (1, 2, 2, 16)
    ones, decay = (
        ms.ops.ones((*shape, 6)),
        ms.ops.full((1, 2, 6, 32) if rank else (1, 2, 32, 1), -1e4, dtype=ms.float32),
    )
    out = rule(ones, ones, ms.ops.ones((*shape, 10)), ms.ops.ones((1, 2, 32, 1)), decay).asnumpy()
    assert out == pytest.approx(6.0)  # nothing of earlier tokens is left: q k^T v of each by itself


ROUTED: dict[str, Any] = SMALL | {"seq_length": 40, "attention": "self", "norm": "layer_norm", "num_layers": 2}
EXPERTS = Experts(number=4, per_token=2, intermediate_size=24, load_imbalance=0.7)  # some tokens are dropped


@pytest.mark.parametrize(
    "config",
    [
        replace(PUBLISHED["mixtral_8x7b"], **ROUTED, n_kv_heads=2, experts=replace(EXPERTS, token_groups=2)),
        replace(PUBLISHED["mixtral_8x7b"], **ROUTED, n_kv_heads=2, experts=replace(EXPERTS, dropless=True)),
        replace(PUBLISHED["mixtral_8x7b"], **ROUTED, n_kv_heads=2, experts=replace(EXPERTS, by_sample=True)),
        replace(
            PUBLISHED["deepseek_v3"], **ROUTED, n_kv_heads=4, dense_layers=1,
            latent_attention=LatentSizes(12, 10, 4, 6, pads_values=True),
            experts=replace(EXPERTS, shared_size=20, scoring="sigmoid", groups=2, groups_per_token=1, scale=2.5),
        ),
        replace(
            PUBLISHED["deepseek_v3"], **ROUTED, name="deepseek_v2", n_kv_heads=4, second_token_weight=0.0,
            kinds=(BlockKind(experts=True), BlockKind()), latent_attention=LatentSizes(0, 10, 4, 6),
            experts=replace(EXPERTS, shared_size=20, groups=2, normalised=False, scale=16.0),
        ),
        replace(
            PUBLISHED["mixtral_8x7b"], **ROUTED, name="gpt_oss", n_kv_heads=2, sinks=True, qkv_bias=True, output_bias=True,
            head_bias=True, kinds=(BlockKind(experts=True, window=3), BlockKind(experts=True)),
            experts=replace(EXPERTS, bias=True, clamp=0.5, corrected=True),
        ),
        replace(
            PUBLISHED["mixtral_8x7b"], **ROUTED, name="llama4", n_kv_heads=2,
            experts=replace(
                EXPERTS, per_token=1, shared_size=20, shared_gate=True, scoring="sigmoid", normalised=False,
                scales_input=True,
            ),
        ),
        replace(
            PUBLISHED["mixtral_8x7b"], **ROUTED | {"num_layers": 3}, name="nemotron_h", n_kv_heads=2, activation="relu2",
            kinds=(
                BlockKind(experts=True, only="feed_forward"), BlockKind(rotary=False, only="attention"),
                BlockKind(only="feed_forward"),
            ),
            experts=replace(EXPERTS, shared_size=20, scoring="sigmoid"),
        ),
    ],
    ids=lambda config: config.name,
)  # fmt: skip
def test_loss_with_experts_is_what_the_definition_gives(config: TransformerConfig) -> None:
    cell, _ = build(config)
    _define(cell, "route", RouterDefinition)
    _assert_loss(config, cell)


def _inputs(config: TransformerConfig) -> list[Any]:
    random = np.random.default_rng(0)
    shape = (config.batch_size, config.seq_length)
    arrays = [random.integers(0, config.vocab_size, shape)]
    if config.position == "learned":
        arrays.append(np.tile(np.arange(config.seq_length), (config.batch_size, 1)))
    if config.type_vocab_size:
        arrays.append(random.integers(0, config.type_vocab_size, shape))
    arrays.append(random.integers(0, config.vocab_size, shape))
    inputs = [array.astype(np.int32) for array in arrays] + [random.integers(0, 2, shape).astype(np.float32)]
    if config.second_token_weight:
        inputs += [random.integers(0, config.vocab_size, shape).astype(np.int32), np.ones(shape, np.float32)]
    return inputs
