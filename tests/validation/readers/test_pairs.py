import pytest

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import ALL, Part
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers.published import published_model

ROW = {
    "id": 20, "model": "Llama2-7B", "n_devices": 8, "seq_len": 4096,
    "better_config": "DP4 PP2 dist-opt, no recompute, gbs256", "better_value": 4241, "worse_config": "TP8 mbs4 gbs16",
    "worse_value": 2884, "unit": "tok/s/p", "speedup": 1.471, "confidence": "B", "comment": "Jan -> Apr 2024",
    "source": "MG|llama2-7b|8|4096",
}  # fmt: skip


def test_words(read_rows) -> None:
    (pair,) = read_rows(ROW).pairs
    assert (pair.line, pair.confidence, pair.by_memory) == (2, "B", False)
    better, worse = pair.better, pair.worse
    assert (better.data_parallel, better.pipeline_stages, better.global_batch_size) == (4, 2, 256)
    assert better.optimizer_level is OptimizerLevel.LEVEL1 and better.recomputation.blocks == (0,)
    assert (worse.data_parallel, worse.model_parallel, worse.micro_batch_size, worse.global_batch_size) == (1, 8, 4, 16)
    assert worse.optimizer_level is OptimizerLevel.NONE and worse.sequence_parallel  # a single copy


@pytest.mark.parametrize(
    "words, blocks, parts",
    [
        ("DP8 no recompute", (0,), set()),
        ("DP8 full recompute", (ALL,), set()),
        ("DP8 select recompute", (0,), {Part.ATTENTION_CORE, Part.ACTIVATION_FUNCTION}),
        ("DP8 partial recompute", (16,), set()),
        ("DP4 PP2 full recompute only on [4,0] layers + select SiLU/Mul", (4, 0), {Part.ACTIVATION_FUNCTION}),
    ],
)
def test_recomputation_in_words(read_rows, words, blocks, parts) -> None:
    (pair,) = read_rows({**ROW, "better_config": words}).pairs
    assert pair.better.recomputation.blocks == blocks
    assert {part for part, _ in pair.better.recomputation.parts} == parts


def test_both_sides_take_the_same_batch_where_only_one_or_the_comment_says_it(read_rows) -> None:
    found = read_rows(
        ROW,
        {"better_config": "DP4 TP1 PP2", "worse_config": "DP2 TP2 PP2"},
        {"better_config": "DP8 gbs64", "worse_config": "TP8"},
        {"better_config": "DP8", "worse_config": "TP8", "comment": "same week, gbs 16, mbs 2"},
    )
    batches = [(pair.better.global_batch_size, pair.worse.global_batch_size) for pair in found.pairs]
    assert batches == [(64, 64), (64, 64), (16, 16)]
    assert found.pairs[2].better.micro_batch_size == 2


def test_numbers_of_devices(read_rows) -> None:
    found = read_rows(
        ROW,
        {"n_devices": "32 vs 64", "better_config": "32p TP8 PP4", "worse_config": "64p TP8 PP8", "model": "Llama2-70B"},
        {
            "n_devices": "",
            "better_config": "TP2 EP4, 8 experts",
            "worse_config": "TP4 EP2, 8 experts",
            "model": "Mixtral-8x7B",
        },
    )
    assert [(pair.better.device_num, pair.worse.device_num) for pair in found.pairs] == [(32, 64), (8, 8)]


def test_memory_pairs_and_the_slide(read_rows) -> None:
    slide = {"model": "DeepSeek-V3", "n_devices": 64, "seq_len": "", "unit": "fit"}
    (pair,) = read_rows({**ROW, **slide, "better_config": "DP8 TP8 (fits)", "worse_config": "DP64 TP1"}).pairs
    assert pair.by_memory
    assert (pair.better.model_parallel, pair.worse.model_parallel) == (8, 1)
    assert pair.better.model.num_layers == pair.worse.model.num_layers


def test_reasons(read_rows) -> None:
    found = read_rows(ROW, {"model": "Nobody-3B"}, {"unit": "furlong"}, {"better_config": "TP2 EP4, 16 experts"})
    assert found.reasons() == {
        "16 experts, which the published model has not": 1,
        "the dimensions of Nobody-3B are not known": 1,
        "unknown unit 'furlong'": 1,
    }


@pytest.mark.parametrize(
    "name, layers, hidden",
    [
        ("Llama2-13B", 40, 5120),
        ("Llama2-4L (CI)", 4, 4096),
        ("Mixtral 6L (CI)", 6, 4096),
        ("Llama2 32L", 32, 4096),
        ("Mixtral-8x7B (GMM table)", 32, 4096),
        ("Qwen1.5-32B", 64, 5120),
        ("LLaMA-65B", 80, 8192),
        ("finetune_llama2_70b_bf16_32p", 80, 8192),
        ("finetune_qwen1_5_1_8b", 24, 2048),
        ("Qwen2.5-7B", 28, 3584),
        ("Qwen2.5-14B", 48, 5120),
    ],
)
def test_names(name, layers, hidden) -> None:
    model = published_model(name)
    assert (model.num_layers, model.hidden_size) == (layers, hidden)


def test_an_unknown_name() -> None:
    with pytest.raises(UnusableRowError, match="the dimensions of Nobody are not known"):
        published_model("Nobody")


def test_mindformers_takes_one_micro_batch_where_there_is_no_pipeline(read_rows) -> None:
    words = {
        "better_config": "DP8 PP2 (16p) full recompute",
        "worse_config": "DP8 (8p) full recompute",
        "n_devices": "8/16",
    }
    (pair,) = read_rows({**ROW, **words, "source": "MindFormers performance_optimization.md"}).pairs
    assert (pair.better.device_num, pair.worse.device_num) == (16, 8)
    assert pair.worse.micro_batch_num == 1 and pair.better.micro_batch_num == 16
    assert pair.worse.framework == "mindspore"


def test_a_dot_makes_another_model() -> None:
    dense, experts = published_model("Qwen2.5-7B"), published_model("Qwen2-57B-A14B")
    assert dense.experts is None and experts.experts is not None
