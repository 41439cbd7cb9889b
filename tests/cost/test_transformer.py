"""The operators of a transformer as validation prices them, against the operator graph that the model zoo builds of it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.configuration import Bytes, Configuration, Experts, LatentAttention, Transformer
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.operator import evaluate, summed_dims
from ms_symtensor.cost.shapes import shapes_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Unit, view

BATCH, SEQUENCE = 2, 1024
CAPACITY, CAPACITY_OF_MANY = 1.125, 1.5  # of one of 8 and of 256 experts in the zoo, over its mean share of the tokens
LLAMA3_8B = Transformer(4096, 32, 32, 8, 14336, 128256)
LLAMA2_7B = Transformer(4096, 32, 32, 32, 11008, 32000)
GPT2_XL = Transformer(
    1600, 48, 25, 25, 6400, 50257, gated=False, norm="layer_norm", position="learned", linear_bias=True, qkv_bias=True,
    tied_embeddings=True,
)  # fmt: skip
MIXTRAL = Transformer(4096, 32, 32, 8, 14336, 32000, experts=Experts(8, 2, 14336, imbalance=CAPACITY))
DEEPSEEK_V3 = Transformer(
    7168, 61, 128, 128, 18432, 129280, experts=Experts(256, 8, 2048, 1, 3, CAPACITY_OF_MANY),
    latent_attention=LatentAttention(1536, 512, 64, 128, 128),
)  # fmt: skip


def of_graph(name: str) -> Counter:
    """Forward FLOPs of products and of fused attention, and elements of all weights."""
    config = dimensions_of(name, batch_size=BATCH, seq_length=SEQUENCE)
    graph = build_graph(replace(config, second_token_weight=0.0))
    cluster, found = load("atlas_800t_a2"), Counter()
    for op in graph.ops:
        if op.primitive == "swap_halves":
            continue  # a permutation, for what the other side prices as the fused rotary kernel
        seen = view(graph, op)
        rule = signature(seen)
        if rule.unit is Unit.CUBE:
            kind = "products" if summed_dims(rule) else "attention"
            found[kind] += float(evaluate(seen, rule, 0, [{}], cluster).forward_flops[0])
    found["weights"] = sum(int(np.prod(parameter.type.shape)) for parameter in graph.parameters)
    return found


def of_operators(model: Transformer) -> Counter:
    row = Configuration(model, SEQUENCE, micro_batch_size=BATCH, framework="mindspore", padded_vocabulary=False)
    network, found = Network(shapes_of([row])), Counter()
    for place, count in zip(network.places, network.counts[:, 0, 0], strict=True):
        for work in place.forward:
            found["products"] += float(np.sum(2 * work.points * work.depth * work.times * count))
            found["attention"] += float(np.sum(work.flops * work.times * count))
    elements = tuple(e.shared + e.of_experts for e in network.elements)
    found["weights"] = float(network.on_stages(elements).sum())
    return found


@pytest.mark.parametrize(
    "name, model",
    [
        ("llama2_7b", LLAMA2_7B),
        ("llama3_8b", LLAMA3_8B),
        ("gpt2_xl", GPT2_XL),
        ("mixtral_8x7b", MIXTRAL),
        ("deepseek_v3", DEEPSEEK_V3),
    ],
)
def test_products_attention_and_weights_are_those_of_the_graph(name, model):
    assert of_operators(model) == pytest.approx(of_graph(name), rel=2e-3)


@pytest.mark.parametrize("imbalance", [0.5, 1.0, 1.5])
def test_as_many_tokens_are_sent_to_experts_as_these_compute(imbalance):
    model = replace(MIXTRAL, experts=Experts(8, 2, 14336, imbalance=imbalance))
    row = Configuration(model, SEQUENCE, data_parallel=8, expert_parallel=8)
    _, _, block, _ = Network(shapes_of([row])).places
    sent_B = sum(t.size_B * t.times for t in block.sent if t.kind is Collective.ALL_TO_ALL)
    computed = sum(w.points * w.times for w in block.forward if w.name == "experts down forward")
    assert sent_B == pytest.approx(2 * 2 * computed)  # there and back, of two bytes


def added_apart(row: Configuration) -> tuple[np.ndarray, np.ndarray]:
    """Elements of the gradients of each stage's parameters, and those that are added to the step's in operators of their own."""
    network = Network(shapes_of([row]))
    moved_B = [
        sum(w.traffic_B * w.times for w in p.backward if w.name == "accumulated gradients") for p in network.places
    ]
    of_one_B = 2 + 2 * row.bytes_per_parameter.gradient  # a gradient of the micro-batch, and the sum read and written
    weights = network.on_stages(tuple(e.shared for e in network.elements))
    return weights, network.on_stages(tuple(moved_B)) / of_one_B


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("framework", ["nanotron", "mindspeed", "mindspore"])
def test_the_gradient_of_every_parameter_is_added_once(tied, stages, framework):
    model = replace(LLAMA2_7B, tied_embeddings=tied)
    row = Configuration(
        model, SEQUENCE, pipeline_stages=stages, micro_batch_num=2, framework=framework, fused_gradient_sums=False,
        bytes_per_parameter=Bytes(gradient=4 if framework == "nanotron" else 2),
    )  # fmt: skip
    np.testing.assert_allclose(*added_apart(row))


def test_products_add_the_gradients_of_their_weights_themselves_but_an_embedding_cannot():
    row = Configuration(LLAMA2_7B, SEQUENCE, framework="mindspeed")
    assert added_apart(row)[1] == LLAMA2_7B.vocab_size * LLAMA2_7B.hidden_size


def test_mindspore_adds_nothing_up_where_a_step_has_a_single_micro_batch():
    assert not added_apart(Configuration(LLAMA2_7B, SEQUENCE, framework="mindspore"))[1].any()
