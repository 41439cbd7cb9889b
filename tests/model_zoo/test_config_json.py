"""A network from its config.json: the same sizes as transformers gives it, and what is refused."""

import csv
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import BlockKind, Experts, IndexerSizes, TransformerConfig
from model_zoo.config_json import file_of, read
from model_zoo.described import config_of, text_of
from model_zoo.families import FAMILIES, KEYS
from ms_symtensor.bridge.apply.load_network import zoo_options
from ms_symtensor.errors import InputError
from ms_symtensor.models import resolve

FILES = Path(__file__).parents[1] / "data" / "configs"
COUNTED = {row["file"]: row for row in csv.DictReader((FILES / "parameters.csv").open(encoding="utf-8"))}
REFUSED = {
    "deepseek_v4_flash.json": "compressed attention", "deepseek_v4_pro.json": "compressed attention",
    "phi_3_5_moe.json": "routing by a sparse mixer",
    "longcat_flash.json": "zero experts",
}  # fmt: skip
DEFAULTS = json.loads((FILES / "class_defaults.json").read_text())
NEEDED = {"num_layers", "hidden_size", "num_heads", "vocab_size", "intermediate_size"}
QWEN3 = json.loads((FILES / "qwen3_32b.json").read_text())


def parameters_of(config: TransformerConfig) -> tuple[int, int]:
    """Of the network, and of what predicts its second token; blocks of a kind have equally many."""
    times = Counter(map(config.kind, range(config.num_layers)))
    graph = build_graph(replace(config.of_kinds(list(times)), batch_size=1, seq_length=16))
    of_block = {f"layers.{number}": count for number, count in enumerate(times.values())}
    found = [0, 0]
    for parameter in graph.parameters:
        part = ".".join(parameter.name.split(".")[:2])
        found[part.startswith("second_token")] += parameter.type.element_num * of_block.get(part, 1)
    return found[0], found[1]


def family_of(data: dict[str, Any]) -> str:
    kind = str(data.get("text_config", data)["model_type"])
    return kind if kind in FAMILIES else kind.removesuffix("_text")


def described_by(tmp_path: Path, data: dict[str, Any]) -> TransformerConfig:
    (tmp_path / "config.json").write_text(json.dumps(data))
    return read(tmp_path / "config.json").config


def written(tmp_path: Path, **keys: Any) -> str:
    """A folder with Qwen3-32B's config.json, some keys of which are others."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN3 | keys))
    return str(tmp_path)


def test_how_a_file_was_trained_changes_no_network(tmp_path: Path) -> None:
    flags = {"gradient_checkpointing": False, "bf16": True, "unsloth_version": "2025.1", "_flash_attn_2_enabled": True}
    assert described_by(tmp_path, QWEN3 | flags) == described_by(tmp_path, QWEN3)


def test_a_key_that_is_not_known_is_left_out_as_the_message_says(tmp_path: Path) -> None:
    folder = Path(written(tmp_path, sparkle=3))
    with pytest.raises(InputError, match="not known what sparkle changes: give --dim sparkle=null"):
        read(folder / "config.json")
    assert read(folder / "config.json", ["sparkle=null"]).config == described_by(tmp_path, QWEN3)


@pytest.mark.parametrize("file", sorted(COUNTED.keys() - REFUSED.keys()))
def test_parameters_are_as_many_as_transformers_counts(file: str) -> None:
    row, config = COUNTED[file], read(FILES / file).config
    main, second = parameters_of(config)
    assert main == int(row["parameters"]) + int(row["corrections_in_buffers"])
    assert (second > 0) == (config.second_token_weight > 0)
    assert config_of(config.name, text_of(config)) == replace(config, seq_length=4096)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_of_a_class_have_as_many_parameters_as_transformers_counts(kind: str, tmp_path: Path) -> None:
    row = DEFAULTS[kind]
    config = described_by(tmp_path, row["config"])
    assert parameters_of(config) == (row["parameters"] + row["corrections_in_buffers"], 0)
    assert replace(config_of(config.name, text_of(config)), seq_length=config.seq_length) == config


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_file_with_its_sizes_alone_is_that_of_its_class(kind: str, tmp_path: Path) -> None:
    row, means = DEFAULTS[kind], KEYS | FAMILIES[family_of(DEFAULTS[kind]["config"])].keys
    data = row["config"].get("text_config", row["config"])
    kept = {
        key: value
        for key, value in data.items()
        if means.get(key) in NEEDED or key in row["given"] or key == "model_type"
    }
    if data is not row["config"]:
        kept = {key: value for key, value in row["config"].items() if key != "text_config"} | {"text_config": kept}
    whole, short = (described_by(tmp_path, each) for each in (row["config"], kept))
    assert replace(short, max_position_embeddings=whole.max_position_embeddings) == whole


@pytest.mark.parametrize("file", REFUSED)
def test_what_cannot_be_expressed_is_refused_by_name(file: str) -> None:
    with pytest.raises(InputError, match=REFUSED[file]) as error:
        read(FILES / file)
    assert len(str(error.value)) <= 450


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("qwen3_32b", "qwen3_32b"), ("qwen3_30b_a3b", "qwen3_30b_a3b"), ("mixtral_8x7b", "mixtral_8x7b"),
        ("deepseek_v3_r1", "deepseek_v3"), ("llama_2_7b", "llama2_7b"), ("internlm2_20b", "internlm2_20b"),
    ],
)  # fmt: skip
def test_the_graph_is_that_of_the_zoo(file: str, name: str) -> None:
    options = {"num_layers": 4, "dense_layers": PUBLISHED[name].dense_layers}
    of_zoo = build_graph(replace(dimensions_of(name, **options), norm_epsilon=1e-6))
    config = read(FILES / f"{file}.json", seq_length=4096).config
    assert build_graph(replace(config.with_layers(range(4)), norm_epsilon=1e-6)).hash == of_zoo.hash


def test_the_whole_network_has_the_hash_of_the_zoo() -> None:
    model = resolve(str(FILES / "qwen3_32b.json"))
    assert model.graph.hash == resolve("qwen3_32b").graph.hash
    assert model.name == "qwen3_32b" and (model.global_batch_size, model.seq_length) == (16, 4096)


def test_keys_of_transformers_4_mean_the_same(tmp_path: Path) -> None:
    for file, old in (
        ("qwen3_30b_a3b", {"num_local_experts": None, "num_experts": 128, "rope_parameters": None, "rope_theta": 10000.0}),
        ("gemma_2_27b", {"layer_types": None, "rope_parameters": None, "hidden_act": "gelu_pytorch_tanh"}),
        ("gemma_3_4b_text_class_defaults", {
            "layer_types": None, "rope_parameters": None, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
            "sliding_window_pattern": 6,
        }),
        ("minimax_m2_m2_5", {"rope_parameters": None, "rope_theta": 5e6, "rotary_dim": 64}),
        ("glm_4_9b", {"rope_parameters": None, "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
    ):  # fmt: skip
        data = json.loads((FILES / f"{file}.json").read_text())
        assert set(old) & set(data)
        data = {key: value for key, value in (data | old).items() if value is not None}
        (tmp_path / f"{file}.json").write_text(json.dumps(data))
        assert read(tmp_path / f"{file}.json") == read(FILES / f"{file}.json")


@pytest.mark.parametrize(
    ("file", "lost"),
    [
        ("deepseek_v3_r1", "kv_lora_rank n_routed_experts n_shared_experts intermediate_size first_k_dense_replace topk_group"),
        ("mixtral_8x7b", "num_local_experts num_key_value_heads num_experts_per_tok intermediate_size"),
        ("ernie_4_5_21b_a3b", "moe_num_experts moe_num_shared_experts moe_layer_start_index intermediate_size"),
        ("minimax_m2_m2_5", "head_dim num_key_value_heads num_local_experts"),
        ("gpt_oss_120b", "num_local_experts num_key_value_heads sliding_window head_dim"),
        ("internlm3_8b", "head_dim num_key_value_heads"),
        ("qwen3_30b_a3b", "num_local_experts num_key_value_heads intermediate_size"),
        ("llama_4_scout_17b_16e", "layer_types intermediate_size_mlp num_local_experts"),
    ],
)  # fmt: skip
def test_where_a_file_is_silent_its_class_says_the_size(file: str, lost: str, tmp_path: Path) -> None:
    """These networks have the values of their classes, so that transformers makes the same of the shorter file."""
    data = json.loads((FILES / f"{file}.json").read_text())
    inner = data.get("text_config", data)
    for key in lost.split():
        del inner[key]
    (tmp_path / f"{file}.json").write_text(json.dumps(data))
    assert read(tmp_path / f"{file}.json", seq_length=4096) == read(FILES / f"{file}.json", seq_length=4096)


@pytest.mark.parametrize("key", ["kv_lora_rank", "n_routed_experts"])
def test_a_mixture_without_its_numbers_is_no_dense_network(key: str, tmp_path: Path) -> None:
    data = json.loads((FILES / "kimi_k2.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({name: value for name, value in data.items() if name != key}))
    with pytest.raises(InputError, match="lacks (kv_lora_rank|num_experts)"):
        read(tmp_path / "config.json")


def test_a_folder_a_text_config_and_a_name_of_its_own_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "My-Qwen"
    folder.mkdir()
    assert file_of(str(folder)) is None
    outer = {"model_type": "qwen3_vl", "text_config": QWEN3, "vision_config": {"depth": 2}}
    (folder / "config.json").write_text(json.dumps(outer))
    model = resolve(str(folder), options={"num_layers": 2})
    assert model.name == "My-Qwen" and "vision_config" in model.source["notes"]
    assert model.graph.hash == resolve("qwen3_32b", options={"num_layers": 2}).graph.hash


def test_every_part_beside_the_text_network_is_named(tmp_path: Path) -> None:
    parts = {"vision_config": {"depth": 2}, "vq_config": {"n_e": 2}, "id2label": {"0": "no"}}
    for around, left_out in (
        (parts, ["vision_config", "vq_config"]),
        ({}, ["what stands beside the text network"]),
        ({"thinker_config": {"audio_config": {"depth": 2}, "text_config": QWEN3}, "talker_config": {"depth": 1}},
         ["audio_config", "talker_config"]),
        ({"llm_config": QWEN3, "aligner_config": {"depth": 1}}, ["aligner_config"]),
    ):  # fmt: skip
        inside = {} if {"thinker_config", "llm_config"} & around.keys() else {"text_config": QWEN3}
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", **around, **inside}))
        found = read(tmp_path / "config.json")
        assert replace(found.config, name="qwen3_32b") == replace(
            read(FILES / "qwen3_32b.json").config, name="qwen3_32b"
        )
        assert [note.split(" is left out: ")[0] for note in found.notes] == left_out


def test_what_a_class_does_not_read_or_reads_elsewhere(tmp_path: Path) -> None:
    hunyuan = DEFAULTS["hunyuan_v1_moe"]["config"]
    of_layers = {
        "moe_topk": [8] * 32,
        "num_shared_expert": [1] * 32,
        "moe_intermediate_size": [3072] * 32,
        "use_cla": False,
    }
    assert described_by(tmp_path, hunyuan | of_layers) == described_by(tmp_path, hunyuan)
    glm = json.loads((FILES / "glm_4_9b.json").read_text())
    chatglm = {  # as its own code names the same
        "model_type": "chatglm", "num_layers": 40, "hidden_size": 4096, "ffn_hidden_size": glm["intermediate_size"],
        "kv_channels": 128, "num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2,
        "padded_vocab_size": glm["vocab_size"], "layernorm_epsilon": glm["rms_norm_eps"], "rmsnorm": True, "hidden_dropout": 0.0,
        "add_bias_linear": False, "add_qkv_bias": True, "seq_length": glm["max_position_embeddings"], "post_layer_norm": True,
        "tie_word_embeddings": False, "rope_ratio": 500,
    }  # fmt: skip
    assert described_by(tmp_path, chatglm) == described_by(tmp_path, glm)
    exaone = DEFAULTS["exaone4"]["config"] | {"layer_types": None, "sliding_window_pattern": "LLLG"}
    assert described_by(tmp_path, exaone) == described_by(tmp_path, DEFAULTS["exaone4"]["config"])
    described_by(tmp_path, DEFAULTS["ministral3"]["config"])
    assert read(tmp_path / "config.json", seq_length=16384).config.seq_length == 16384
    with pytest.raises(InputError, match="queries scaled by position"):
        read(tmp_path / "config.json", seq_length=16385)
    for kind, keys, said in (
        ("granite", {"attention_multiplier": 0.3}, "attention_multiplier is 0.3"),
        ("opt", {"word_embed_proj_dim": 512}, "word_embed_proj_dim 512"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before 'False' in this model_type"),
        ("gpt2", {"attn_pdrop": 0.1}, "no dropout .attn_pdrop"),
        ("phi", {"hidden_act": "silu"}, "ungated one knows gelu_pytorch_tanh"),
        ("mistral4", {"n_group": 4}, "n_group '4' in this model_type"),
    ):
        with pytest.raises(InputError, match=said):
            described_by(tmp_path, DEFAULTS[kind]["config"] | keys)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"residual_dropout_of_mine": 0.5}, "residual_dropout_of_mine"),
        ({"attention_dropout": 0.1}, "dropout .attention_dropout"),
        ({"use_bidirectional_attention": True}, "attention to later tokens"),
        ({"model_type": "qwen4"}, "model_type 'qwen4' is not known .* such as qwen"),
        ({"model_type": "rwkv"}, "model_type 'rwkv' is not known .* model_type=NAME$"),
        ({"hidden_act": "relu2"}, "hidden_act 'relu2'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"layer_types": ["full_attention"] * 3}, "3 of 64 layers"),
        ({"layer_types": ["linear_attention"] * 64}, "gated linear attention .layer_types"),
        ({"hidden_size": 5120.5}, "hidden_size is 5120.5"),
        ({"num_attention_heads": None}, "lacks num_attention_heads"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "the next token"),
    ],
)
def test_a_mistake_is_told_in_a_line(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as error:
        resolve(written(tmp_path, **keys))
    assert len(str(error.value)) <= 450 and "config.json" in str(error.value)


@pytest.mark.parametrize(
    ("keys", "length", "said"),
    [
        ({}, 3000, "seq_length is 3000; gated linear attention takes .* power of two"),
        ({}, 1, "seq_length is 1; gated linear attention takes .* power of two"),
        ({"linear_num_value_heads": 24}, 4096, "24 value heads of linear attention do not divide by 16 key heads"),
        ({"linear_num_key_heads": 0}, 4096, "linear_num_key_heads is 0: give a whole number above 0"),
        ({"linear_conv_kernel_dim": 1}, 4096, "linear_conv_kernel_dim is 1"),
    ],
)
def test_linear_attention_that_is_none_is_told_in_a_line(
    keys: dict[str, int], length: int, said: str, tmp_path: Path
) -> None:
    data = json.loads((FILES / "qwen3_next_80b_a3b.json").read_text()) | keys
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=said) as error:
        read(tmp_path / "config.json", seq_length=length)
    assert len(str(error.value)) <= 450


@pytest.mark.parametrize(
    ("keys", "length", "said"),
    [
        ({}, 100, "seq_length is 100; state-space layers take up to 64 tokens, or a multiple of 64"),
        ({"mamba_n_groups": 3}, 64, "128 heads of state-space layers do not divide by 3 groups"),
        ({"mamba_d_head": 32}, 64, "128 state-space heads of 32 make not mamba_expand: 8192 channels"),
        ({"mamba_d_state": 0}, 64, "mamba_d_state is 0: give a whole number above 0"),
        ({"mamba_d_conv": 1}, 64, "mamba_d_conv is 1"),
        ({"time_step_limit": [0.001, 0.1]}, 64, "time_step_limit is .0.001, 0.1.: the zoo's steps have no limit"),
    ],
)
def test_state_space_layers_that_are_none_are_told_in_a_line(
    keys: dict[str, Any], length: int, said: str, tmp_path: Path
) -> None:
    data = json.loads((FILES / "granite_4_0_h_small.json").read_text()) | keys
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=said) as error:
        read(tmp_path / "config.json", seq_length=length)
    assert len(str(error.value)) <= 450


def test_published_keys_of_granite_4_mean_its_class(tmp_path: Path) -> None:
    data = json.loads((FILES / "granite_4_0_h_small.json").read_text())
    names = {"linear_attention": "mamba", "full_attention": "attention"}
    old = {"layer_types": [names[one] for one in data["layer_types"]], "mamba_d_head": "auto"}
    config = described_by(tmp_path, data | old | {"position_embedding_type": "nope"})
    of_class = read(FILES / "granite_4_0_h_small.json").config
    assert replace(config, name=of_class.name) == of_class
    assert not any(kind.rotary for kind in config.kinds)
    assert all(kind.rotary for kind in described_by(tmp_path, data | {"position_embedding_type": "rope"}).kinds)
    dense = described_by(tmp_path, data | {"num_local_experts": 0})
    assert (dense.experts, dense.intermediate_size) == (None, 1536)


def test_a_network_without_attention_has_the_heads_of_its_state_space_layers(tmp_path: Path) -> None:
    config = read(FILES / "codestral_mamba_7b.json").config
    assert {kind.only for kind in config.kinds} == {"attention"} and all(kind.linear for kind in config.kinds)
    names = {op.type for op in build_graph(config.with_layers(range(2))).ops}
    assert "CumSum" in names and not {"FlashAttentionScore", "TopKRouter"} & names
    with pytest.raises(InputError, match="time_step_limit is .0.001, 0.1."):
        described_by(tmp_path, DEFAULTS["mamba2"]["config"] | {"time_step_limit": [0.001, 0.1]})


def test_published_keys_of_nemotron_h_mean_its_class(tmp_path: Path) -> None:
    data = json.loads((FILES / "nemotron_h_8b.json").read_text())
    letters = {"linear_attention": "M", "full_attention": "*", "moe": "E", "mlp": "-"}
    types = data.pop("layers_block_type")
    old = {"hybrid_override_pattern": "".join(letters[one] for one in types), "num_hidden_layers": len(types)}
    config = described_by(tmp_path, data | old | {"attention_head_dim": 128, "expand": 2, "rope_theta": 10000})
    of_class = read(FILES / "nemotron_h_8b.json").config
    assert replace(config, name=of_class.name) == of_class
    assert [kind.only for kind in config.kinds[:8]] == ["attention", "feed_forward"] * 3 + ["attention"] * 2
    assert [kind.linear for kind in config.kinds[5:8]] == [False, True, False]
    assert described_by(tmp_path, data | old | {"n_routed_experts": 0}).intermediate_size == 21504
    short = read(FILES / "nemotron_3_nano_30b_a3b.json", ["num_hidden_layers=7"]).config
    assert [kind.experts for kind in short.kinds] == [False, True, False, True, False, False, True]
    for keys, said in (
        ({"moe_latent_size": 1024}, "no experts in a narrow space .moe_latent_size"),
        ({"hybrid_override_pattern": "MEX"}, "hybrid_override_pattern is 'MEX': give a pattern of M, E, . and -"),
        ({"mamba_hidden_act": "gelu"}, "mamba_hidden_act 'gelu' in this model_type"),
        ({"num_nextn_predict_layers": 1}, "num_nextn_predict_layers '1' in this model_type"),
    ):
        with pytest.raises(InputError, match=said):
            described_by(tmp_path, data | old | keys)
    with pytest.raises(InputError, match="lacks layers_block_type: give it"):
        described_by(tmp_path, data | {"layers_block_type": None})
    with pytest.raises(InputError, match="hidden_act is 'gelu': the convolution .* takes silu"):
        described_by(tmp_path, DEFAULTS["bamba"]["config"] | {"hidden_act": "gelu"})


def test_published_keys_of_qwen3_next_mean_its_class(tmp_path: Path) -> None:
    data = json.loads((FILES / "qwen3_next_80b_a3b.json").read_text())
    for key in ("layer_types", "rope_parameters"):
        del data[key]
    old = {"full_attention_interval": 4, "partial_rotary_factor": 0.25, "rope_theta": 1e4, "use_sliding_window": False}
    (tmp_path / "config.json").write_text(json.dumps(data | old | {"mtp_num_hidden_layers": 1}))
    found = read(tmp_path / "config.json")
    assert replace(found.config, name="qwen3_next_80b_a3b") == read(FILES / "qwen3_next_80b_a3b.json").config
    assert any(note.startswith("mtp_num_hidden_layers is left out") for note in found.notes)


def test_published_keys_of_afmoe_mean_its_class(tmp_path: Path) -> None:
    """Trinity's files: other names of the routing, and a base of the rotation that its class keeps in a record."""
    data = DEFAULTS["afmoe"]["config"]
    old = {key: value for key, value in data.items() if key not in ("layer_types", "rope_parameters")} | {
        "rope_theta": 10000.0, "route_norm": True, "score_func": "sigmoid", "n_group": 1, "topk_group": 1, "num_expert_groups": 1,
        "num_limited_groups": 1, "load_balance_coeff": 0.001, "use_grouped_mm": True,
    }  # fmt: skip
    found = described_by(tmp_path, old)
    assert found == described_by(tmp_path, data)
    assert [(kind.window, kind.rotary, kind.experts) for kind in found.kinds[:4]] == [
        (1024, True, False), (1024, True, True), (1024, True, True), (0, False, True),
    ]  # fmt: skip
    assert found.embedding_scale == 1.0
    assert described_by(tmp_path, old | {"mup_enabled": True}).embedding_scale == 2048**0.5
    with pytest.raises(InputError, match="route_norm 'False' in this model_type"):
        described_by(tmp_path, old | {"route_norm": False})


def test_every_block_may_have_a_base_of_its_own(tmp_path: Path) -> None:
    data = DEFAULTS["granite_swa"]["config"] | {"num_hidden_layers": 4, "layer_types": None}
    found = described_by(tmp_path, data | {"layer_rope_theta": [0, 10000.0, 5e5, 10000.0]})
    assert found.kinds == (
        BlockKind(rotary=False),
        BlockKind(window=128),
        BlockKind(window=128, rotary_base=5e5),
        BlockKind(window=128),
    )
    with pytest.raises(InputError, match="layer_rope_theta says what 1 of 4 layers are"):
        described_by(tmp_path, data | {"layer_rope_theta": [0]})
    with pytest.raises(InputError, match="layer_rope_theta is .*: give a list of numbers"):
        described_by(tmp_path, data | {"layer_rope_theta": ["a"] * 4})


def test_published_keys_of_kimi_linear_mean_its_class(tmp_path: Path) -> None:
    """The record of linear attention, with layers counted from one, and other names of the same sizes."""
    data = json.loads((FILES / "kimi_linear_48b_a3b.json").read_text())
    for key in ("layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"):
        del data[key]
    full = [4, 8, 12, 16, 20, 24, 27]
    sizes = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
    old = {
        "linear_attn_config": sizes | {"full_attn_layers": full, "kda_layers": [n for n in range(1, 28) if n not in full]},
        "head_dim": 72, "first_k_dense_replace": 1, "moe_layer_freq": 1, "moe_router_activation_func": "sigmoid",
        "mla_use_nope": True, "use_grouped_topk": True, "rope_theta": 10000.0, "num_nextn_predict_layers": 0,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(data | old))
    found = read(tmp_path / "config.json").config
    assert [n + 1 for n, kind in enumerate(found.kinds) if not kind.linear] == full
    whole = read(FILES / "kimi_linear_48b_a3b.json").config
    assert replace(found, name=whole.name, kinds=whole.kinds) == whole
    del data["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(data | {"model_type": "kimi_linear"}))
    assert read(tmp_path / "config.json").config.kinds == whole.kinds


def test_a_file_without_a_model_type_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {key: value for key, value in QWEN3.items() if key != "model_type"}
    (tmp_path / "mine.json").write_text(json.dumps(keys))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="^mine.json: lacks model_type: give --dim model_type=NAME"):
        resolve("mine.json")
    found = resolve("mine.json", dims=["model_type=qwen3"], options={"num_layers": 2})
    assert found.graph.hash == resolve("qwen3_32b", options={"num_layers": 2}).graph.hash


def test_keys_without_meaning_for_a_step_change_nothing(tmp_path: Path) -> None:
    plain = read(FILES / "qwen3_32b.json").config
    more = {"torch_dtype": "bfloat16", "temperature": 0.7, "an_unknown_one": None, "rope_scaling": {"type": "yarn"}}
    found = read(Path(written(tmp_path, **more)) / "config.json").config
    assert replace(found, name=plain.name) == plain


def test_dims_and_adapters_are_asked_for(tmp_path: Path) -> None:
    asked_for = {"dims": ["hidden_size=1024", "num_hidden_layers=3", "head_dim=64"]}
    model = resolve(written(tmp_path), 2, 64, {"lora": 8}, **asked_for)
    config = model.config
    assert config is not None and (config.hidden_size, config.num_layers, config.head_dim) == (1024, 3, 64)
    trained = [p for p in model.graph.parameters if p.requires_grad]
    assert trained and all("low_rank" in p.name and 8 in p.type.shape for p in trained)
    with pytest.raises(InputError, match="--dim 'hidden_size'"):
        resolve(written(tmp_path), dims=["hidden_size"])
    with pytest.raises(InputError, match="--dim is for a config.json"):
        resolve("qwen3_32b", dims=["hidden_size=8"])


def test_a_plan_holds_the_network_without_its_file(tmp_path: Path) -> None:
    layers = {"num_layers": 3}
    for file in ("gemma_2_27b", "deepseek_v2_lite", "glm_4_5_air"):
        model = resolve(str(FILES / f"{file}.json"), 2, 64, layers)
        rebuilt = dimensions_of(model.source["model"], **zoo_options(model.source))
        assert rebuilt == model.config and build_graph(rebuilt) == model.graph


def test_the_nearest_is_taken_where_one_asks_for_it() -> None:
    found = read(FILES / "phi_3_5_moe.json", approximate=True)
    assert any("softmax routing" in note for note in found.notes)
    with pytest.raises(InputError, match="zero experts"):
        read(FILES / "longcat_flash.json", approximate=True)


def test_baichuan_is_told_by_its_positions_and_its_vocabulary(tmp_path: Path) -> None:
    """Two sizes and two versions have one model_type. The counts are those of the published weights."""
    small = {
        "model_type": "baichuan", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_act": "silu",
        "intermediate_size": 11008, "vocab_size": 125696, "max_position_embeddings": 4096, "model_max_length": 4096,
        "rms_norm_eps": 1e-6, "z_loss_weight": 0, "tie_word_embeddings": False,
    }  # fmt: skip
    large = {key: value for key, value in small.items() if key != "max_position_embeddings"}
    large |= {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13696}
    found = described_by(tmp_path, large)
    assert (found.position, found.normed_head, found.seq_length) == ("distance", True, 4096)
    assert parameters_of(found)[0] == 13_896_668_160
    found = described_by(tmp_path, small)
    assert (found.position, found.normed_head) == ("rotary", True)
    assert parameters_of(found)[0] == 7_505_973_248
    assert not described_by(tmp_path, small | {"vocab_size": 64000}).normed_head
    with pytest.raises(InputError, match="z_loss_weight"):
        described_by(tmp_path, small | {"z_loss_weight": 1e-4})


def test_an_indexer_is_what_its_keys_say(tmp_path: Path) -> None:
    glm = json.loads((FILES / "glm_5.json").read_text())
    glm = {key: value for key, value in glm.items() if key != "indexer_types"}
    whole = described_by(tmp_path, glm)
    assert whole.indexer == IndexerSizes(heads=32, head_dim=128, keys=2048)
    for same in ({"index_topk_freq": 1, "index_skip_topk_offset": 2}, {"index_topk_pattern": "F" * 78}):
        assert described_by(tmp_path, glm | same) == whole
    every = ["full", *["full", "shared", "shared", "shared"] * 20][
        :78
    ]  # as transformers' class writes index_topk_freq 4
    for said in ({"index_topk_freq": 4}, {"index_topk_pattern": every}, {"indexer_types": every}):
        found = described_by(tmp_path, glm | said)
        assert [kind.shares_choice for kind in found.kinds] == [one == "shared" for one in every]
    with pytest.raises(InputError, match="index_topk_pattern has 'X': known are full and shared"):
        described_by(tmp_path, glm | {"index_topk_pattern": "FX" * 39})
    with pytest.raises(InputError, match="the first block has an indexer where others share its choice"):
        described_by(tmp_path, glm | {"index_topk_pattern": "S" * 78})
    full = described_by(tmp_path, glm | {"index_topk": 0})
    own = 32 * 128 * 2048 + (32 + 128) * 6144 + 2 * 128  # queries, weights of heads, keys and their norm
    assert replace(whole, indexer=None) == full
    assert parameters_of(whole)[0] - parameters_of(full)[0] == 78 * own
    with pytest.raises(InputError, match="index_head_dim is 32: give at least as many as are rotated"):
        described_by(tmp_path, glm | {"index_head_dim": 32})
    with pytest.raises(InputError, match="index_topk: the zoo's indexer reads a narrow query"):
        described_by(tmp_path, glm | {"q_lora_rank": None})
    with pytest.raises(InputError, match="sparse attention with an indexer"):
        described_by(tmp_path, QWEN3 | {"index_topk": 2048})


def test_windows_are_none_where_a_sample_is_no_longer() -> None:
    config = read(FILES / "gemma_2_27b.json").config
    assert {config.kind(n).window for n in range(46)} == {0}
    longer = replace(config, seq_length=8192)
    assert [longer.kind(n).window for n in range(4)] == [4096, 0, 4096, 0]


def test_every_model_type_is_one_line_of_known_facts() -> None:
    facts = {fact for family in FAMILIES.values() for fact in (*family.fixed, *family.silent)}
    of_experts = {f"experts.{name}" for name in Experts.__dataclass_fields__}
    assert {fact for fact in facts if fact.startswith("experts.")} <= of_experts


@pytest.mark.parametrize(
    "file",
    [
        "gemma_2_27b",
        "gpt_oss_20b",
        "deepseek_v3_r1",
        "glm_moe_dsa",
        "falcon_7b",
        "granite",
        "gpt2",
        "opt",
        "granitemoehybrid",
        "nemotron_h",
        "mamba2",
    ],
)
def test_a_value_of_another_kind_is_never_more_than_a_mistake(file: str, tmp_path: Path) -> None:
    data = DEFAULTS[file]["config"] if file in DEFAULTS else json.loads((FILES / f"{file}.json").read_text())
    for key in data:
        for value in (None, "x", -1, 0, 1.5, [], {}, True, [["a"]], 10**9, {"full_attention": 3}):
            (tmp_path / "odd.json").write_text(json.dumps(data | {key: value}))
            try:
                found = read(tmp_path / "odd.json").config
            except InputError as error:
                assert len(str(error)) <= 450
            else:
                assert found.num_layers <= 1024


def test_a_value_that_changes_nothing_is_told(tmp_path: Path) -> None:
    """Which blocks are dense says the list of DeepSeek-V3.2's file, not their number."""
    file = file_of(str(FILES / "deepseek_v3_2_exp.json"))
    dims = ["num_hidden_layers=6", "first_k_dense_replace=1"]
    assert [note.split(":")[0] for note in read(file, dims).notes] == ["--dim first_k_dense_replace changes nothing"]
    found = read(file, [*dims, "mlp_layer_types=null"])
    assert (found.notes, found.config.dense_layers) == ((), 1)
    assert read(file, ["hidden_size=7168"]).notes == ()
