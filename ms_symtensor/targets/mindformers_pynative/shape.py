"""The dims of a network as its PyNative file gives them: Qwen3 dense, DeepSeek-V3 and DeepSeek-V4."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ms_symtensor.errors import InputError

FAMILIES = {"qwen3": "Qwen3", "deepseek_v3": "DeepSeek-V3", "deepseek_v4": "DeepSeek-V4"}
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
class Compressed:
    """Dims of DeepSeek-V4's attention: all heads read one key, which is the value too, of the last `window` tokens and of what a
    compressor makes of every so many tokens before.
    """

    query: int
    """What queries are projected from."""
    head: int
    rope: int
    groups: int
    """Groups of heads whose outputs are projected apart, to `output` each."""
    output: int
    window: int
    ratios: tuple[int, ...]
    """Tokens that become one compressed key, layer by layer, those of multi-token prediction at the end; 0: there are none."""
    index_heads: int
    index_head: int
    choices: int
    """Compressed keys that an indexer chooses for every query, in layers whose ratio is INDEXED; 0: it has all."""
    fused: bool
    """Whether attention and indexer are kernels of their own."""

    def indexes(self, ratio: int) -> bool:
        """Whether a layer of this ratio has an indexer."""
        return ratio == INDEXED and self.choices > 0

    def keys(self, ratio: int, sequence: int) -> int:
        """Keys that a query reads at most."""
        compressed = sequence // ratio if ratio else 0
        return self.window + (min(self.choices, compressed) if self.indexes(ratio) else compressed)


INDEXED = 4
"""The ratio of layers that have an indexer, whose windows overlap (csa.py, compressor.py)."""


@dataclass(frozen=True)
class Streams:
    """Hyper-connections: the hidden state is `number` streams, which matrices mix that `iterations` make doubly stochastic."""

    number: int
    iterations: int

    @property
    def weights(self) -> int:
        """Numbers of a token that mix its streams: into a branch, out of it, and among each other."""
        return self.number * (2 + self.number)


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
    softplus: bool = False
    """Whether scores are roots of softplus, which keep their logits."""


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
    compressed: Compressed | None = None
    streams: Streams | None = None
    clamped: bool = False
    """Whether a fused activation cuts off what is large, which runs in float32."""

    @property
    def width(self) -> int:
        """Of what goes from layer to layer."""
        return self.hidden * (self.streams.number if self.streams else 1)

    def ratio(self, layer: int) -> int:
        """How many tokens `layer` compresses into one key; 0: it does not."""
        return self.compressed.ratios[layer] if self.compressed else 0

    def has_experts(self, layer: int) -> bool:
        """Whether `layer` routes tokens; a layer of multi-token prediction has the number `layers` and above."""
        return self.experts is not None and layer >= self.experts.first_dense

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
    routed, fused = family in ("deepseek_v3", "deepseek_v4"), model.get("hidden_act", "silu") == "fusedswiglu"
    predicted = int(model.get("num_nextn_predict_layers") or 0) if routed else 0
    compressed = _compressed(model, int(model["num_hidden_layers"]) + predicted) if family == "deepseek_v4" else None
    return ModelShape(
        family,
        hidden,
        int(model["num_hidden_layers"]),
        heads,
        int(model.get("num_key_value_heads") or heads),
        int(model.get("head_dim") or hidden // heads),
        int(model["intermediate_size"]) if compressed is None else 0,  # no layer is dense
        int(model["vocab_size"]),
        int(model["seq_length"]),
        fused,
        _latent(model) if family == "deepseek_v3" else None,
        _experts(model) if routed else None,
        predicted,
        bool(model.get("use_attn_mask_compression")),
        compressed,
        streams_of(model) if compressed else None,
        compressed is not None and fused and model.get("activation_func_clamp_value") is not None,
    )


def _compressed(model: dict[str, Any], layers: int) -> Compressed:
    ratios = tuple(int(ratio) for ratio in model["compress_ratios"])
    if len(ratios) != layers or not set(ratios) <= {0, INDEXED, 128}:
        raise InputError(
            f"compress_ratios has {len(ratios)} numbers for {layers} layers, those of multi-token prediction included;"
            f" each is 0, {INDEXED} or 128, as MindFormers' compressor takes them"
        )
    names = ("q_lora_rank", "v_head_dim", "qk_rope_head_dim", "o_groups", "o_lora_rank")
    query, head, rope, groups, output = (int(model[name]) for name in names)
    index_heads, index_head, choices = (int(model[name]) for name in ("index_n_heads", "index_head_dim", "index_topk"))
    return Compressed(
        query, head, rope, groups, output, _either(model, "csa_window_size", "sliding_window"), ratios, index_heads, index_head,
        0 if model.get("csa_dense_mode") else choices,
        bool(model.get("apply_dsa_kernel_fusion")),
    )  # fmt: skip


def streams_of(model: dict[str, Any]) -> Streams | None:
    """The hyper-connections that section `model` of a file asks for."""
    if not model.get("enable_hyper_connections"):
        return None
    iterations = _either(model, "mhc_sinkhorn_iterations", "hc_sinkhorn_iters")
    return Streams(_either(model, "num_residual_streams", "hc_mult"), iterations)


def _either(model: dict[str, Any], own: str, theirs: str) -> int:
    """What MindFormers calls `own`, or as Hugging Face's files call it."""
    return int(model[theirs] if own not in model and theirs in model else model[own])


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
        model.get("moe_router_score_function") == "sqrtsoftplus",
    )
