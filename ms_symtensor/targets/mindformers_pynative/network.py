"""A network of the zoo as section `model` of a PyNative file: the shipped file of its family, with its dims."""

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_symtensor.cluster.bounded_yaml import load_yaml
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers_pynative.file import text_of

if TYPE_CHECKING:
    from model_zoo.config import TransformerConfig

FILES = Path(__file__).with_name("files")
Config = dict[str, Any]


def file_of(network: "TransformerConfig", global_batch: int) -> tuple[str, Config]:
    """A whole file for `network`, as text and as what it says. InputError where MindFormers has no PyNative class for it."""
    latent, experts = network.latent_attention, network.experts
    is_plain = network.delta is None and not network.attention_gate
    if latent is not None and experts is not None and network.norm == "rms_norm" and network.indexer is None:
        name = "deepseek3_671b"
        config = _family(name)
        model = config["model"]
        model |= {
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
    elif is_plain and network.qk_norm and experts is None and latent is None and network.norm == "rms_norm":
        name = "qwen3_32b"
        config = _family(name)
        config["model"] |= {"head_dim": network.head_dim, "rope_theta": network.rotary_base}
    else:
        raise InputError(
            f"{network.name} has no PyNative class in MindFormers 2.1, which has Qwen3 (dense) and DeepSeek-V3: plan it with "
            "--target mindformers, for graph mode"
        )
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
    }
    config["train_dataset"]["dataloader"]["config"]["seq_length"] = network.seq_length
    config["training"]["global_batch_size"] = global_batch
    text = (FILES / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[2]  # its first line names the network
    return text_of(text, _family(name), config), config


def _family(name: str) -> Config:
    found: Config = copy.deepcopy(load_yaml(FILES / f"{name}.yaml", "MindFormers file"))
    return found
