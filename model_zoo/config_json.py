"""A network's dims from its Hugging Face config.json, as transformers 4 or 5 writes it; neither is needed."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from model_zoo import derived
from model_zoo.config import DEFAULT_SEQ_LENGTH, MOST_LAYERS, BlockKind, TransformerConfig
from model_zoo.fact_types import typed
from model_zoo.families import FAMILIES, HARMLESS, KEYS, LACKING, LEFT_OUT, NEAREST, TOWERLESS, Family
from model_zoo.layer_kinds import CHUNKED, FULL, INDEXED, LINEAR, MLP, MOE, SLIDING, attention_types, kinds_of
from model_zoo.silent import SILENT
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import read_json

FILE = "config.json"
_LARGEST_B = 1 << 22  # a config.json has some kilobytes; a saved graph may have gigabytes
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
    data, notes = _text_network(_loaded(path))
    written = dict(data)
    for dim in dims:
        key, _, value = dim.partition("=")
        if not key.strip() or not value.strip():
            raise InputError(f"--dim {dim!r}: give KEY=VALUE, such as hidden_size=4096")
        data[key.strip()] = _value(value)

    def described_by(data: Mapping[str, Any]) -> Described:
        return _network(data, _name(path), seq_length, approximate)

    try:
        found = described_by(data)
    except InputError as error:
        raise InputError(f"{Path(path.parent.name, path.name)}: {error}") from None
    return Described(found.config, (*notes, *_idle(data, written, found, described_by), *found.notes))


def _idle(
    data: Mapping[str, Any],
    written: Mapping[str, Any],
    found: Described,
    described_by: Callable[[Mapping[str, Any]], Described],
) -> Iterator[str]:
    """What is to be said of values of `data` other than those `written` that change nothing of the network `found`."""
    for key in (key for key, value in data.items() if value != written.get(key)):
        without = {name: written.get(name) if name == key else value for name, value in data.items()}
        try:
            changes = described_by(without) != found
        except InputError:
            continue
        if not changes:
            yield f"--dim {key} changes nothing: another key decides, or nothing that is planned depends on it"


def _text_network(data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What a file says of its text network, and of the parts beside it, each of which a line names."""
    levels = [data]
    for key in ("thinker_config", "text_config", "llm_config", "language_config"):
        if isinstance(levels[-1].get(key), dict):
            levels.append(levels[-1][key])
    said = (f"{key} is left out: {why}" for level in levels for key, why in LEFT_OUT.items() if level.get(key))
    notes = list(dict.fromkeys(said))
    if len(levels) == 1:
        return data, notes
    beside = [key for level in levels[:-1] for key, value in level.items() if isinstance(value, dict) and value]
    towers = [key for key in beside if key not in TOWERLESS]
    if towers or not notes:
        named = _some(towers) or "what stands beside the text network"
        notes.append(f"{named} is left out: what is planned is the text network")
    around = levels[-2]
    outer = {key: around[key] for key in ("tie_word_embeddings",) if key in around}
    return {"model_type": f"{around.get('model_type', '')}_text"} | levels[-1] | outer, notes


def _network(data: Mapping[str, Any], name: str, seq_length: int | None, approximate: bool) -> Described:
    kind = str(data.get("model_type", ""))
    family = FAMILIES.get(kind) or FAMILIES.get(kind.removesuffix("_text"))
    if family is None:
        known = get_close_matches(kind.removesuffix("_text"), FAMILIES, cutoff=0.75)
        such = f", such as {' or '.join(known)}" if known else ""
        raise InputError(
            f"model_type {kind!r} is not known (docs/howto/config_json.md has the list). Where it is a known one by another"
            f" name, give that: --dim model_type=NAME{such}"
            if kind
            else "lacks model_type: give --dim model_type=NAME, such as llama or qwen3 or deepseek_v3"
        )
    said, refused = _said(data, family)
    _approximated(refused, approximate)
    _require_head(data)
    facts: dict[str, Any] = {fact: typed(key, fact, value) for fact, (key, value) in said.items()}
    silent = SILENT.get(kind) or SILENT.get(kind.removesuffix("_text")) or {}
    facts = {**silent, **family.silent, **facts, **family.fixed}
    _require_parts(family, facts)
    derived.read_rope(facts)
    derived.fill_delta(facts)
    derived.fill_state_space(facts)
    derived.fill_layers(facts)
    layers = derived.number_of(facts, "num_layers")
    if layers > MOST_LAYERS:
        raise InputError(f"num_hidden_layers is {layers}; it must be at most {MOST_LAYERS}")
    facts["seq_length"] = seq_length or min(
        DEFAULT_SEQ_LENGTH, facts.get("max_position_embeddings") or facts.get("longest") or math.inf
    )
    there = {
        FULL,
        SLIDING,
        *((MOE, MLP) if facts.get("one_branch") else ()),
        *([LINEAR] if {"delta.key_heads", "state_space.heads"} & facts.keys() else []),
    }
    for part in sorted({*attention_types(facts, layers)} - there):
        if part == INDEXED and "indexer.heads" in facts:
            continue
        if part != CHUNKED:
            refused.setdefault(_ATTENTION.get(part, part), []).append("layer_types")
        elif facts["seq_length"] > (facts.get("chunk") or 0):
            refused.setdefault("chunked attention", []).append("attention_chunk_size")
    if facts.get("tempers") and facts["seq_length"] >= (facts.get("tempered_from") or 0):
        refused["queries scaled by position"] = ["attn_temperature_tuning"]  # of later positions than that alone
    notes = _approximated(refused, approximate)
    if approximate:
        facts["layer_types"] = [t if t in (CHUNKED, *there) else FULL for t in attention_types(facts, layers)]
    return Described(_config(name, facts, kinds_of(facts, layers)), notes)


_ATTENTION = {
    "linear_attention": "gated linear attention",
    INDEXED: "sparse attention with an indexer",
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
        first = next(key for keys in left.values() for key in keys)
        way = f"give --dim {first}=null where it is to be planned without that"
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
    heads, latent = derived.number_of(facts, "num_heads"), derived.latent_sizes(facts)
    hidden = derived.number_of(facts, "hidden_size")
    experts = derived.experts_of(facts) if any(kind.experts for kind in kinds) else None
    head_dim = facts.get("head_dim") or hidden // heads
    rotary: dict[str, Any] = {}
    if latent is not None:
        head_dim = facts["plain_head_dim"] + latent.rotary_head_dim
    else:
        rotary = derived.rotated_size(facts, head_dim)
    dense = sum(not kind.experts for kind in kinds) if experts is not None else 0
    prefix = tuple(BlockKind(experts=experts is not None and n >= dense) for n in range(len(kinds)))
    score_size = derived.score_size(facts)
    if facts.get("embedding_size") not in (None, hidden):
        raise InputError(
            f"word_embed_proj_dim {facts['embedding_size']}: the zoo's embeddings are as wide as its blocks"
        )
    config: dict[str, Any] = {
        "hidden_size": hidden, "num_layers": len(kinds), "num_heads": heads,
        "n_kv_heads": derived.kv_heads(facts, heads), "head_dim": head_dim, "vocab_size": derived.number_of(facts, "vocab_size"),
        "intermediate_size": facts.get("intermediate_size") or (experts and not dense and experts.intermediate_size)
        or (facts.get("wide") and 4 * hidden) or derived.number_of(facts, "intermediate_size"),
        "norm": facts.get("norm", "rms_norm"), "norm_epsilon": facts.get("norm_epsilon") or 1e-6,
        "activation": derived.activation(facts),
        "tied_embeddings": bool(facts.get("tied_embeddings")), "qk_norm": derived.qk_norm(facts),
        "branch_norm": derived.branch_norm(facts), "score_size": 0 if score_size == head_dim else score_size,
        "score_cap": facts.get("score_cap") or 0.0, "logit_cap": facts.get("logit_cap") or 0.0,
        "sinks": bool(facts.get("sinks")), "head_bias": bool(facts.get("head_bias")),
        "rotary_base": float(facts.get("rotary_base") or 10000.0), "latent_attention": latent, "experts": experts,
        "indexer": derived.indexer_sizes(facts, latent),
        **derived.linear_sizes(facts, any(kind.linear for kind in kinds)),
        "attention_gate": bool(facts.get("attention_gate")),
        "second_token_weight": derived.second_token_weight(facts), "dense_layers": 0 if kinds != prefix else dense,
        "kinds": kinds if kinds != prefix else (), "seq_length": int(facts["seq_length"]),
    }  # fmt: skip
    config["attention"] = "self" if config["score_cap"] or config["sinks"] else "flash"
    more = derived.biases(facts, latent) | derived.scales(facts, hidden, len(kinds)) | derived.positions(facts)
    return TransformerConfig(name=name, **config | rotary | more)


def _require_parts(family: Family, facts: Mapping[str, Any]) -> None:
    """What makes the family: experts (0 of them is said so), and latent attention."""
    of = {*family.fixed, *family.silent, *family.keys.values()}
    if any(fact.startswith("experts.") for fact in of) and facts.get("experts.number") != 0:
        derived.number_of(facts, "experts.number")
    if any(fact.startswith("latent.") for fact in of) or family.keys.get("num_key_value_heads") == "":
        derived.number_of(facts, "latent.key_value_rank")


def _require_head(data: Mapping[str, Any]) -> None:
    said = data.get("architectures")
    names = [str(name) for name in said] if isinstance(said, list) else []
    wrong = [name for name in names if re.search(r"For(Sequence|Token)Classification|ForQuestionAnswering", name)]
    if wrong:
        raise InputError(f"architectures {wrong[0]}: the model zoo trains the next token; take the ForCausalLM of it")


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
