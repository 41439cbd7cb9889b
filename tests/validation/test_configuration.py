import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.errors import InputError
from ms_symtensor.validation.configuration import (
    ALL,
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    Configuration,
    Experts,
    Part,
    Recomputation,
    Transformer,
    in_parts,
)

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


@given(layers=st.integers(1, 200), stages=st.integers(1, 64))
def test_stages_hold_all_layers_and_differ_by_one_at_most(layers: int, stages: int) -> None:
    model = dataclasses.replace(MODEL, num_layers=layers)
    if stages > layers:
        with pytest.raises(InputError, match=f"{layers} blocks are too few for {stages} pipeline stages"):
            Configuration(model, 128, pipeline_stages=stages)
        return
    on_stages = Configuration(model, 128, pipeline_stages=stages).stage_layers
    assert sum(on_stages) == layers
    assert len(on_stages) == stages
    assert max(on_stages) - min(on_stages) <= 1


def test_given_layers_must_be_all_of_them() -> None:
    assert Configuration(MODEL, 128, pipeline_stages=2, layers_on_stage=(17, 15)).stage_layers == (17, 15)
    with pytest.raises(InputError, match="does not put 32 blocks on 2 stages"):
        Configuration(MODEL, 128, pipeline_stages=2, layers_on_stage=(17, 16))


def test_recomputed_blocks_of_a_stage() -> None:
    assert NO_RECOMPUTATION.on_stage(3, 8) == 0
    assert FULL_RECOMPUTATION.on_stage(3, 8) == 8
    assert Recomputation(blocks=(6, 2, ALL)).on_stage(1, 4) == 2
    assert Recomputation(blocks=(6, 2, ALL)).on_stage(2, 4) == 4
    assert Recomputation(blocks=(6,)).on_stage(1, 4) == 4


def test_parts_are_recomputed_in_the_other_blocks_of_a_stage() -> None:
    recomputation = Recomputation(blocks=(3, 0), parts=in_parts(Part.NORM, blocks=(9, 2)))
    assert [recomputation.part_on_stage(Part.NORM, stage, 8) for stage in (0, 1)] == [5, 2]
    assert recomputation.part_on_stage(Part.GATHERS, 0, 8) == 0


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
        ({"data_parallel": 0}, "data_parallel is 0; it must be at least 1"),
        ({"model_parallel": 3}, "32 heads do not divide by model_parallel 3"),
        ({"expert_parallel": 2}, "1 experts do not divide by expert_parallel 2"),
        ({"head_stage": 1}, "head_stage 1 of 1 pipeline stages"),
        ({"recomputation": Recomputation(blocks=(1, 2))}, "recomputation of 2 stages, not of 1"),
        (
            {"recomputation": Recomputation(parts=in_parts(Part.NORM, blocks=(1, 2)))},
            "recomputation of 2 stages, not of 1",
        ),
    ],
)
def test_impossible_configurations(change: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Configuration(MODEL, 128, **change)


def test_impossible_models() -> None:
    with pytest.raises(InputError, match="32 heads do not divide by 5 key-value heads"):
        dataclasses.replace(MODEL, n_kv_heads=5)
    with pytest.raises(InputError, match="num_layers is 0"):
        dataclasses.replace(MODEL, num_layers=0)
    with pytest.raises(InputError, match="top_k 9 of 8 experts"):
        Experts(num_experts=8, top_k=9, intermediate_size=64)
