"""What several facts of a config.json make up: sizes of attention and experts, norms, biases, scales."""

import math
from collections.abc import Mapping
from typing import Any

from model_zoo.config import DEFAULT_SEQ_LENGTH, DeltaSizes, Experts, IndexerSizes, LatentSizes, StateSpaceSizes
from model_zoo.fact_types import typed
from model_zoo.families import ACTIVATIONS, DELTA_KEYS, KEYS, STATE_SPACE_KEYS, UNGATED
from model_zoo.layer_kinds import FULL, LINEAR, SLIDING
from ms_symtensor.errors import InputError

_SECOND_TOKEN_WEIGHT = (
    0.3  # DeepSeek-V3's in most of its training (arXiv:2412.19437, 4.2); no size or time depends on it
)


def number_of(facts: Mapping[str, Any], fact: str) -> int:
    """A size of at least 1."""
    keys = [key for key, meant in (KEYS | DELTA_KEYS | STATE_SPACE_KEYS).items() if meant == fact]
    value = facts.get(fact)
    if value is None:
        raise InputError(f"lacks {' or '.join(keys[:2])}: give it, or --dim {keys[0]}=N")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{keys[0]} is {value!r}: give a whole number above 0")
    return value


def kv_heads(facts: Mapping[str, Any], heads: int) -> int:
    """How many key-value heads there are beside so many query heads."""
    one = facts.get("one_kv_head") and not facts.get("new_form")  # Falcon 7B writes the number of query heads beside it
    return 1 if one else facts.get("n_kv_heads") or heads


def branch_norm(facts: Mapping[str, Any]) -> Any:
    """Where norms stand. Falcon 40B has two before branches that stand side by side, unless it says that it has one."""
    if not (facts.get("parallel") or facts.get("new_form")):
        return facts.get("branch_norm", "before")
    return "beside" if facts.get("new_form") and facts.get("norms_num") != 1 else facts["parallel_norm"]


def score_size(facts: Mapping[str, Any]) -> int:
    """What scores are divided by the square root of; 0: the size of a head. Errors: InputError for a factor of another form."""
    scale = facts.get("score_scale")
    if scale is None:
        return facts.get("score_size") or 0
    size = round(scale**-2) if scale > 1e-6 else 0
    if not size or not math.isclose(size, scale**-2, rel_tol=1e-4):
        raise InputError(f"attention_multiplier is {scale}: give 1 / sqrt(N) of a whole number N")
    return size


def scales(facts: Mapping[str, Any], hidden: int, layers: int) -> dict[str, float]:
    """What embeddings, branches and logits are multiplied with."""
    depth, base, divisor = (facts.get(name) for name in ("depth_scale", "logit_base", "logit_divisor"))
    by_size = math.sqrt(hidden) if facts.get("scales_embedding") else 1.0
    return {
        "embedding_scale": float(facts.get("embedding_scale") or by_size),
        "branch_scale": depth / math.sqrt(layers) if depth else float(facts.get("branch_scale") or 1.0),
        "logit_scale": base / hidden if base else float(1 / divisor if divisor else facts.get("logit_scale") or 1.0),
    }


def latent_sizes(facts: dict[str, Any]) -> LatentSizes | None:
    """The widths of latent attention, if it is that. Errors: InputError for one that lacks, or is odd where it is rotated."""
    if not facts.get("latent.key_value_rank"):
        return None
    if facts.get("values_fill_hidden") and not facts.get("latent.value_head_dim"):
        facts["latent.value_head_dim"] = number_of(facts, "hidden_size") // number_of(facts, "num_heads")
    for name in ("plain_head_dim", "latent.rotary_head_dim", "latent.value_head_dim"):
        number_of(facts, name)
    if facts["latent.rotary_head_dim"] % 2:
        raise InputError(f"qk_rope_head_dim is {facts['latent.rotary_head_dim']}: give an even number")
    sizes = {
        name: facts.get(f"latent.{name}") or 0 for name in LatentSizes.__dataclass_fields__ if name != "pads_values"
    }
    return LatentSizes(**sizes, pads_values=False)


def indexer_sizes(facts: dict[str, Any], latent: LatentSizes | None) -> IndexerSizes | None:
    """What chooses keys, if something does. Errors: InputError for one that no query or no rotation fits."""
    if not facts.get("indexer.keys"):
        return None
    for name, key in (("heads", "index_n_heads"), ("head_dim", "index_head_dim")):
        if not facts.get(f"indexer.{name}"):
            raise InputError(f"{key} is {facts.get(f'indexer.{name}')}: give a whole number above 0")
    sizes = IndexerSizes(**{name: facts[f"indexer.{name}"] for name in IndexerSizes.__dataclass_fields__})
    if latent is None or not latent.query_rank:
        raise InputError(
            "index_topk: the zoo's indexer reads a narrow query (q_lora_rank); --dim index_topk=0 plans without it"
        )
    if sizes.head_dim < latent.rotary_head_dim:
        raise InputError(
            f"index_head_dim is {sizes.head_dim}: give at least as many as are rotated, qk_rope_head_dim {latent.rotary_head_dim}"
        )
    return sizes


def fill_delta(facts: dict[str, Any]) -> None:
    """Sizes of linear attention that a class takes of others: OLMo Hybrid of attention's heads, where a file lacks them; Kimi
    Linear values of keys, and what the published file has in a record of its own, layers counted from one.
    """
    if facts.get("delta.by_heads"):
        heads, hidden = number_of(facts, "num_heads"), number_of(facts, "hidden_size")
        for name in ("key_heads", "value_heads"):
            facts[f"delta.{name}"] = facts.get(f"delta.{name}") or heads
        facts["delta.key_size"] = facts.get("delta.key_size") or int(0.75 * hidden / facts["delta.key_heads"])
        facts["delta.value_size"] = facts.get("delta.value_size") or 2 * facts["delta.key_size"]
    record = facts.get("delta.record") or {}
    for key, fact in (("num_heads", "key_heads"), ("head_dim", "key_size"), ("short_conv_kernel_size", "kernel")):
        if record.get(key) is not None:
            facts[f"delta.{fact}"] = typed(f"linear_attn_config.{key}", f"delta.{fact}", record[key])
    if not facts.get("layer_types") and record.get("full_attn_layers") is not None:
        full = typed("linear_attn_config.full_attn_layers", "rotated_layers", record["full_attn_layers"])
        facts["layer_types"] = [FULL if n + 1 in full else LINEAR for n in range(number_of(facts, "num_layers"))]
    if facts.get("delta.by_channel"):
        for name, like in (("value_heads", "key_heads"), ("value_size", "key_size"), ("channel_rank", "key_size")):
            facts[f"delta.{name}"] = facts[f"delta.{like}"]


def delta_sizes(facts: Mapping[str, Any]) -> DeltaSizes:
    """The heads of gated linear attention. Errors: InputError for sizes that are none, and for a convolution of one token."""
    names = ("key_heads", "value_heads", "key_size", "value_size", "kernel")
    sizes = DeltaSizes(
        **{name: number_of(facts, f"delta.{name}") for name in names},
        largest_beta=2.0 if facts.get("delta.changes_sign") else 1.0,
        norm_epsilon=facts.get("delta.norm_epsilon") or 0.0,
        channel_rank=facts.get("delta.channel_rank") or 0,
        state_dtype=facts.get("delta.state_dtype") or "",
    )
    if sizes.kernel < 2:
        raise InputError("linear_conv_kernel_dim is 1: the zoo's convolution sees two tokens or more")
    return sizes


def fill_state_space(facts: dict[str, Any]) -> None:
    """The size of a head that is not told. A network without experts has the shared one as its feed-forward.

    Errors: InputError for heads that do not make up `expand` times the hidden size, and for steps with a limit of their own.
    """
    if facts.get("experts.number") == 0 and facts.get("experts.shared_size"):
        facts["intermediate_size"] = facts.get("intermediate_size") or facts["experts.shared_size"]
    if facts.get("state_space.expand"):
        heads = number_of(facts, "state_space.heads")
        width = facts["state_space.expand"] * number_of(facts, "hidden_size")
        if facts.get("state_space.head_size") in (None, "auto"):
            facts["state_space.head_size"] = width // heads
        if facts["state_space.head_size"] * heads != width:
            raise InputError(
                f"{heads} state-space heads of {facts['state_space.head_size']} make not mamba_expand: {width} channels"
            )
    if facts.get("has_no_attention"):  # what attention and a feed-forward would have is as large as what is there
        heads, size = (number_of(facts, f"state_space.{name}") for name in ("heads", "head_size"))
        facts |= {"num_heads": heads, "head_dim": size, "intermediate_size": heads * size}
    least, most = facts.get("state_space.limits") or (0.0, math.inf)
    if least != 0 or most not in (math.inf, {"__float__": "Infinity"}):
        raise InputError(
            f"time_step_limit is {[least, most]}: the zoo's steps have no limit; --dim time_step_limit=null"
        )


def fill_layers(facts: dict[str, Any]) -> None:
    """The kinds of layers from a pattern of letters, and their number where the file does not say it.

    Errors: InputError for a file that says no kinds where every layer is of one.
    """
    if facts.get("layer_pattern"):
        facts["layer_types"] = [*facts["layer_pattern"]]
    if facts.get("one_branch") and "attention_layers" not in facts:
        if not facts.get("layer_types"):
            raise InputError("lacks layers_block_type: give it, or --dim hybrid_override_pattern=M-M*-…")
        facts["num_layers"] = facts.get("num_layers") or len(facts["layer_types"])


def state_space_sizes(facts: Mapping[str, Any]) -> StateSpaceSizes:
    """The heads of state-space layers. Errors: InputError for sizes that are none, and for a convolution of one token."""
    names = ("heads", "head_size", "groups", "state_size", "kernel")
    act = facts.get("state_space.activation") or facts.get("activation") or "silu"
    if act not in ("silu", "swish"):
        raise InputError(f"hidden_act is {act!r}: the convolution of the zoo's state-space layers takes silu")
    sizes = StateSpaceSizes(
        **{name: number_of(facts, f"state_space.{name}") for name in names},
        conv_bias=facts.get("state_space.conv_bias") is not False,
        bias=bool(facts.get("state_space.bias")),
        least_step=facts.get("state_space.least_step") or 0.0,
    )
    if sizes.kernel < 2:
        raise InputError("mamba_d_conv is 1: the zoo's convolution sees two tokens or more")
    return sizes


def linear_sizes(facts: Mapping[str, Any], has_linear: bool) -> dict[str, DeltaSizes | StateSpaceSizes]:
    """The part that stands in the place of attention, if a block has one."""
    if not has_linear:
        return {}
    return {"state_space": state_space_sizes(facts)} if "state_space.heads" in facts else {"delta": delta_sizes(facts)}


def experts_of(facts: dict[str, Any]) -> Experts:
    """The mixture. Errors: InputError for numbers that no routing has."""
    if facts.get("topk_method") == "greedy":
        facts |= {"experts.groups": 1, "experts.groups_per_token": 1}
    said = {field: facts.get(f"experts.{field}") for field in Experts.__dataclass_fields__}
    of: dict[str, Any] = {field: value for field, value in said.items() if value is not None}
    number, per_token, size = (number_of(facts, f"experts.{f}") for f in ("number", "per_token", "intermediate_size"))
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


def rotated_size(facts: Mapping[str, Any], head_dim: int) -> dict[str, Any]:
    """How many dims of a head are rotated. Errors: InputError for an odd number, or more than there are."""
    share = facts.get("rotated_share")
    size = facts.get("rotated_size") or (int(head_dim * share) if share else head_dim)
    if size % 2 or not 0 < size <= head_dim:
        raise InputError(f"{size} dims of a head of {head_dim} are rotated: give an even number of them")
    return {"rotated_size": 0 if size == head_dim else size}


def positions(facts: Mapping[str, Any]) -> dict[str, Any]:
    """How positions enter. Baichuan of 13B has biases by distance, and no key that says so: of 7B has the number of positions."""
    number = facts.get("max_position_embeddings") or facts.get("longest") or DEFAULT_SEQ_LENGTH
    is_biased = facts.get("biased_without") and not facts.get(facts["biased_without"])
    return {
        "position": "distance" if is_biased else facts.get("position", "rotary"),
        "max_position_embeddings": number + facts.get("more_positions", 0),
        "embedding_norm": bool(facts.get("embedding_norm")),
        "normed_head": facts.get("normed_vocabulary") == facts.get("vocab_size"),
    }


def read_rope(facts: dict[str, Any]) -> None:
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
    if facts.get("rotates_by_base") and "rope_theta" in rope and rope["rope_theta"] is None:
        facts["unrotated_step"] = 1
    if facts.get("rotates_if_said") and facts.get("position_type") != "rope":
        facts["unrotated_step"] = 1
    if rope.get("llama_4_scaling_beta"):  # 1 for the first positions
        first = typed("rope_parameters", "tempered_from", rope.get("original_max_position_embeddings"))
        facts |= {"tempers": True, "tempered_from": (first or 0) + 1}
    if facts.get("local_base") == facts.get("rotary_base"):
        facts.pop("local_base", None)


def qk_norm(facts: Mapping[str, Any]) -> Any:
    """How queries and keys are normalised."""
    return facts.get("norm_of_heads", "head") if facts.get("uses_qk_norm") else facts.get("qk_norm")


def activation(facts: Mapping[str, Any]) -> str:
    """The form of the feed-forward. Errors: InputError for one that the zoo has not, or not of experts."""
    name, gated = facts.get("activation") or "silu", facts.get("gated", True)
    known = ACTIVATIONS if gated else UNGATED
    if name not in known:
        raise InputError(f"hidden_act {name!r}: the zoo's {'' if gated else 'un'}gated one knows {', '.join(known)}")
    if name == "xielu" and facts.get("experts.number"):
        raise InputError("hidden_act 'xielu': the zoo's experts have no activation with weights")
    return known[name]


def biases(facts: Mapping[str, Any], latent: LatentSizes | None) -> dict[str, bool]:
    """Which linear layers have biases. Errors: InputError for a mixture of them that the zoo has not."""
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


def second_token_weight(facts: Mapping[str, Any]) -> float:
    """The weight of the loss of a second token; 0: none is predicted. Errors: InputError for more than one."""
    number = facts.get("second_tokens") or 0
    if number > 1:
        raise InputError(f"num_nextn_predict_layers {number}: the zoo predicts one more token; give --dim to plan one")
    if number and facts.get("tied_embeddings"):
        raise InputError("num_nextn_predict_layers with tie_word_embeddings: the zoo predicts one more token untied")
    return _SECOND_TOKEN_WEIGHT if number else 0.0
