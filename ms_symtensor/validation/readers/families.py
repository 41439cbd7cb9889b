"""What tables leave out about a model because its name says it: vocabulary, kind of feed-forward, biases, latent attention."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from model_zoo.config import LatentSizes, TransformerConfig
from ms_symtensor.validation.configuration import transformer


@dataclass(frozen=True)
class Family:
    """Facts that all models of a name share: what `transformer` takes; `vocab_size` 0: tables have to give it."""

    vocab_size: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    shared_experts: int = 0


def _family(vocab_size: int, shared_experts: int = 0, **facts: Any) -> Family:
    return Family(vocab_size, facts, shared_experts)


def _gpt(vocab_size: int = 50257, **facts: Any) -> Family:
    """As GPT-2, but for `facts`."""
    known: dict[str, Any] = {"activation": "gelu", "norm": "layer_norm", "position": "learned", "tied_embeddings": True}
    return Family(vocab_size, known | {"linear_bias": True, "qkv_bias": True} | facts)


DEEPSEEK_ATTENTION = {
    "latent_attention": LatentSizes(query_rank=1536, key_value_rank=512, rotary_head_dim=64, value_head_dim=128),
    "head_dim": 128 + 64,
}

# config.json of each model on huggingface.co; the first name that occurs counts, so the longer ones stand first
FAMILIES = (
    ("deepseekv?3", _family(129280, 1, dense_layers=3, second_token_weight=1.0, **DEEPSEEK_ATTENTION)),
    ("deepseekv?2", _family(102400, 2, dense_layers=1, **DEEPSEEK_ATTENTION)),
    ("codellama", _family(32016)),
    ("llama3", _family(128256)),
    ("llama|mixtral(?!8x22b)", _family(32000)),
    ("mixtral8x22b", _family(32768)),
    ("mistral", _family(32000, windows=(4096, 1))),
    ("qwen3", _family(151936, head_dim=128)),
    ("qwen(25|2|15)(0|0point)5b|qwen215b", _family(151936, qkv_bias=True, tied_embeddings=True)),
    ("qwen", _family(151936, qkv_bias=True)),
    ("baichuan2", _family(125696)),
    ("baichuan|yi34b", _family(64000)),
    ("glm4", _family(151552, qkv_bias=True)),
    ("glm|codegeex", _family(65024, qkv_bias=True)),
    ("aquila", _family(100008)),
    ("internlm2", _family(92544)),
    ("internlm", _family(103168, qkv_bias=True)),
    ("gemma", _family(256000, activation="geglu", tied_embeddings=True)),
    ("bloom", _gpt(250880)),
    ("pangualpha", _gpt(40000)),
    ("panguultra", _family(153376)),
    ("telechat|grok", _family(131072)),
    ("minicpm", _family(122753, tied_embeddings=True)),
    ("phi35", _family(32064)),
    ("seedoss", _family(155136, head_dim=128, qkv_bias=True)),
    ("mpt", _gpt(50368, linear_bias=False, qkv_bias=False)),
    ("gpt|megatron|turing", _gpt()),
)
GEMMA2_9B_HIDDEN, GEMMA2_9B_HEAD_DIM, GEMMA2_27B_HEAD_DIM = 3584, 256, 128


def family_of(name: str, hidden_size: int = 0) -> Family:
    """The facts that go with the model called `name`; those of a Llama where no family is known."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    found = next((family for key, family in FAMILIES if re.search(key, plain)), Family())
    if "gemma2" in plain and "gemma2b" not in plain:
        head_dim = GEMMA2_9B_HEAD_DIM if hidden_size == GEMMA2_9B_HIDDEN else GEMMA2_27B_HEAD_DIM
        more = {"head_dim": head_dim, "branch_norm": "both", "logit_cap": 30.0, "windows": (4096, 2)}
        return replace(found, facts={**found.facts, **more})
    return found


def model_like(
    name: str, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int = 0, **more: Any
) -> TransformerConfig:
    """One of the family of `name`, but for `more`; `vocabulary` 0: the family's."""
    family = family_of(name, hidden)
    facts = {**family.facts, **more}
    return transformer(hidden, layers, heads, kv_heads, ffn, vocabulary or family.vocab_size, **facts)
