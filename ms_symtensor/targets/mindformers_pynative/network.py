"""A network of the zoo as section `model` of a PyNative file: the shipped file of its family, with its dims."""

import copy
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_symtensor.cluster.bounded_yaml import load_yaml
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.file import text_of

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig

FILES = Path(__file__).with_name("files")
Config = dict[str, Any]

_DIMS = frozenset((
    "name", "hidden_size", "num_layers", "num_heads", "n_kv_heads", "head_dim", "intermediate_size", "vocab_size",
    "max_position_embeddings", "norm_epsilon", "rotary_base", "seq_length", "batch_size", "score_size",
))  # fmt: skip
"""Fields of a network that are numbers of its file."""
_OF_DEEPSEEK = _DIMS | {"experts", "latent_attention", "second_token_weight", "dense_layers"}
_OF_EXPERTS = frozenset((
    "number", "per_token", "intermediate_size", "shared_size", "groups", "groups_per_token", "scale", "load_imbalance",
))  # fmt: skip


def file_of(network: "TransformerConfig", global_batch: int) -> tuple[str, Config]:
    """A whole file for `network`, as text and as what it says. InputError where MindFormers has no PyNative class for it."""
    from model_zoo import dimensions_of

    latent, experts = network.latent_attention, network.experts
    if latent is not None and experts is not None:
        name, like = "deepseek3_671b", dimensions_of("deepseek_v3")
        assert like.experts is not None
        _require_like(network, network, like, _OF_DEEPSEEK)
        _require_like(network, experts, like.experts, _OF_EXPERTS)
        config = _family(name)
        config["model"] |= {
            "q_lora_rank": latent.query_rank,
            "kv_lora_rank": latent.key_value_rank,
            "qk_rope_head_dim": latent.rotary_head_dim,
            "qk_nope_head_dim": network.head_dim - latent.rotary_head_dim,
            "v_head_dim": latent.value_head_dim,
            "first_k_dense_replace": network.dense_layers,
            "n_routed_experts": experts.number,
            "num_experts_per_tok": experts.per_token,
            "moe_intermediate_size": experts.intermediate_size,
            "n_shared_experts": 1 if experts.shared_size else 0,
            "moe_shared_expert_intermediate_size": experts.shared_size,
            "n_group": experts.groups,
            "topk_group": experts.groups_per_token,
            "routed_scaling_factor": experts.scale,
            "num_nextn_predict_layers": 1 if network.second_token_weight else 0,
            "mtp_loss_scaling_factor": network.second_token_weight,
        }
    else:
        name = "qwen3_32b"
        _require_like(network, network, dimensions_of(name), _DIMS)
        config = _family(name)
        config["model"] |= {"head_dim": network.head_dim}
    config["model"] |= {
        "vocab_size": network.vocab_size,
        "seq_length": network.seq_length,
        "hidden_size": network.hidden_size,
        "intermediate_size": network.intermediate_size,
        "num_hidden_layers": network.num_layers,
        "num_attention_heads": network.num_heads,
        "num_key_value_heads": network.n_kv_heads,
        "max_position_embeddings": max(network.max_position_embeddings, network.seq_length),
        "rms_norm_eps": network.norm_epsilon,
        "rope_theta": network.rotary_base,
    }
    config["train_dataset"]["dataloader"]["config"]["seq_length"] = network.seq_length
    config["training"]["global_batch_size"] = global_batch
    text = (FILES / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[2]  # its first line names the network
    return text_of(text, _family(name), config), config


def _require_like(network: "TransformerConfig", part: Any, like: Any, dims: frozenset[str]) -> None:
    """InputError where `part` of a network differs from that of MindFormers' class in more than `dims`."""
    for field in fields(like):
        own, theirs = getattr(part, field.name), getattr(like, field.name)
        if field.name not in dims and own != theirs:
            title = "DeepSeek-V3" if "experts" in dims or dims is _OF_EXPERTS else "Qwen3 (dense)"
            raise InputError(
                f"{network.name} has no PyNative class in MindFormers 2.1, which has Qwen3 (dense) and DeepSeek-V3:"
                f" {_difference(field.name, own, theirs, title)}; leave --target out for graph mode"
            )


def _difference(name: str, own: Any, theirs: Any, title: str) -> str:
    """How a field of a network differs from that of the class `title`, in words."""
    if all(isinstance(value, str | int | float) for value in (own, theirs)):
        return f"its {name} is {own!r}, that of {title} {theirs!r}"
    what = name.replace("_", " ")
    if theirs is None or own is None:
        return f"it has {what}, {title} has none" if theirs is None else f"it has no {what}, {title} has"
    return f"it has other {what} than {title}"


def _family(name: str) -> Config:
    found: Config = copy.deepcopy(load_yaml(FILES / f"{name}.yaml", "MindFormers file"))
    return found
