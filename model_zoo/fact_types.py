"""What a value of a config.json has to be, by the fact that it says."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ms_symtensor.errors import InputError


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 40


def _is_whole(value: Any) -> bool:
    return _is_number(value) and isinstance(value, int)


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(one, kind) for one in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_KNOWN: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "delta.record": ("a record", lambda value: isinstance(value, dict)),
    "rope": ("a record", lambda value: isinstance(value, dict)),
    "rotated_layers": ("a list of numbers", _is_list_of(int)),
    "dense_layers": ("a list of numbers", _is_list_of(int)),
    "attention_layers": ("a list of numbers", _is_list_of(int)),
    "state_space.head_size": ("a whole number, or auto", lambda value: value == "auto" or _is_whole(value)),
    "state_space.limits": ("a list of two numbers", lambda value: isinstance(value, list) and len(value) == 2),
    "layer_pattern": ("a pattern of M, E, * and -", lambda value: bool(re.fullmatch(r"[ME*-]+", str(value)))),
    "state_space.activation": ("a name", lambda value: isinstance(value, str)),
    "position_type": ("a name", lambda value: isinstance(value, str)),
    "layer_bases": ("a list of numbers", lambda value: isinstance(value, list) and all(map(_is_number, value))),
    "expert_layers": ("a list of numbers", _is_list_of(int)),
    "layer_types": ("a list of names", _is_list_of(str)),
    "mlp_types": ("a list of names", _is_list_of(str)),
    "indexer_types": ("a list of names", _is_list_of(str)),
    "indexer_pattern": (
        "a list of names, or a pattern such as FSSS", lambda value: isinstance(value, str) or _is_list_of(str)(value)
    ),
    "experts_frequency": ("a number or a list", lambda value: _is_whole(value) or _is_list_of(int)(value)),
    "experts_end": ("a number", lambda value: isinstance(value, int)),
    "window_period": (
        "a number, or a pattern such as LLLG", lambda value: _is_whole(value) or bool(re.fullmatch("L*G", str(value)))
    ),
    "activation": ("a name", lambda value: isinstance(value, str)),
    "delta.state_dtype": ("float32, bfloat16 or float16", lambda value: value in ("float32", "bfloat16", "float16")),
    "topk_method": ("a name", lambda value: isinstance(value, str)),
    "experts.scoring": ("softmax or sigmoid", lambda value: value in ("softmax", "sigmoid")),
    "tempers": ("true or false", lambda value: isinstance(value, bool | int)),  # some files have a number
    **dict.fromkeys(
        ("tied_embeddings", "attention_bias", "qkv_bias", "mlp_bias", "bias", "output_bias", "head_bias", "uses_qk_norm",
         "uses_window", "experts.normalised", "uses_correction", "parallel", "one_kv_head", "new_form", "scales_scores",
         "scales_by_layer", "norms_before", "norms_after", "drops_norm", "shares_keys", "groups_heads", "has_biases",
         "norms_by_root", "norms_last", "adds_normed", "attention_gate", "scales_embedding", "delta.changes_sign",
         "state_space.conv_bias", "state_space.bias"),
        ("true or false", _is_flag),
    ),
    **dict.fromkeys(
        ("norm_epsilon", "rotary_base", "local_base", "rotated_share", "score_cap", "logit_cap", "experts.scale",
         "experts.clamp", "experts.clamp_slope", "residual_scale", "score_size", "embedding_scale", "branch_scale",
         "score_scale", "logit_scale", "logit_divisor", "logit_base", "depth_scale",
         "z_loss", "state_space.least_step"),
        ("a number, 0 or more", _is_number),
    ),
}  # fmt: skip


def typed(key: str, fact: str, value: Any) -> Any:
    """`value` of `key`, which says `fact`: a whole number if nothing else is known of it, or nothing. A list of one number over
    and over says that number of every layer.

    Errors: InputError for a value of another kind.
    """
    if fact not in _KNOWN and isinstance(value, list) and value and value.count(value[0]) == len(value):
        value = value[0]
    what, is_one = _KNOWN.get(fact, ("a whole number, 0 or more", _is_whole))
    if value is None or is_one(value):
        return value
    raise InputError(f"{key} is {repr(value)[:40]}: give {what}")
