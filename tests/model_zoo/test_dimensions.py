import subprocess
import sys
from dataclasses import replace

import pytest

from model_zoo import FACTORIES, PUBLISHED, dimensions_of
from model_zoo.config import Experts, TransformerConfig
from ms_symtensor.errors import InputError


def test_head_dim_follows_from_hidden_size() -> None:
    assert dimensions_of("llama2_7b").head_dim == 128
    assert dimensions_of("gpt2_xl").head_dim == 64
    assert dimensions_of("llama3_8b").kv_size == 1024


def test_sequence_defaults_to_what_the_network_can_take() -> None:
    short = {"gpt2_xl": 1024, "bert_large": 512}
    assert {name: dimensions_of(name).seq_length for name in PUBLISHED} == dict.fromkeys(PUBLISHED, 4096) | short


def test_options_replace_only_what_they_name() -> None:
    config = dimensions_of("llama2_7b", num_layers=2, seq_length=128, batch_size=4, attention="self")
    assert (config.num_layers, config.seq_length, config.batch_size, config.attention) == (2, 128, 4, "self")
    assert config.intermediate_size == 11008 and dimensions_of("llama2_7b").num_layers == 32


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError, match="unknown model 'llama9': give .*llama2_7b, .*llama2_13b, .*llama3_8b, .*llama2_70b"
    ):
        dimensions_of("llama9")


def test_too_long_a_sequence_is_refused_where_positions_are_learned() -> None:
    with pytest.raises(InputError, match=r"gpt2_xl has 1024 learned positions.*use at most 1024"):
        dimensions_of("gpt2_xl", seq_length=4096)
    assert dimensions_of("llama2_7b", seq_length=8192).seq_length == 8192


@pytest.mark.parametrize("option", [{"num_layers": 0}, {"batch_size": 0}, {"seq_length": -1}])
def test_sizes_below_one_are_refused(option: dict[str, int]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(option))} is .* at least 1"):
        dimensions_of("llama2_7b", **option)  # type: ignore[arg-type]  # mypy cannot match a dict to the parameters


def test_more_layers_than_any_network_has_are_refused() -> None:
    with pytest.raises(InputError, match=r"num_layers is 1025; it must be at most 1024: the graph holds every block"):
        dimensions_of("llama2_7b", num_layers=1025)


def test_more_tokens_than_numbers_of_64_bits_count_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"batch_size 16 times seq_length 100000000000000000000 is more than 17179869184 tokens"
    ):
        dimensions_of("llama2_7b", seq_length=10**20)


@pytest.mark.parametrize("rank", [0, 4097])
def test_adapters_have_a_rank_up_to_the_hidden_size(rank: int) -> None:
    with pytest.raises(
        InputError, match=f"the rank of lora is {rank}; it must be at least 1, and at most the hidden size, 4096"
    ):
        dimensions_of("llama2_7b", lora=rank)


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(InputError, match="unknown attention 'sparse'"):
        dimensions_of("llama2_7b", attention="sparse")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(InputError, match="unknown compute_dtype 'int8'; known: bfloat16, float16, float32"):
        dimensions_of("llama2_7b", compute_dtype="int8")


def test_every_published_network_has_a_factory() -> None:
    assert set(FACTORIES) == set(PUBLISHED)
    assert all(isinstance(config, TransformerConfig) for config in PUBLISHED.values())


def test_planning_side_works_without_mindspore() -> None:
    program = (
        "import sys; sys.modules['mindspore'] = None\n"
        "import model_zoo, model_zoo.builder, model_zoo.megatron\n"
        "graph = model_zoo.builder.build_graph(model_zoo.dimensions_of('llama2_7b', num_layers=1))\n"
        "print(len(graph.ops))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(result.stdout) > 50


def test_an_expert_has_room_for_more_than_its_share() -> None:
    experts = Experts(number=8, per_token=2, intermediate_size=1)
    assert experts.places(4096) == 1136  # 1.1 times 1024 tokens, and the empty place, in rows of 16
    assert replace(experts, load_imbalance=1.0).places(4096) == 1040
    assert replace(experts, load_imbalance=100.0).places(64) == 80  # never more than all tokens of the sample
    assert replace(experts, token_groups=8).places(512) == 142  # eight groups have a multiple of 16 rows together
    assert replace(experts, dropless=True).places(4096) == 4112  # all tokens and the empty place


def test_what_is_asked_of_experts() -> None:
    assert dimensions_of("mixtral_8x7b") == PUBLISHED["mixtral_8x7b"]
    dropless = dimensions_of("mixtral_8x7b", experts="dropless").experts
    assert dropless is not None and dropless.dropless
    fuller = dimensions_of("mixtral_8x7b", load_imbalance=1.5).experts
    assert fuller is not None and fuller.load_imbalance == 1.5
    with pytest.raises(InputError, match="llama2_7b has no experts"):
        dimensions_of("llama2_7b", load_imbalance=1.5)
    with pytest.raises(InputError, match="llama2_7b has no experts: leave token_groups out"):
        dimensions_of("llama2_7b", token_groups=2)
    with pytest.raises(InputError, match="give one of both"):
        dimensions_of("mixtral_8x7b", experts="dropless", load_imbalance=1.5)
    for number in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="load_imbalance is .*: give a number above 0"):
            dimensions_of("mixtral_8x7b", load_imbalance=number)
