"""Parameters on a device, against the sizes that models are published with."""

import numpy as np
import pytest

from ms_symtensor.cost.configuration import Configuration, Experts, LatentAttention, Transformer
from ms_symtensor.cost.network import Network
from ms_symtensor.cost.shapes import shapes_of

# huggingface.co, config.json of each; vocabularies are filled up to a multiple of 128 times the tensor ranks
LLAMA2_7B = Transformer(4096, 32, 32, 32, 11008, 32000)
LLAMA3_8B = Transformer(4096, 32, 32, 8, 14336, 128256)
GPT2_XL = Transformer(
    1600, 48, 25, 25, 6400, 50257, gated=False, norm="layer_norm", position="learned", linear_bias=True, qkv_bias=True,
    tied_embeddings=True,
)  # fmt: skip
MIXTRAL = Transformer(4096, 32, 32, 8, 14336, 32000, experts=Experts(8, 2, 14336))
DEEPSEEK_V3 = Transformer(
    7168, 61, 128, 128, 18432, 129280, head_dim=128, experts=Experts(256, 8, 2048, 1, 3),
    latent_attention=LatentAttention(1536, 512, 64, 128, 128),
)  # fmt: skip


def on_all_stages(**spread):
    network = Network(shapes_of([Configuration(seq_length=1024, **spread)]))
    shared = network.on_stages(tuple(e.shared for e in network.elements)).sum()
    return shared, network.on_stages(tuple(e.of_experts for e in network.elements)).sum()


@pytest.mark.parametrize(
    "model, published",
    [(LLAMA2_7B, 6.738e9), (LLAMA3_8B, 8.030e9), (GPT2_XL, 1.558e9), (MIXTRAL, 46.70e9), (DEEPSEEK_V3, 671.0e9)],
)
def test_a_whole_model_has_its_published_size(model, published):
    assert sum(on_all_stages(model=model)) == pytest.approx(published, rel=2e-3)


def test_stages_hold_the_model_once():
    whole = sum(on_all_stages(model=LLAMA2_7B))
    assert sum(on_all_stages(model=LLAMA2_7B, pipeline_stages=4)) == pytest.approx(whole)


def test_tensor_ranks_share_all_but_norms_and_experts_ranks_the_experts():
    norms = 65 * 4096
    whole, cut = (on_all_stages(model=LLAMA2_7B, model_parallel=t)[0] for t in (1, 8))
    assert cut == pytest.approx((whole - norms) / 8 + norms, rel=1e-3)
    whole, cut = (on_all_stages(model=MIXTRAL, data_parallel=8, expert_parallel=e)[1] for e in (1, 8))
    assert cut == pytest.approx(whole / 8)


def test_a_tied_table_is_held_by_the_first_and_the_last_stage():
    alone, apart = (sum(on_all_stages(model=GPT2_XL, pipeline_stages=p)) for p in (1, 2))
    assert apart - alone == pytest.approx(-(-50257 // 128) * 128 * 1600)


def test_places_on_stages():
    spread = Configuration(DEEPSEEK_V3, 1024, pipeline_stages=4, head_stage=2)
    counts = Network(shapes_of([spread])).counts[:, 0]
    np.testing.assert_array_equal(counts, [[1, 0, 0, 0], [3, 0, 0, 0], [13, 15, 15, 15], [0, 0, 1, 0]])
