"""A network's dims from its Hugging Face config.json, as transformers 4 or 5 writes it; neither is needed."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from model_zoo.config import DEFAULT_SEQ_LENGTH, MOST_LAYERS, BlockKind, Experts, LatentSizes, TransformerConfig
from model_zoo.fact_types import typed
from model_zoo.families import ACTIVATIONS, FAMILIES, HARMLESS, KEYS, LACKING, LEFT_OUT, NEAREST, Family
from model_zoo.layer_kinds import CHUNKED, FULL, SLIDING, attention_types, kinds_of
from model_zoo.silent import SILENT
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json

FILE = "config.json"
_LARGEST_B = 1 << 22  # a config.json has some kilobytes; a saved graph may have gigabytes
_SECOND_TOKEN_WEIGHT = (
    0.3  # DeepSeek-V3's in most of its training (arXiv:2412.19437, 4.2); no size or time depends on it
)
_TELLING = {"model_type", "text_config", "architectures", "num_hidden_layers"}  # one of these is in every config.json
_NAMED = 3  # so many keys of a kind are named in a message


@dataclass(frozen=True)
class Described:
    """The network of a file, and what was left out or taken for something else."""

    config: TransformerConfig
    notes: tuple[str, ...] = ()


def file_of(name: str) -> Path | None:
    """The config.json that `name` is or, as a folder, holds; None if it is none."""
    path = Path(name)
    if path.is_dir():
        return path / FILE if (path / FILE).is_file() else None
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > _LARGEST_B:
        return None
    return path if path.name == FILE or _TELLING & _loaded(path).keys() else None


def read(path: Path, dims: Sequence[str] = (), seq_length: int | None = None, approximate: bool = False) -> Described:
    """The network that the config.json at `path` describes.

    Args:
        dims: other values of its keys, KEY=VALUE each.
        seq_length: tokens of a sample; None: 4096, or the positions of the network where these are fewer.
        approximate: what the zoo has not is taken for the nearest that takes no less time (`families.NEAREST`).

    Raises:
        InputError: for a file that is none, an unknown model_type, and keys that say what the zoo cannot express.
    """
    data = _loaded(path)
    text = data.get("text_config")
    notes = [f"{key} is left out: {why}" for key, why in LEFT_OUT.items() if data.get(key)]
    if isinstance(text, dict):
        outer = {key: data[key] for key in ("tie_word_embeddings",) if key in data}
        data = {"model_type": f"{data.get('model_type', '')}_text"} | text | outer
    for dim in dims:
        key, _, value = dim.partition("=")
        if not key.strip() or not value.strip():
            raise InputError(f"--dim {dim!r}: give KEY=VALUE, such as hidden_size=4096")
        data[key.strip()] = _value(value)
    try:
        found = _network(data, _name(path), seq_length, approximate)
    except InputError as error:
        raise InputError(f"{Path(path.parent.name, path.name)}: {error}") from None
    return Described(found.config, (*notes, *found.notes))


def _network(data: Mapping[str, Any], name: str, seq_length: int | None, approximate: bool) -> Described:
    kind = str(data.get("model_type", ""))
    family = FAMILIES.get(kind) or FAMILIES.get(kind.removesuffix("_text"))
    if family is None:
        known = get_close_matches(kind, FAMILIES, cutoff=0.5) or ["llama", "qwen3", "deepseek_v3"]
        raise InputError(
            f"model_type {kind!r} is not known (docs/howto/config_json.md has the list). Where it is a known one by another"
            f" name, give that: --dim model_type=NAME, such as {' or '.join(known)}"
            if kind
            else f"lacks model_type: give --dim model_type=NAME, such as {' or '.join(known)}"
        )
    said, refused = _said(data, family)
    _approximated(refused, approximate)
    _require_head(data)
    facts: dict[str, Any] = {fact: typed(key, fact, value) for fact, (key, value) in said.items()}
    silent = SILENT.get(kind) or SILENT.get(kind.removesuffix("_text")) or {}
    facts = {**silent, **family.silent, **facts, **family.fixed}
    _require_parts(family, facts)
    _rope(facts)
    layers = _number(facts, "num_layers")
    if layers > MOST_LAYERS:
        raise InputError(f"num_hidden_layers is {layers}; it must be at most {MOST_LAYERS}")
    facts["seq_length"] = seq_length or min(DEFAULT_SEQ_LENGTH, facts.get("max_position_embeddings") or math.inf)
    for part in sorted({*attention_types(facts, layers)} - {FULL, SLIDING}):
        if part != CHUNKED:
            refused.setdefault(_ATTENTION.get(part, part), []).append("layer_types")
        elif facts["seq_length"] > (facts.get("chunk") or 0):
            refused.setdefault("chunked attention", []).append("attention_chunk_size")
    if facts.get("tempers") and facts["seq_length"] >= (facts.get("tempered_from") or 0):
        refused["queries scaled by position"] = ["attn_temperature_tuning"]  # of later positions than that alone
    notes = _approximated(refused, approximate)
    if approximate:
        facts["layer_types"] = [t if t in (SLIDING, CHUNKED) else FULL for t in attention_types(facts, layers)]
    return Described(_config(name, facts, kinds_of(facts, layers)), notes)


_ATTENTION = {
    "linear_attention": "gated linear attention",
    "indexed_attention": "sparse attention with an indexer",
}


def _said(data: Mapping[str, Any], family: Family) -> tuple[dict[str, tuple[str, Any]], dict[str, list[str]]]:
    """What the file says, by facts, each with its key; and the keys that say what the zoo cannot express, by the part that they
    bring.
    """
    said: dict[str, tuple[str, Any]] = {}
    refused = {part: [key] for key, part in family.parts.items()}
    for key, value in data.items():
        fact = family.keys.get(key, KEYS.get(key))
        if fact is None:
            if key not in HARMLESS and key not in LEFT_OUT and value is not None and (value or key not in LACKING):
                refused.setdefault(LACKING.get(key, ""), []).append(key)
        elif fact and value is not None and family.fixed.get(fact, value) != value:
            refused.setdefault(f"{key} {str(value)[:40]!r} in this model_type", []).append(key)
        elif fact and not (value is None and fact in said):
            said[fact] = key, value
    return said, refused


def _approximated(refused: Mapping[str, list[str]], approximate: bool) -> tuple[str, ...]:
    """What is taken for what. InputError for what may not be, or has no upper bound."""
    left = {part: keys for part, keys in refused.items() if not (approximate and part in NEAREST)}
    if left:
        lacking = [f"{part} ({_some(keys)})" for part, keys in left.items() if part][:_NAMED]
        said = [f"the model zoo has no {'; '.join(lacking)}"] if lacking else []
        said += [f"it is not known what {_some(left[''])} changes"] if "" in left else []
        bounded = [part for part in left if part in NEAREST]
        way = "give --dim KEY=VALUE where it is to be planned without that"
        if any("model_type" in keys for keys in left.values()):
            way = "plan another network of these sizes, --dim model_type=NAME"
        if bounded and len(bounded) == len(left):
            way = f"give --approximate to take it for {NEAREST[bounded[0]]}"
        raise InputError(f"{'; '.join(said)}: {way}")
    return tuple(f"{part} ({_some(keys)}) is taken for: {NEAREST[part]}" for part, keys in refused.items())


def _some(keys: list[str]) -> str:
    keys = list(dict.fromkeys(keys))
    return ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


def _config(name: str, facts: dict[str, Any], kinds: tuple[BlockKind, ...]) -> TransformerConfig:
    heads, latent = _number(facts, "num_heads"), _latent(facts)
    hidden = _number(facts, "hidden_size")
    experts = _experts(facts) if any(kind.experts for kind in kinds) else None
    head_dim = facts.get("head_dim") or hidden // heads
    rotary: dict[str, Any] = {}
    if latent is not None:
        head_dim = facts["plain_head_dim"] + latent.rotary_head_dim
    else:
        rotary = _rotary(facts, head_dim)
    dense = sum(not kind.experts for kind in kinds) if experts is not None else 0
    prefix = tuple(BlockKind(experts=experts is not None and n >= dense) for n in range(len(kinds)))
    score_size = facts.get("score_size") or 0
    config: dict[str, Any] = {
        "hidden_size": hidden, "num_layers": len(kinds), "num_heads": heads,
        "n_kv_heads": facts.get("n_kv_heads") or heads, "head_dim": head_dim, "vocab_size": _number(facts, "vocab_size"),
        "intermediate_size": facts.get("intermediate_size") or (experts and not dense and experts.intermediate_size)
        or _number(facts, "intermediate_size"),
        "max_position_embeddings": facts.get("max_position_embeddings") or DEFAULT_SEQ_LENGTH,
        "norm": facts.get("norm", "rms_norm"), "norm_epsilon": facts.get("norm_epsilon") or 1e-6,
        "activation": _activation(facts), "position": "rotary",
        "tied_embeddings": bool(facts.get("tied_embeddings")), "qk_norm": _qk_norm(facts),
        "branch_norm": facts.get("branch_norm", "before"), "score_size": 0 if score_size == head_dim else score_size,
        "score_cap": facts.get("score_cap") or 0.0, "logit_cap": facts.get("logit_cap") or 0.0,
        "sinks": bool(facts.get("sinks")), "head_bias": bool(facts.get("head_bias")),
        "embedding_scale": math.sqrt(hidden) if facts.get("scales_embedding") else 1.0,
        "rotary_base": float(facts.get("rotary_base") or 10000.0), "latent_attention": latent, "experts": experts,
        "second_token_weight": _second_token_weight(facts), "dense_layers": 0 if kinds != prefix else dense,
        "kinds": kinds if kinds != prefix else (), "seq_length": int(facts["seq_length"]),
    }  # fmt: skip
    config["attention"] = "self" if config["score_cap"] or config["sinks"] else "flash"
    return TransformerConfig(name=name, **config | rotary | _biases(facts, latent))


def _latent(facts: dict[str, Any]) -> LatentSizes | None:
    if not facts.get("latent.key_value_rank"):
        return None
    for name in ("plain_head_dim", "latent.rotary_head_dim", "latent.value_head_dim"):
        _number(facts, name)
    if facts["latent.rotary_head_dim"] % 2:
        raise InputError(f"qk_rope_head_dim is {facts['latent.rotary_head_dim']}: give an even number")
    sizes = {
        name: facts.get(f"latent.{name}") or 0 for name in LatentSizes.__dataclass_fields__ if name != "pads_values"
    }
    return LatentSizes(**sizes, pads_values=False)


def _experts(facts: dict[str, Any]) -> Experts:
    if facts.get("topk_method") == "greedy":
        facts |= {"experts.groups": 1, "experts.groups_per_token": 1}
    said = {field: facts.get(f"experts.{field}") for field in Experts.__dataclass_fields__}
    of: dict[str, Any] = {field: value for field, value in said.items() if value is not None}
    number, per_token, size = (_number(facts, f"experts.{f}") for f in ("number", "per_token", "intermediate_size"))
    if facts.get("uses_correction") is False:
        raise InputError("use_routing_bias false: the zoo's sigmoid routing has a correction")
    shared = facts.get("experts.shared_size") or (facts.get("shared_num") or 0) * size
    gate = bool(facts.get("experts.shared_gate")) and shared > 0
    groups, best = of.get("groups") or 1, of.get("groups_per_token") or 1
    if number % groups or best > groups or per_token > number // groups * best:
        raise InputError(
            f"num_experts_per_tok {per_token} of {number} experts, from {best} (topk_group) of {groups} (n_group) groups, is none"
        )
    of |= {"groups": groups, "groups_per_token": best}
    return Experts(**of | {"number": number, "per_token": per_token, "shared_size": shared, "shared_gate": gate})


def _rotary(facts: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    share = facts.get("rotated_share")
    size = facts.get("rotated_size") or (int(head_dim * share) if share else head_dim)
    if size % 2 or not 0 < size <= head_dim:
        raise InputError(f"{size} dims of a head of {head_dim} are rotated: give an even number of them")
    return {"rotated_size": 0 if size == head_dim else size}


def _rope(facts: dict[str, Any]) -> None:
    """What transformers 5 says of the rotation in one record, or in one for each attention."""
    rope = facts.pop("rope", None) or {}
    local, rope = (
        typed("rope_parameters", "rope", rope.get(kind)) or other for kind, other in ((SLIDING, {}), (FULL, rope))
    )
    for of, key, fact in (
        (rope, "rope_theta", "rotary_base"),
        (rope, "partial_rotary_factor", "rotated_share"),
        (local, "rope_theta", "local_base"),
    ):
        if of.get(key) is not None:
            facts[fact] = typed(key, fact, of[key])
    if facts.get("local_base") == facts.get("rotary_base"):
        facts.pop("local_base", None)


def _qk_norm(facts: Mapping[str, Any]) -> Any:
    return facts.get("norm_of_heads", "head") if facts.get("uses_qk_norm") else facts.get("qk_norm")


def _activation(facts: Mapping[str, Any]) -> str:
    name = facts.get("activation") or "silu"
    if name not in ACTIVATIONS:
        raise InputError(f"hidden_act {name!r}: the zoo's gated feed-forward knows {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _biases(facts: Mapping[str, Any], latent: LatentSizes | None) -> dict[str, bool]:
    everywhere, attention = bool(facts.get("bias")), bool(facts.get("attention_bias") or facts.get("bias"))
    feed_forward, output = everywhere or bool(facts.get("mlp_bias")), attention or bool(facts.get("output_bias"))
    if feed_forward and not output:
        raise InputError("mlp_bias: the zoo gives a feed-forward biases where attention's output has one too")
    if latent is not None and attention:
        raise InputError("attention_bias: the zoo's latent attention has no biases")
    return {
        "qkv_bias": attention or bool(facts.get("qkv_bias")),
        "output_bias": output and not feed_forward,
        "linear_bias": feed_forward,
    }


def _second_token_weight(facts: Mapping[str, Any]) -> float:
    number = facts.get("second_tokens") or 0
    if number > 1:
        raise InputError(f"num_nextn_predict_layers {number}: the zoo predicts one more token; give --dim to plan one")
    if number and facts.get("tied_embeddings"):
        raise InputError("num_nextn_predict_layers with tie_word_embeddings: the zoo predicts one more token untied")
    return _SECOND_TOKEN_WEIGHT if number else 0.0


def _require_parts(family: Family, facts: Mapping[str, Any]) -> None:
    """What makes the family: experts (0 of them is said so), and latent attention."""
    of = {*family.fixed, *family.silent, *family.keys.values()}
    if any(fact.startswith("experts.") for fact in of) and facts.get("experts.number") != 0:
        _number(facts, "experts.number")
    if any(fact.startswith("latent.") for fact in of) or family.keys.get("num_key_value_heads") == "":
        _number(facts, "latent.key_value_rank")


def _require_head(data: Mapping[str, Any]) -> None:
    said = data.get("architectures")
    names = [str(name) for name in said] if isinstance(said, list) else []
    wrong = [name for name in names if re.search(r"For(Sequence|Token)Classification|ForQuestionAnswering", name)]
    if wrong:
        raise InputError(f"architectures {wrong[0]}: the model zoo trains the next token; take the ForCausalLM of it")


def _number(facts: Mapping[str, Any], fact: str) -> int:
    """A size of at least 1."""
    keys = [key for key, meant in KEYS.items() if meant == fact]
    value = facts.get(fact)
    if value is None:
        raise InputError(f"lacks {' or '.join(keys[:2])}: give it, or --dim {keys[0]}=N")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{keys[0]} is {value!r}: give a whole number above 0")
    return value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _loaded(path: Path) -> dict[str, Any]:
    data = read_json(path, "a config.json or a saved graph", "give another file")
    if not isinstance(data, dict):
        raise InputError(f"{path} is no config.json: it holds no record of keys")
    return data


def _name(path: Path) -> str:
    stem = path.resolve().parent.name if path.name == FILE else path.stem
    return re.sub(r"[^\w.-]+", "_", stem) or "network"


def described(data: Mapping[str, Any], name: str) -> TransformerConfig:
    """The network called `name` that the `data` of a config.json describe. Errors: those of `read`, but for the file."""
    return _network(data, name, None, False).config
