"""Writes config.json files by transformers' own classes, and counts the parameters of their networks.

    python -m venv oracle && oracle/bin/pip install torch transformers
    oracle/bin/python benchmarks/config_files.py            # compares with what is stored; exit code 1 where they differ
    oracle/bin/python benchmarks/config_files.py --write    # writes the files and the table again

The dims are those of benchmarks/data/published_networks.csv, each row with its source. One more file has the defaults of classes
that no row has, with what is `GIVEN` where they take no sensible value by themselves. Counted is the network on torch's meta
device, without weights: parameters, each once where two are tied, and apart the corrections that routers keep as buffers. A
model_type that transformers has no class for is written and counted by the class of the same form (`AS`).
"""

import argparse
import csv
import io
import json
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "benchmarks" / "data" / "published_networks.csv"
FILES = ROOT / "tests" / "data" / "configs"
COUNTS = FILES / "parameters.csv"
DEFAULTS = FILES / "class_defaults.json"
AS = {
    "internlm2": "llama", "telechat3": "llama", "kimi_k2": "deepseek_v3", "telechat3_moe": "deepseek_v3",
    "gemma3": "gemma3_text",
}  # fmt: skip
NO_CLASS = ("baichuan", "kimi_k3")
"""Neither transformers nor a class of the same form has these."""

_GRANITE = {
    "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125, "logits_scaling": 16.0,
}  # fmt: skip
_MORE: Mapping[str, dict[str, Any]] = {
    "DeepSeek-V2": {
        "topk_method": "group_limited_greedy",
        "n_group": 8,
        "topk_group": 3,
        "routed_scaling_factor": 16.0,
    },
    "DeepSeek-V2-Lite": {"topk_method": "greedy", "n_group": 1, "topk_group": 1},
    "Kimi-K2": {"n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827},
    "TeleChat3-105B-A4.7B": {"n_group": 1, "topk_group": 1},
    "Phi-3.5-MoE": {"lm_head_bias": True, "attention_bias": True},
    "Gemma-2-27B": {"query_pre_attn_scalar": 144},
    "GLM-4.5-Air": {"attention_bias": True},
    "GLM-4.7": {"attention_bias": True, "use_qk_norm": True},
    "Llama-4-Maverick-17B-128E": {"interleave_moe_layer_step": 2, "use_qk_norm": False},
    "Mistral-7B-v0.1": {"sliding_window": 4096},
    "MiniMax-M2/M2.5": {"rotary_dim": 64},
    "Granite-4.0-H-Small": _GRANITE
    | {
        "layer_types": ["full_attention" if n % 10 == 5 else "linear_attention" for n in range(40)],
        "mamba_d_state": 128,
        "shared_intermediate_size": 1536,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
    },
    "Nemotron-3-Nano-30B-A3B": {
        "hybrid_override_pattern": "MEMEM*E" * 5 + "MEMEMEM*E" + "MEMEMEME",
        "moe_shared_expert_intermediate_size": 3712,
        "mamba_num_heads": 64,
        "routed_scaling_factor": 2.5,
        "max_position_embeddings": 262144,
    },
    "Nemotron-H-8B": {
        "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 3 + "M-M-M-M-M-",
        "max_position_embeddings": 8192,
    },
    "Bamba-9B": {"attn_layer_indices": [9, 18, 27], "mamba_d_state": 128},
    "gpt-oss-20b": {"layer_types": ["sliding_attention", "full_attention"] * 12},
}
"""What a row's `other_parts` say that its columns do not."""

_NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_GROUPED = {"head_dim": 128, "num_key_value_heads": 8}
_PLAIN = """smollm3 ernie4_5 qwen2_vl qwen3_vl qwen3_vl_moe qwen2_moe gemma olmo2 olmoe ministral3 mistral4 cwm iquestcoder
    exaone exaone4 exaone_moe helium youtu hy_v3 paddleocr_vl qwen2_5_omni_thinker glm4v glm_ocr olmo hyperclovax minicpm3
    cohere cohere2 stablelm starcoder2 phi persimmon gpt_neox arcee jais2 flex_olmo mellum solar_open sarvam_moe sarvam_mla
    afmoe apertus granite_swa vaultgemma glm4_moe_lite deepseek_v32 glm_moe_dsa qwen3_next qwen3_5 qwen3_5_moe bamba nemotron_h
    mamba2"""
GIVEN: Mapping[str, dict[str, Any]] = {kind: {} for kind in _PLAIN.split()} | {
    "ministral": _GROUPED, "hunyuan_v1_dense": _GROUPED, "hunyuan_vl": _GROUPED, "nemotron": {"num_key_value_heads": 8},
    "hunyuan_v1_moe": _GROUPED | {"num_experts": 64, "moe_topk": 8, "intermediate_size": 3072},
    "dots1": {"n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1},
    "glm4v_moe": {"head_dim": 128}, "qwen3_omni_moe_thinker": {"num_attention_heads": 32, "head_dim": 128},
    "granite": _GRANITE, "granitemoe": _GRANITE, "granitemoehybrid": _GRANITE, "granitemoe_swa": _GRANITE,
    "granitemoeshared": _GRANITE | {"shared_intermediate_size": 1024},
    "bloom": {"hidden_size": 4096, "n_layer": 30, "n_head": 32},
    "gpt2": _NO_DROPOUT, "gpt_bigcode": _NO_DROPOUT, "opt": {"dropout": 0.0},
    "seed_oss": {"attention_dropout": 0.0, "residual_dropout": 0.0},
    "olmo_hybrid": {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
}  # fmt: skip
"""What each class is called with."""

_COLUMNS = {
    "hidden": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "ffn": "intermediate_size", "vocab": "vocab_size",
}  # fmt: skip
_EXPERTS = {
    "deepseek": ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"),
    "glm": ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"),
    "ernie": ("moe_num_experts", "moe_k", "moe_intermediate_size", "moe_num_shared_experts"),
    "kimi_linear": ("num_experts", "num_experts_per_token", "moe_intermediate_size", "num_shared_experts"),
    "nemotron_h": ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", ""),
    "longcat": ("n_routed_experts", "moe_topk", "expert_ffn_hidden_size", ""),
    "qwen3": ("num_experts", "num_experts_per_tok", "moe_intermediate_size", ""),
    "": ("num_local_experts", "num_experts_per_tok", "", ""),
}
"""Names of the number of experts, of those of a token, of an expert's width and of the number of shared ones."""


def arguments(row: Mapping[str, str], kind: str) -> dict[str, Any]:
    """What the class of `kind` is called with for a row of the table."""
    given: dict[str, Any] = {key: int(row[column]) for column, key in _COLUMNS.items() if int(row[column])}
    if int(row["experts"]):
        number, per_token, width, shared = next(names for start, names in _EXPERTS.items() if kind.startswith(start))
        given |= {number: int(row["experts"]), per_token: int(row["topk"])}
        given[width or "intermediate_size"] = int(row["moe_ffn"])
        if shared and int(row["shared_ffn"]):
            given[shared] = int(row["shared_ffn"]) // int(row["moe_ffn"])
        if kind.startswith(("deepseek", "glm")):
            given["first_k_dense_replace"] = int(row["dense_first"])
        if kind.startswith("qwen3"):
            given["norm_topk_prob"] = True
            given |= {"shared_expert_intermediate_size": int(row["shared_ffn"])} if int(row["shared_ffn"]) else {}
        if kind.startswith("llama4"):
            given["intermediate_size_mlp"] = int(row["ffn"])
    if row["mla_q/kv/rope/v"] and "-" not in row["mla_q/kv/rope/v"]:
        query, key_value, rotary, value = row["mla_q/kv/rope/v"].split("/")
        given |= {
            "q_lora_rank": None if query == "none" else int(query), "kv_lora_rank": int(key_value),
            "qk_rope_head_dim": int(rotary), "qk_nope_head_dim": int(row["head_dim"]) - int(rotary),
            "v_head_dim": int(value),
        }  # fmt: skip
        del given["head_dim"]
    if kind.startswith(("deepseek_v3", "glm4_moe")):
        given["num_nextn_predict_layers"] = int(row["mtp"])
    if kind == "falcon":
        given = {key: value for key, value in given.items() if key not in ("head_dim", "num_key_value_heads")}
    return given | {"tie_word_embeddings": row["tied"] == "yes"} | _MORE.get(row["model"], {})


def text_of(row: Mapping[str, str]) -> str:
    """The config.json of a row, as its class writes it."""
    from transformers import CONFIG_MAPPING

    kind = AS.get(row["model_type"], row["model_type"])
    outer = CONFIG_MAPPING[kind]
    parts = getattr(outer, "sub_configs", {})
    given = arguments(row, kind)
    config = outer(text_config=given) if "text_config" in parts else outer(**given)
    data = json.loads(config.to_json_string(use_diff=True))
    data["model_type"] = row["model_type"] if row["model_type"] != "gemma3" else kind
    return json.dumps(data, indent=1) + "\n"


def count(data: Mapping[str, Any]) -> tuple[int, int]:
    """Parameters of the text network of a config.json, and corrections in buffers of its routers."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = AS.get(data["model_type"], data["model_type"])
    plain = {
        key: value for key, value in data.items() if key != "time_step_limit"
    }  # a list that from_dict does not read
    config = CONFIG_MAPPING[kind].from_dict({**plain, "model_type": kind})
    is_text = "text_config" not in data and kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    build = AutoModelForCausalLM if is_text else AutoModelForImageTextToText
    with torch.device("meta"):
        model = build.from_config(config)
    if getattr(config, "tie_word_embeddings", False):
        model.tie_weights()
    named = "language_model|lm_head" if "text_config" in data else ""
    text = {name: p for name, p in model.named_parameters() if re.search(named, name)}
    corrections = sum(b.numel() for name, b in model.named_buffers() if name.endswith("e_score_correction_bias"))
    return sum(p.numel() for p in text.values()), corrections


def defaults() -> str:
    """The defaults of a class and its counts, a line for every class; of a multimodal one those of its text network."""
    from transformers import CONFIG_MAPPING

    lines = []
    for kind, given in sorted(GIVEN.items()):
        outer = CONFIG_MAPPING[kind]
        is_text = "text_config" not in getattr(outer, "sub_configs", {})
        config = outer(**given) if is_text else outer(text_config=given)
        data = json.loads(config.to_json_string(use_diff=True))
        if not is_text:
            data = {key: data[key] for key in ("model_type", "text_config", "tie_word_embeddings") if key in data}
        parameters, corrections = count(data)
        said = {"parameters": parameters, "corrections_in_buffers": corrections, "given": given, "config": data}
        lines.append(f"{json.dumps(kind)}: {json.dumps(said)}")
        print(kind, parameters, corrections, file=sys.stderr)
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files and the table again")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = [row for row in csv.DictReader(ROWS.open(encoding="utf-8")) if row["model_type"] not in NO_CLASS]
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("file", "model", "counted_as", "parameters", "corrections_in_buffers"))
    wrong = []
    for row in rows:
        file = FILES / f"{re.sub(r'[^a-z0-9]+', '_', row['model'].lower()).strip('_')}.json"
        text = text_of(row)
        if chosen.write:
            file.write_text(text, encoding="utf-8")
        elif file.read_text(encoding="utf-8") != text:
            wrong.append(file.name)
        counted = AS.get(row["model_type"], row["model_type"])
        writer.writerow((file.name, row["model"], counted, *count(json.loads(text))))
        print(table.getvalue().splitlines()[-1], file=sys.stderr)
    for file, text in ((COUNTS, table.getvalue()), (DEFAULTS, defaults())):
        if chosen.write:
            file.write_text(text, encoding="utf-8")
        elif file.read_text(encoding="utf-8") != text:
            wrong.append(file.name)
    for name in wrong:
        print(f"differs from what is stored: {name}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
