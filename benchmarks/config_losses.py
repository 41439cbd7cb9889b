"""Losses of small networks of transformers' own classes, beside those of the zoo's definition with the same weights.

    python -m venv oracle && oracle/bin/pip install torch transformers
    oracle/bin/python -m benchmarks.config_losses              # every class; exit code 1 where one differs
    oracle/bin/python -m benchmarks.config_losses falcon phi   # these

A class writes its config.json, with few layers and narrow ones. The zoo reads it, and `tests/model_zoo/reference.py` computes the
loss in numpy from the class's weights under the zoo's names. So it compares what a line of `model_zoo/families.py` says of the
mathematics: order of norms and rotation, biases, gates, scores of routers, windows and scales. Where a class rotates neighbouring
dims instead of halves, the rows of its projections change places. Scaled rotations and the exact form of GELU are not taken: the
zoo leaves both out.
"""

import json
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from model_zoo.config import BlockKind, TransformerConfig
from model_zoo.config_json import read
from tests.model_zoo.reference import Array, Reference

SEQ, BATCH, VOCAB = 16, 2, 50
EXACT = 1e-6  # of float64, of which norms and softmax of transformers are float32

_SIZES = {
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
    "vocab_size": VOCAB, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_HEADS = {"head_dim": 8}
_WINDOW = {"sliding_window": 4}
_IN_TURN = _WINDOW | {"layer_types": ["sliding_attention", "full_attention"] * 2}
_MOE = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
_ROUTED = _MOE | {"n_routed_experts": 8}
_EIGHT = _MOE | {"num_experts": 8}
_FOUR = {"num_local_experts": 4, "num_experts_per_tok": 2}
_MLA = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 6,
}  # fmt: skip
_INDEXED = {"index_n_heads": 16, "index_head_dim": 8, "index_topk": 3}
_GRANITE = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.25,
    "logits_scaling": 2.0,
}
_GPT2 = {
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64,
}  # fmt: skip
_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
_NOT_ROTATED: dict[str, Any] = {"rope_type": "default", "rope_theta": None}
_TEMPERED = _ROPE | {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16}
_YARN = {"rope_type": "yarn", "factor": 1.0, "beta_fast": 32.0, "beta_slow": 1.0, "partial_rotary_factor": 0.33334}
_PLAIN = {"rope_parameters": _ROPE}
_IMAGES = {"rope_parameters": _ROPE | {"mrope_section": [1, 1, 2]}}
_HALF = {"rope_parameters": _ROPE | {"mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}}

_DELTA = _HEADS | {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}  # fmt: skip

_STATE_SPACE = {
    "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 6, "mamba_n_groups": 2, "mamba_expand": 2, "mamba_chunk_size": 4,
}  # fmt: skip

TINY: Mapping[str, dict[str, Any]] = {
    "llama": {}, "mistral": _WINDOW, "ministral": _HEADS | _IN_TURN,
    "ministral3": _HEADS | {"rope_parameters": _TEMPERED}, "smollm3": {}, "internlm3": _HEADS, "ernie4_5": _HEADS,
    "seed_oss": _HEADS | {"attention_dropout": 0.0, "residual_dropout": 0.0}, "cwm": _HEADS | _WINDOW | _PLAIN,
    "iquestcoder": _HEADS, "exaone": {}, "exaone4": _WINDOW, "helium": _HEADS | {"num_key_value_heads": 4},
    "exaone_moe": _WINDOW | _EIGHT | {"n_group": 2}, "hunyuan_v1_dense": _HEADS,
    "hunyuan_v1_moe": _HEADS | {"num_experts": 4, "moe_topk": 2}, "hy_v3": _HEADS | _EIGHT,
    "qwen2": {}, "qwen3": _HEADS, "qwen2_moe": _EIGHT | {"shared_expert_intermediate_size": 20}, "qwen3_moe": _HEADS | _EIGHT,
    "phi3": {}, "glm": _HEADS, "glm4": _HEADS, "gemma": _HEADS, "gemma2": _HEADS | _WINDOW, "vaultgemma": _HEADS | _WINDOW,
    "gemma3_text": _HEADS | _WINDOW,
    "olmo": {}, "olmo2": {}, "olmo3": _WINDOW, "mixtral": _FOUR, "olmoe": {"num_experts": 8, "num_experts_per_tok": 2},
    "flex_olmo": {"num_experts": 6, "num_experts_per_tok": 2}, "granite": _GRANITE, "granitemoe": _GRANITE | _FOUR,
    "granitemoeshared": _GRANITE | _FOUR | {"shared_intermediate_size": 20}, "hyperclovax": _GRANITE,
    "granitemoehybrid": _GRANITE | _FOUR | _STATE_SPACE | {
        "shared_intermediate_size": 20, "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "granite_swa": _GRANITE | _WINDOW | {"layer_rope_theta": [0, 1e4, 2e4, 1e4]},
    "granitemoe_swa": _GRANITE | _FOUR | _WINDOW | {"shared_intermediate_size": 20},
    "bamba": _STATE_SPACE | {"mamba_n_groups": 1, "attn_layer_indices": [1, 2]},
    "nemotron_h": _HEADS | _ROUTED | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"], "ssm_state_size": 6,
        "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "chunk_size": 4, "time_step_min": 0.5, "n_group": 2,
        "topk_group": 1, "moe_shared_expert_intermediate_size": 20, "routed_scaling_factor": 2.5,
    },
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 6, "n_groups": 2, "chunk_size": 4},
    "minicpm3": _MLA | {"dim_model_base": 16}, "cohere": {}, "cohere2": _WINDOW,
    "stablelm": {"use_qkv_bias": True, "use_parallel_residual": True, "partial_rotary_factor": 0.5}, "starcoder2": {}, "phi": {},
    "persimmon": {}, "gpt_neox": {"hidden_act": "gelu_new", "rotary_pct": 0.5}, "nemotron": {}, "arcee": _HEADS,
    "apertus": _PLAIN, "jais2": _HEADS,
    "falcon": {"activation": "gelu_new", "new_decoder_architecture": True, "num_kv_heads": 2},
    "bloom": {"num_attention_heads": 6, "hidden_size": 48},
    "gpt2": _GPT2, "gpt_bigcode": _GPT2, "opt": {"dropout": 0.0, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "afmoe": _HEADS | _EIGHT | _WINDOW | {"mup_enabled": True, "route_scale": 1.5, "num_shared_experts": 1},
    "mellum": _HEADS | _IN_TURN | _FOUR | _MOE,
    "dots1": _HEADS | _ROUTED | {"n_shared_experts": 1, "first_k_dense_replace": 1}, "minimax_m2": _HEADS | _FOUR,
    "ernie4_5_moe": _HEADS | {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 24},
    "gpt_oss": _HEADS | _WINDOW | _FOUR | _PLAIN,
    "llama4_text": _HEADS | {"num_local_experts": 4, "intermediate_size_mlp": 40, "interleave_moe_layer_step": 2},
    "solar_open": _HEADS | _ROUTED, "sarvam_moe": _HEADS | _ROUTED, "glm4_moe": _HEADS | _ROUTED | {"use_qk_norm": True},
    "sarvam_mla": _MLA | _ROUTED | {"q_lora_rank": None}, "glm4_moe_lite": _MLA | _ROUTED, "youtu": _MLA,
    "mistral4": _MLA | _ROUTED | {"rope_parameters": _TEMPERED | _YARN},
    "deepseek_v2": _MLA | _ROUTED | {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1},
    "deepseek_v3": _MLA | _ROUTED | {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
    "deepseek_v32": _MLA | _ROUTED | _INDEXED | {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
    "glm_moe_dsa": _MLA | _ROUTED | _INDEXED | {"index_topk_freq": 2},
    "qwen3_next": _DELTA | _EIGHT | {"shared_expert_intermediate_size": 20}, "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": _DELTA | _EIGHT | {"shared_expert_intermediate_size": 20},
    "olmo_hybrid": {key: value for key, value in _DELTA.items() if key != "head_dim"} | {"rope_parameters": _NOT_ROTATED},
    "kimi_linear": _MLA | _MOE | {
        "num_local_experts": 8, "num_experts_per_token": 2, "q_lora_rank": None, "linear_num_heads": 2, "linear_head_dim": 6,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
    "qwen2_vl": _IMAGES, "qwen2_5_vl": _IMAGES, "qwen3_vl": _HEADS | _IMAGES, "qwen3_vl_moe": _HEADS | _EIGHT | _IMAGES,
    "glm4v": _IMAGES, "glm_ocr": _HEADS | _IMAGES, "glm4v_moe": _HEADS | _ROUTED | _HALF, "qwen2_5_omni_thinker": _IMAGES,
    "qwen3_omni_moe_thinker": _HEADS | _EIGHT | _IMAGES, "paddleocr_vl": _HEADS | _IMAGES, "hunyuan_vl": _HEADS | _IMAGES,
}  # fmt: skip
"""What each class is called with beside `_SIZES`; of a multimodal one its text network."""

_ABSENT = {
    "mamba2": {"num_attention_heads", "num_key_value_heads", "intermediate_size", "max_position_embeddings"},
    "gpt2": {*_SIZES} - {"vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"},
    "persimmon": {"num_key_value_heads"}, "gpt_neox": {"num_key_value_heads"}, "solar_open": {"intermediate_size"},
    "opt": {"num_key_value_heads", "intermediate_size"}, "bloom": {"num_key_value_heads", "intermediate_size"},
    "falcon": {"num_key_value_heads", "intermediate_size"}, "qwen3_5_moe_text": {"intermediate_size"},
}  # fmt: skip
_ABSENT["gpt_bigcode"] = _ABSENT["gpt2"]
_NEIGHBOURS = {
    "helium",
    "cohere",
    "cohere2",
    "glm",
    "glm4",
    "glm4v",
    "glm_ocr",
    "ernie4_5",
    "ernie4_5_moe",
    "llama4_text",
}
"""These rotate neighbouring dims; so does all latent attention but MiniCPM3's, and the indexer of GLM-5."""
_FROM_ONE = {
    "nemotron",
    "gemma",
    "gemma2",
    "gemma3_text",
    "vaultgemma",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
}
"""The weights of their norms are kept less one."""
_TURNED = {"gpt_oss", "llama4_text"}
"""They keep the weights of experts as the zoo does."""
_AFTER = {"gemma2", "gemma3_text", "afmoe"}
"""Their `post_attention_layernorm` stands behind attention, not before the feed-forward."""


def small(kind: str) -> tuple[Any, dict[str, Any]]:
    """The network of a class with random weights, and its config.json."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    given = {key: value for key, value in _SIZES.items() if key not in _ABSENT.get(kind, ())} | TINY[kind]
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
    outer = CONFIG_MAPPING[kind]
    if "text_config" in getattr(outer, "sub_configs", {}):
        config = outer(text_config=given)
        with torch.device("meta"):
            whole = AutoModelForImageTextToText.from_config(config)
        text = next(part for name, part in whole.named_modules() if name.endswith("language_model"))
        model: Any = torch.nn.Module()
        model.model = type(text)._from_config(config.text_config, **plain)
        model.lm_head = torch.nn.Linear(given["hidden_size"], VOCAB, bias=False)
        if config.tie_word_embeddings:
            model.lm_head.weight = model.model.embed_tokens.weight
    else:
        config = outer(**given)
        auto = AutoModelForCausalLM if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else AutoModelForImageTextToText
        model = auto.from_config(config, **plain)
    data = json.loads(config.to_json_string(use_diff=False))
    inner = ("model_type", "text_config", "tie_word_embeddings")
    data = {key: data[key] for key in inner if key in data} if "text_config" in data else data
    return model.double().eval(), data | ({"num_nextn_predict_layers": 0} if "num_nextn_predict_layers" in data else {})


def difference(kind: str, folder: Path) -> float:
    """How far the loss of the zoo's definition is from that of the class."""
    import torch

    torch.manual_seed(0)
    model, data = small(kind)
    for name, parameter in model.named_parameters():
        mean, spread = (0.8, 0.2) if "norm" in name else (0.0, 0.3)
        parameter.data.normal_(mean, spread)
    for name, buffer in model.named_buffers():
        if "correction" in name:
            buffer.data.normal_(0.0, 0.1)
    (folder / "config.json").write_text(json.dumps(data), encoding="utf-8")
    config = replace(read(folder / "config.json", seq_length=SEQ).config, batch_size=BATCH)
    if config.experts is not None:
        config = replace(config, experts=replace(config.experts, dropless=True))
    random = np.random.default_rng(0)
    ids, labels = (random.integers(3, VOCAB, (BATCH, SEQ)).astype(np.int32) for _ in range(2))
    with torch.no_grad():
        tokens = torch.tensor(ids.astype(np.int64))
        logits = (
            model(tokens).logits if hasattr(model, "config") else model.lm_head(model.model(tokens).last_hidden_state)
        )
    shifted = logits.numpy() - logits.numpy().max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    theirs = -float(np.take_along_axis(shifted, labels[..., None].astype(int), -1).mean())
    positions = np.tile(np.arange(SEQ, dtype=np.int32), (BATCH, 1)) + (2 if kind == "opt" else 0)
    more = [positions] if config.position == "learned" else []
    mine = Reference(config, dict(renamed(kind, config, model))).loss(ids, *more, labels, np.ones((BATCH, SEQ)))
    return abs(mine - theirs) / theirs


_OUTSIDE = {
    r"embed_tokens|wte|embed_in|word_embeddings|embeddings": "word_embedding.table",
    r"wpe|embed_positions": "position_embedding.table",
    "lm_head|embed_out": "output_table", "word_embeddings_layernorm": "embedding_norm",
    "norm|ln_f|norm_f|final_layer_norm|final_layernorm": "norm",
}  # fmt: skip
_NORMS = {
    r"(self_attn|attention)\.(q_norm|query_layernorm|q_layernorm|q_a_layernorm)": "attention.query_norm",
    r"(self_attn|attention)\.(k_norm|key_layernorm|k_layernorm)": "attention.key_norm",
    r"self_attn\.kv_a_layernorm": "attention.key_value_norm", r"indexer\.k_norm": "attention.indexer.key_norm",
    r"linear_attn\.(o_)?norm": "attention.core.norm", r"mamba\.norm": "attention.norm", "pre_ff_layernorm": "feed_forward_norm",
    r"input_layernorm|attention_layernorm|ln_1|ln_attn|self_attn_layer_norm": "attention_norm",
    r"post_self_attn_layernorm|post_norm1": "attended_norm",
    r"post_mlp_layernorm|post_norm2|post_feedforward_layernorm": "fed_forward_norm",
    r"ln_2|ln_mlp|final_layer_norm|pre_feedforward_layernorm|pre_mlp_layernorm|feedforward_layernorm": "feed_forward_norm",
}  # fmt: skip
_LINEAR = {
    r"q_proj": "attention.query", r"k_proj": "attention.key", r"v_proj": "attention.value",
    r"o_proj|out_proj|(self_attn|attention|self_attention)\.dense|attn\.c_proj": "attention.output",
    r"q_a_proj": "attention.query_down", r"indexer\.wq_b": "attention.indexer.query", r"indexer\.wk": "attention.indexer.key",
    r"indexer\.weights_proj": "attention.indexer.head_weight",
    r"self_attn\.gate_proj": "attention.gate", r"gate_proj": "feed_forward.gate",
    r"up_proj|c_fc|dense_h_to_4h|fc1": "feed_forward.up",
    r"down_proj|mlp\.c_proj|dense_4h_to_h|fc2|output_linear": "feed_forward.down",
    r"mlp\.gate|gate\.wg|router(\.gate)?": "feed_forward.router.scores", r"shared_expert_gate": "feed_forward.shared_gate",
}  # fmt: skip
"""Names within a block."""


def renamed(kind: str, config: TransformerConfig, model: Any) -> Iterator[tuple[str, Array]]:
    """The weights of a class under the names of the zoo; constants of an activation have none."""
    turned = {f"{name}.weight" for name, part in model.named_modules() if type(part).__name__ == "Conv1D"}
    of_norms = {name for name, part in model.named_modules() if "norm" in type(part).__name__.lower()}
    of_norms |= {name.replace("self_attn.o_norm", "linear_attn.o_norm") for name in of_norms}
    state = dict(model.state_dict()) | {name: value for name, value in model.named_buffers() if "correction" in name}
    state = {name: value for name, value in state.items() if not name.endswith(("act_fn.beta", "act_fn.eps"))}
    for name, tensor in _joined(config, state).items():
        value = tensor.detach().numpy().astype(np.float64)
        owner, _, what = name.rpartition(".")
        if owner in of_norms:
            value = value + 1 if kind in _FROM_ONE and what == "weight" and "linear_attn" not in owner else value
            what = "gamma" if what == "weight" else "beta"
        value = value.T if name in turned else value
        whole = owner if what in ("weight", "bias", "gamma", "beta") else name
        block = re.search(r"(?:layers|h)\.(\d+)\.(.*)$", whole)
        if block is None:
            found = next((mine for theirs, mine in _OUTSIDE.items() if re.search(rf"(^|\.)({theirs})$", owner)), "")
            found = "head" if found == "output_table" and what == "bias" else found
            yield (found if what == "weight" else f"{found}.{what}"), value
            continue
        of = config.kind(int(block[1]))
        own = replace(config, branch_norm="before") if of.linear else config
        inner = _of_one_branch(of, block[2]) if of.only else block[2]
        for mine, part in _of_block(kind, own, inner, what, value):
            yield f"layers.{block[1]}.{mine}", part


def _of_one_branch(of: BlockKind, name: str) -> str:
    """The name that a part of a block with one branch has in blocks with both."""
    mixer, norm = ("mlp", "pre_ff_layernorm") if of.only == "feed_forward" else ("self_attn", "input_layernorm")
    return norm if name == "norm" else name.replace("mixer", "mamba" if of.linear else mixer)


def _of_block(kind: str, config: TransformerConfig, name: str, what: str, value: Array) -> Iterator[tuple[str, Array]]:
    if kind == "glm_moe_dsa" and (of_index := re.search(r"indexer\.(wq_b|wk|k_norm)$", name)):
        own = config.of_indexer
        value = _halves(value, own.num_heads if of_index[1] == "wq_b" else 1, own.head_dim, own.rotated_size)
    if what in ("gamma", "beta"):
        yield f"{_norm(kind, config, name)}.{what}", value
        return
    leaf = name.split(".")[-1]
    if name.startswith("linear_attn"):
        yield from _of_delta(config, leaf, value)
        return
    if name.startswith("mamba"):
        yield from _of_state_space(config, leaf, what, value)
        return
    if leaf in ("alpha_p", "alpha_n"):
        yield f"feed_forward.xielu.{'positive' if leaf == 'alpha_p' else 'negative'}", value
        return
    if value.ndim == 3 or leaf in ("sinks", "gate_up_proj_bias", "down_proj_bias") or _corrects(leaf):
        yield from _of_experts(kind, leaf, value)
        return
    inner = "feed_forward.shared" if "shared" in name else "feed_forward"
    split = list(_split(kind, config, leaf, value))
    if split:
        yield from ((f"{part.replace('feed_forward', inner)}.{what}", piece) for part, piece in split)
        return
    found = next((mine for theirs, mine in _LINEAR.items() if re.search(rf"(^|\.)({theirs})$", name)), "")
    if not found:
        raise ValueError(f"{kind}: {name} has no name in the zoo")
    if not found.endswith("shared_gate"):
        found = found.replace("feed_forward", inner)
    heads = {"attention.query": config.num_heads, "attention.key": config.n_kv_heads}.get(found)
    if heads and kind in _NEIGHBOURS:
        value = _halves(value, heads, config.head_dim, config.rotated_size or config.head_dim)
    yield f"{found}.{what}", value


def _of_delta(c: TransformerConfig, leaf: str, value: Array) -> Iterator[tuple[str, Array]]:
    """Weights of gated linear attention: the channels of a key head stand together, and two rates of a value head."""
    d = c.delta
    assert d is not None
    if leaf == "in_proj_ba" and not d.channel_rank:
        value = value.reshape(d.key_heads, 2, -1, value.shape[-1]).transpose(0, 2, 1, 3).reshape(value.shape)
    if leaf == "conv1d":
        value = _grouped(c, value[:, 0]).reshape(d.key_heads, -1, d.kernel).transpose(2, 0, 1)[:, :, None]
    names = {
        "dt_bias": "core.decay.bias", "A_log": "core.decay.log_decay", "out_proj": "output.weight", "o_proj": "output.weight",
        "f_a_proj": "step_down.weight", "f_b_proj": "step.weight", "g_a_proj": "gate_down.weight", "g_b_proj": "gate.weight",
        "in_proj_qkvz": "mixed.weight", "in_proj_ba": "rates.weight", "conv1d": "core.convolution.weight",
    }  # fmt: skip
    yield f"attention.{names[leaf]}", value.reshape(-1) if leaf == "A_log" else value


def _of_state_space(c: TransformerConfig, leaf: str, what: str, value: Array) -> Iterator[tuple[str, Array]]:
    """Weights of state-space layers: of a group the queries, which come last in the class, stand before its keys."""
    s = c.state_space
    assert s is not None
    size = s.groups * s.state_size

    def keys(part: Array) -> Array:
        by_group = part.reshape(2, s.groups, s.state_size, *part.shape[1:])[::-1]
        return np.concatenate([*by_group], axis=1).reshape(part.shape)

    if leaf == "in_proj":
        gate, values, both, step = np.split(value, np.cumsum([s.width, s.width, 2 * size]))
        parts = {"gate": gate, "value": values, "key": keys(both), "step": step}
        yield from ((f"attention.{name}.{what}", part) for name, part in parts.items())
    elif leaf == "conv1d":
        value = value.reshape(s.width + 2 * size, -1)
        for name, heads, part in (
            ("convolution", s.heads, value[: s.width]),
            ("key_convolution", s.groups, keys(value[s.width :])),
        ):
            by_tap = part.reshape(heads, -1, part.shape[-1]).transpose(2, 0, 1)[:, :, None]
            yield f"attention.core.{name}.{what}", by_tap if what == "weight" else part[:, 0]
    else:
        names = {
            "dt_bias": "core.decay.bias",
            "A_log": "core.decay.log_decay",
            "D": "core.skip",
            "out_proj": f"output.{what}",
        }
        yield f"attention.{names[leaf]}", value


def _grouped(c: TransformerConfig, *values: Array) -> Array:
    """Rows of all queries, all keys and all values, and of what comes behind, as those of every key head."""
    assert c.delta is not None
    parts = [*np.split(values[0], np.cumsum([c.delta.key_heads * c.delta.key_size] * 2)), *values[1:]]
    rows = values[0].shape[-1]
    return np.concatenate([part.reshape(c.delta.key_heads, -1, rows) for part in parts], axis=1).reshape(-1, rows)


def _joined(c: TransformerConfig, state: dict[str, Any]) -> dict[str, Any]:
    """`state` with the projections of gated linear attention as Qwen3-Next has them."""
    import torch

    for owner in [name.removesuffix(".forget_gate.A_log") for name in state if name.endswith(".forget_gate.A_log")]:
        for name in [name for name in state if name.startswith(f"{owner}.")]:
            leaf = name.removeprefix(f"{owner}.").removeprefix("forget_gate.")
            state[f"{owner.replace('self_attn', 'linear_attn')}.{leaf}"] = state.pop(name)
    for owner in {name.rpartition(".")[0] for name in state if name.endswith("linear_attn.A_log")}:

        def rows(*leaves: str, owner: str = owner) -> list[Array]:
            names = [f"{owner}.{leaf}.weight" for leaf in leaves]
            return [state.pop(name).detach().numpy() for name in names if name in state]

        mixed, gate = rows("in_proj_qkv", "q_proj", "k_proj", "v_proj"), rows("in_proj_z", "g_proj")
        rates = rows("in_proj_b", "in_proj_a", "b_proj", "a_proj")
        assert c.delta is not None
        if gate or c.delta.channel_rank:
            state[f"{owner}.in_proj_qkvz.weight"] = torch.tensor(_grouped(c, np.concatenate(mixed), *gate))
            both = np.concatenate([rate.reshape(c.delta.key_heads, -1, rate.shape[-1]) for rate in rates], axis=1)
            state[f"{owner}.in_proj_ba.weight"] = torch.tensor(both.reshape(-1, both.shape[-1]))
    return state


def _norm(kind: str, config: TransformerConfig, name: str) -> str:
    """`post_attention_layernorm` stands where the class has no other name for it."""
    found = next((mine for theirs, mine in _NORMS.items() if re.search(rf"(^|\.)({theirs})$", name)), "")
    if found:
        return found
    return "attended_norm" if config.branch_norm == "after" or kind in _AFTER else "feed_forward_norm"


def _corrects(leaf: str) -> bool:
    """Whether it is what routers keep to balance the load."""
    return "correction" in leaf or leaf == "expert_bias"


def _of_experts(kind: str, leaf: str, value: Array) -> Iterator[tuple[str, Array]]:
    """Weights of experts, of gpt-oss with gate and up in turn; corrections; sinks."""
    experts = "feed_forward.experts"
    if leaf == "sinks":
        yield "attention.core.softmax.sink", value
    elif _corrects(leaf):
        yield "feed_forward.router.correction", value.reshape(-1)
    elif leaf.endswith("_bias"):
        parts = {"gate": value[:, ::2], "up": value[:, 1::2]} if leaf.startswith("gate") else {"down": value}
        yield from ((f"{experts}.{part}_bias", piece[:, None]) for part, piece in parts.items())
    else:
        value = value if kind in _TURNED else value.transpose(0, 2, 1)
        gate, up = (value[..., ::2], value[..., 1::2]) if kind == "gpt_oss" else np.split(value, 2, axis=-1)
        parts = {"down": value} if leaf == "down_proj" else {"gate": gate, "up": up}
        parts = {"up": value} if leaf == "up_proj" else parts
        yield from ((f"{experts}.{part}", piece) for part, piece in parts.items())


def _split(kind: str, c: TransformerConfig, leaf: str, value: Array) -> Iterator[tuple[str, Array]]:
    """What a class keeps in one projection and the zoo in several."""
    size, rest, latent = c.head_dim, value.shape[1:], c.latent_attention
    names = ("attention.query", "attention.key", "attention.value")
    if leaf in ("gate_up_proj", "input_linear"):
        yield from zip(("feed_forward.gate", "feed_forward.up"), np.split(value, 2), strict=True)
    elif leaf in ("qkv_proj", "c_attn"):
        yield from zip(names, np.split(value, [c.query_size, c.query_size + c.kv_size]), strict=True)
    elif leaf == "query_key_value":
        groups, each = (c.n_kv_heads, c.num_heads // c.n_kv_heads) if kind == "falcon" else (c.num_heads, 1)
        parts = np.split(value.reshape(groups, each + 2, size, *rest), [each, each + 1], axis=1)
        yield from zip(names, (part.reshape(-1, *rest) for part in parts), strict=True)
    elif c.attention_gate and leaf == "q_proj" and kind != "afmoe":
        query, gate = np.split(value.reshape(c.num_heads, 2 * size, *rest), 2, axis=1)
        yield from (("attention.query", query.reshape(-1, *rest)), ("attention.gate", gate.reshape(-1, *rest)))
    elif latent is not None and leaf in ("q_b_proj", "q_proj", "kv_b_proj", "kv_a_proj_with_mqa"):
        turns, plain = kind != "minicpm3", size - latent.rotary_head_dim
        if leaf == "kv_a_proj_with_mqa":
            whole, rotary, heads = value[: latent.key_value_rank], value[latent.key_value_rank :], 1
            left, right = "key_value_down", "key_rotary"
        else:
            heads = c.num_heads
            of_heads = value.reshape(heads, -1, *rest)
            whole, rotary = (part.reshape(-1, *rest) for part in np.split(of_heads, [plain], axis=1))
            left, right = ("key", "value") if leaf == "kv_b_proj" else ("query", "query_rotary")
        if turns and right != "value":
            rotary = _halves(rotary, heads, latent.rotary_head_dim, latent.rotary_head_dim)
        yield from ((f"attention.{left}", whole), (f"attention.{right}", rotary))


def _halves(value: Array, heads: int, size: int, rotated: int) -> Array:
    """Rows of heads, of which the rotated ones have their even dims first."""
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, size)]
    return value.reshape(heads, size, *value.shape[1:])[:, order].reshape(value.shape)


def main() -> int:
    import torch
    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_default_dtype(torch.float64)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for kind in sys.argv[1:] or TINY:
            found = difference(kind, Path(folder))
            worst = max(worst, found)
            print(f"{kind:24} {found:.1e}{'' if found < EXACT else '  differs'}", flush=True)
    return 0 if worst < EXACT else 1


if __name__ == "__main__":
    sys.exit(main())
