"""The dims of a network as its PyNative file gives them: Qwen3 dense and DeepSeek-V3."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ms_symtensor.errors import InputError

FAMILIES = {"qwen3": "Qwen3", "deepseek_v3": "DeepSeek-V3"}
"""By `model_type`."""

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Latent:
    """Dims of multi-head latent attention."""

    query: int
    key_value: int
    rope: int
    nope: int
    value: int


@dataclass(frozen=True)
class Experts:
    """Dims of a mixture of experts."""

    count: int
    per_token: int
    feed_forward: int
    shared_feed_forward: int
    """Of all shared experts together; 0 without."""
    first_dense: int
    """Layers before the first with experts."""
    groups: int
    """Groups of experts to choose among first; 0 without."""
    group_choices: int
    balanced: bool
    """Whether a loss balances them, for which counts and probabilities are summed over ranks."""


@dataclass(frozen=True)
class ModelShape:
    """What a step's collectives, parameters and activations are counted from."""

    family: str
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head: int
    feed_forward: int
    vocabulary: int
    sequence: int
    fused_activation: bool
    latent: Latent | None = None
    experts: Experts | None = None
    predicted_tokens: int = 0
    """Layers of multi-token prediction, which follow the last."""
    compressed_mask: bool = False
    """Whether the attention mask is one of 2,048 x 2,048, which context parallelism needs."""

    def has_experts(self, layer: int) -> bool:
        """Whether `layer` routes tokens; a layer of multi-token prediction has the number `layers` and above."""
        return self.experts is not None and layer >= self.experts.first_dense

    def compute_B(self) -> int:
        """Bytes of an activation's element: MindFormers computes in bfloat16 here."""
        return 2

    @cached_property
    def worked_out(self) -> dict[tuple, Any]:
        """What functions `once` found, by function and further arguments: a search asks for few different ones."""
        return {}


def once(
    function: Callable[Concatenate[ModelShape, _Arguments], _Value],
) -> Callable[Concatenate[ModelShape, _Arguments], _Value]:
    """`function`, whose results are kept in the shape, its first argument."""

    @wraps(function)
    def kept(shape: ModelShape, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Value:
        key = (function, arguments, tuple(named.items()))
        if key not in shape.worked_out:
            shape.worked_out[key] = function(shape, *arguments, **named)
        found: _Value = shape.worked_out[key]
        return found

    return kept


def shape_of(model: dict[str, Any]) -> ModelShape:
    """The dims that section `model` of a file gives. InputError for another family, or where one is missing."""
    family = model.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        known = ", ".join(f"{name} ({title})" for name, title in FAMILIES.items())
        raise InputError(f"model_type {family!r} is not planned for MindFormers' PyNative mode: {known} are.")
    try:
        return _shape({name: value for name, value in model.items() if value is not None}, family)
    except KeyError as error:
        raise InputError(
            f"the file's section `model` has no {error.args[0]}: it is needed to count the step."
        ) from None


def _shape(model: dict[str, Any], family: str) -> ModelShape:
    hidden, heads = int(model["hidden_size"]), int(model["num_attention_heads"])
    deepseek = family == "deepseek_v3"
    return ModelShape(
        family,
        hidden,
        int(model["num_hidden_layers"]),
        heads,
        int(model.get("num_key_value_heads") or heads),
        int(model.get("head_dim") or hidden // heads),
        int(model["intermediate_size"]),
        int(model["vocab_size"]),
        int(model["seq_length"]),
        model.get("hidden_act", "silu") == "fusedswiglu",
        _latent(model) if deepseek else None,
        _experts(model) if deepseek else None,
        int(model.get("num_nextn_predict_layers") or 0) if deepseek else 0,
        bool(model.get("use_attn_mask_compression")),
    )


def _latent(model: dict[str, Any]) -> Latent:
    names = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return Latent(*(int(model[name]) for name in names))


def _experts(model: dict[str, Any]) -> Experts:
    shared = int(model.get("n_shared_experts") or 0)
    feed_forward = int(model["moe_intermediate_size"])
    balance = model.get("moe_router_load_balancing_type") or "none"
    return Experts(
        int(model["n_routed_experts"]),
        int(model["num_experts_per_tok"]),
        feed_forward,
        int(model.get("moe_shared_expert_intermediate_size") or feed_forward * shared) if shared else 0,
        int(model.get("first_k_dense_replace") or 0),
        int(model.get("n_group") or 0),
        int(model.get("topk_group") or 0),
        balance != "none" and float(model.get("moe_aux_loss_coeff") or 0) > 0,
    )
