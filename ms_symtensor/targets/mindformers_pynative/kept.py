"""Activations that one micro-batch keeps for the backward pass, by module: what MindSpore's gradients save.

Counted as MindSpore's own `saved_tensors_hooks` tell: each tensor once, without weights. Terms follow the modules of MindFormers
2.1 (mindformers/pynative/transformers), its norms, gates, kernels and routers, one line each. Bytes of one rank.
"""

from collections.abc import Iterable

from ms_symtensor.targets.mindformers_pynative import compressed, streams
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.targets.mindformers_pynative.layers import Kind, ends, kinds_of, starts
from ms_symtensor.targets.mindformers_pynative.predicted import routed_rows, tokens
from ms_symtensor.targets.mindformers_pynative.shape import ModelShape

_ITEM_B, _FP32_B, _INDEX_B = 2, 4, 8
_SOFTMAX = 2 * 8
"""float32 numbers that flash attention keeps per token and head: maximum and sum, eight times each."""
_MASK = 2048
"""Side of a compressed attention mask."""


def kept_B(shape: ModelShape, degrees: Degrees, stage: int) -> int:
    """Bytes that a rank of `stage` keeps of one micro-batch."""
    kinds = kinds_of(shape, degrees, stage)
    total = sum(count * layer_B(shape, degrees, kind) for kind, count in kinds.items())
    ending = ends(shape, degrees, stage)
    recomputed = sum(count for kind, count in kinds.items() if kind.predicts and kind.whole)
    predicted = shape.predicted_tokens * ending - recomputed
    total += (starts(shape, degrees, stage) + predicted) * _embedding_B(shape, degrees)
    total += (ending + predicted) * _head_B(shape, degrees) + recomputed * _normed_B(shape, degrees)
    return total + len(degrees.chunks(shape.layers)[stage]) * _shared_B(shape, degrees, kinds)


def layer_B(shape: ModelShape, degrees: Degrees, kind: Kind) -> int:
    """Bytes that a layer keeps: its input where it is recomputed, the inputs of modules that are, or all; and what experts were
    sent where that is not sent once more. One of multi-token prediction reads what others keep.
    """
    part, hidden = tokens(shape, degrees) // degrees.tensor, shape.hidden
    received = (
        len(kind.kept) * routed_rows(shape, degrees) * hidden * _ITEM_B if kind.kept and degrees.expert > 1 else 0
    )
    if kind.whole:
        return (0 if kind.predicts else part * shape.width * _ITEM_B) + received
    norm = part * (hidden * _ITEM_B + _FP32_B)  # its input and the root of its mean
    normed = part * hidden * _ITEM_B
    parts = {
        "self_attention": attention_B(shape, degrees, kind.ratio),
        "mlp": feed_forward_B(shape, degrees, kind.routed),
    }
    found = 2 * (norm + (streams.connection_B(shape, part) if shape.streams else 0))
    for name, size_B in parts.items():
        found += normed if kind.repeats(name) else size_B
    return found + received + (_prediction_B(shape, degrees) if kind.predicts else 0)


def attention_B(shape: ModelShape, degrees: Degrees, ratio: int = 0) -> int:
    """Bytes of an attention: gathered input, compressed and normed parts, the kernel's operands and its output."""
    if shape.compressed is not None:
        return compressed.kept_B(shape, ratio, tokens(shape, degrees))
    rows, part, tensor = tokens(shape, degrees), tokens(shape, degrees) // degrees.tensor, degrees.tensor
    heads = shape.heads // tensor
    softmax = rows * heads * _SOFTMAX * _FP32_B
    gathered = degrees.context // degrees.ulysses_degree  # keys and values of the other ranks
    latent = shape.latent
    if latent is None:
        groups = shape.key_value_heads // tensor
        normed = rows * (heads + groups) * (shape.head * _ITEM_B + _FP32_B)
        operands = rows * (2 * heads + 2 * gathered * groups) * shape.head * _ITEM_B
        output = rows * heads * shape.head * _ITEM_B
        return rows * shape.hidden * _ITEM_B + normed + operands + output + softmax
    reduced = latent.query + latent.key_value
    normed = part * (reduced * _ITEM_B + 2 * _FP32_B) + rows * reduced * _ITEM_B
    key = latent.nope + latent.rope
    operands = rows * heads * (key + gathered * (key + latent.value) + latent.value) * _ITEM_B
    output = rows * heads * latent.value * _ITEM_B
    return part * shape.hidden * _ITEM_B + normed + operands + output + softmax


def feed_forward_B(shape: ModelShape, degrees: Degrees, routed: bool) -> int:
    """Bytes of a dense feed-forward or of one with experts."""
    rows, part = tokens(shape, degrees), tokens(shape, degrees) // degrees.tensor
    if not routed:
        return rows * shape.hidden * _ITEM_B + _gated_B(shape, rows, shape.feed_forward // degrees.tensor)
    experts = shape.experts
    assert experts is not None
    sent = routed_rows(shape, degrees)
    shared = _gated_B(shape, part, experts.shared_feed_forward)
    chosen = _gated_B(shape, sent, experts.feed_forward)
    moved = 2 * sent * shape.hidden * _ITEM_B  # into the experts, and out of them to be weighted
    indices = sent * _INDEX_B * (4 if degrees.expert > 1 else 1) + sent * _ITEM_B
    return part * shape.hidden * _ITEM_B + router_B(shape, part) + shared + chosen + moved + indices


def router_B(shape: ModelShape, part: int) -> int:
    """Bytes of a router in float32: its input, scores, choices among groups and experts."""
    experts = shape.experts
    assert experts is not None
    scores = part * experts.count * _FP32_B * (1 + experts.balanced + experts.softplus)
    chosen = part * experts.per_token
    groups = part * (2 * experts.groups + experts.group_choices) * _INDEX_B
    choices = chosen * ((1 + experts.balanced) * _INDEX_B + _FP32_B)
    return part * shape.hidden * _FP32_B + scores + choices + groups + part * 2 * _FP32_B


def _gated_B(shape: ModelShape, rows: int, inner: int) -> int:
    """Both halves and the product; unfused, the activation of one half too; clamped, both in float32 and where they were."""
    if shape.clamped:
        return rows * inner * (2 * _FP32_B + 2 + _ITEM_B)
    return rows * inner * _ITEM_B * (3 if shape.fused_activation else 4)


def _prediction_B(shape: ModelShape, degrees: Degrees) -> int:
    """Around a layer of multi-token prediction: two norms and a projection of both."""
    part = tokens(shape, degrees) // degrees.tensor
    return part * (4 * shape.hidden * _ITEM_B + 2 * _FP32_B)


def _embedding_B(shape: ModelShape, degrees: Degrees) -> int:
    """Token numbers, and which of them this rank has."""
    return tokens(shape, degrees) * _FP32_B * (2 if degrees.tensor > 1 else 1)


def _head_B(shape: ModelShape, degrees: Degrees) -> int:
    """The final norm's input, and the hidden states of all tokens that the vocabulary is cut for."""
    part = tokens(shape, degrees) // degrees.tensor
    collapse = streams.collapse_B(shape, part) if shape.streams else 0
    loss = tokens(shape, degrees) * _FP32_B
    return collapse + part * (shape.hidden * _ITEM_B + _FP32_B) + _normed_B(shape, degrees) + loss


def _normed_B(shape: ModelShape, degrees: Degrees) -> int:
    """Normed hidden states of all tokens."""
    return tokens(shape, degrees) * shape.hidden * _ITEM_B


def _shared_B(shape: ModelShape, degrees: Degrees, kinds: Iterable[Kind]) -> int:
    """What the layers of a chunk share: rotary tables, which recomputed attention makes once more, and the attention mask, which
    DeepSeek-V4's only hands on.
    """
    width = shape.latent.rope if shape.latent else shape.head
    rows = tokens(shape, degrees) if degrees.context > 1 else shape.sequence
    rotary = rows * width * _FP32_B if shape.compressed is None else compressed.rotary_B(shape)
    side = shape.sequence // degrees.context
    mask = _MASK * _MASK if shape.compressed_mask else degrees.local_batch * side * side
    keeps_rotary = not all(kind.repeats("self_attention") for kind in kinds)
    return rotary * keeps_rotary + mask * (shape.compressed is None or any(kind.whole for kind in kinds))


def loss_B(shape: ModelShape, degrees: Degrees) -> int:
    """float32 numbers of the loss: logits as they come, in float32, and their exponentials, which its gradient needs."""
    return tokens(shape, degrees) * (shape.vocabulary // degrees.tensor) * (_ITEM_B + _FP32_B)
