import dataclasses

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.validation.configuration import Configuration, Experts, Transformer

MODEL = Transformer(
    hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=8, intermediate_size=14336, vocab_size=128256
)

MIXTURE = dataclasses.replace(MODEL, experts=Experts(num_experts=8, top_k=2, intermediate_size=1024))


def test_devices_and_tokens_are_products() -> None:
    spread = Configuration(
        MODEL, 4096, data_parallel=4, model_parallel=2, context_parallel=2, pipeline_stages=8,
        micro_batch_size=3, micro_batch_num=16,
    )  # fmt: skip
    assert spread.device_num == 128
    assert spread.global_batch_size == 4 * 3 * 16
    assert spread.tokens == 4 * 3 * 16 * 4096


def test_head_dim_is_hidden_over_heads_unless_given() -> None:
    assert MODEL.head_dim == 128
    assert dataclasses.replace(MODEL, head_dim=64).head_dim == 64


def test_ranks_that_cut_an_expert() -> None:
    spread = dataclasses.replace(
        Configuration(MIXTURE, 128, data_parallel=2, model_parallel=4), expert_parallel=8, expert_model_parallel=1
    )
    assert spread.expert_parallel * spread.ranks_of_an_expert == spread.device_num
    assert Configuration(MIXTURE, 128, data_parallel=2, model_parallel=4).ranks_of_an_expert == 4
    with pytest.raises(InputError, match="expert_parallel 8 x expert_model_parallel 4 does not divide the 8 devices"):
        dataclasses.replace(spread, expert_model_parallel=4)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_parallel": 3}, "32 heads do not divide by model_parallel 3"),
        ({"expert_parallel": 2}, "1 experts do not divide by expert_parallel 2"),
        ({"pipeline_stages": 33}, "32 blocks are too few for 33 pipeline stages"),
        ({"pipeline_stages": 2, "layers_on_stage": (17, 16)}, "does not put 32 blocks on 2 stages"),
    ],
)
def test_impossible_configurations(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Configuration(MODEL, 128, **change)


def test_impossible_models() -> None:
    with pytest.raises(InputError, match="32 heads do not divide by 5 key-value heads"):
        Transformer(4096, 32, 32, 5, 14336, 128256)
    with pytest.raises(InputError, match="num_layers is 0"):
        Transformer(4096, 0, 32, 8, 14336, 128256)
    with pytest.raises(InputError, match="top_k 9 of 8 experts"):
        Experts(num_experts=8, top_k=9, intermediate_size=64)
