"""Floating-point operations of a model, against what its dims say."""

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cost.flops import model_flops
from ms_symtensor.program.meanings import meanings

SHORT = {"num_layers": 2, "seq_length": 128, "batch_size": 1}


def flops(**options):
    graph = build_graph(dimensions_of("llama2_7b", **SHORT, **options))
    return model_flops(graph, meanings(graph))


def test_products_with_weights_that_train_count_three_times():
    in_products = 2 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000
    assert flops() == pytest.approx(6 * 128 * in_products, rel=0.01)  # attention takes the rest


def test_products_with_frozen_weights_count_twice():
    assert flops(lora=1) == pytest.approx(2 / 3 * flops(), rel=0.01)
