"""The operators of attention between two residual sums, on one device."""

from dataclasses import replace

import numpy as np

from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cost.configuration import AttentionKernel, Part
from ms_symtensor.cost.operator import ATTENTION_BACKWARD
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.tensor_ranks import gathered, scattered
from ms_symtensor.cost.work import Operator, Transfer, Work, passes, product

CAUSAL = 0.5
"""Half of the scores are behind the token; fused attention leaves them out."""

FLASH1_SLOWDOWN = 2.0
"""FlashAttention-2 is about twice as fast as its predecessor (arXiv 2307.08691)."""

MERGE_KERNELS, MERGE_B = 19, 62
MERGE_KERNELS_BACKWARD, MERGE_BACKWARD_B = 9, 36
"""A further step of ring attention: the fused kernel and 18 small ones that scale and add two results in float32, with the
bytes that these move per element of the result (mindspeed, ring_context_parallel.py, forward_update); backward three kernels,
and casts and sums of three gradients in float32.
"""


def attention(s: Shapes) -> tuple[Operator, ...]:
    """From the normalised hidden states to the result of the output projection."""
    return (*_projections(s), *_rotary(s), *_core(s), _output(s))


def _projections(s: Shapes) -> tuple[Operator, ...]:
    t, h, w = s.tokens, s.hidden, s.element_B
    latent = s.column(lambda c: float(c.model.latent_attention is not None))
    direct = 1 - latent
    fused = product("query, key and value", t, s.queries + s.keys + s.values, h, w, times=direct)
    found = [*gathered(s, fused, "query, key and value", t * h * w, direct)]
    if latent.any():
        query_rank = s.column(lambda c: c.model.latent_attention.query_rank if c.model.latent_attention else 0)
        kv_rank = s.column(lambda c: c.model.latent_attention.kv_rank if c.model.latent_attention else 0)
        rope = s.column(lambda c: c.model.latent_attention.rope_head_dim if c.model.latent_attention else 0)
        has_rank = latent * (query_rank > 0)
        down = product("latent down", s.norm_tokens, query_rank + kv_rank + rope, h, w, times=latent)
        query = product("query up", t, s.queries, np.where(query_rank > 0, query_rank, h), w, times=latent)
        # The rotary part of a key is the same for all heads and comes from the tokens, not from the latent.
        widened = s.heads * (s.key_width - rope + s.value_width)
        key = product("key and value up", t, widened, np.maximum(kv_rank, 1), w, times=latent)
        small = np.where(has_rank > 0, query_rank, h) + kv_rank + rope
        found += [
            down.keeping(latent * s.norm_tokens * (query_rank + kv_rank + rope) * w),
            passes(
                "latent norms", s.norm_tokens * (query_rank + kv_rank), 2 * w, 4 * w, 2, 4, Part.NORM, latent
            ).keeping(0.0, latent * s.norm_tokens * (query_rank + kv_rank) * w),
            *gathered(s, query, "latent", t * small * w, latent),
            key,
        ]
    return tuple(found)


def _rotary(s: Shapes) -> tuple[Operator, ...]:
    # Two multiplications, a rotation and a sum, of queries and keys; one pass where element-wise operators are fused.
    fused = s.where(lambda c: c.compiled)
    each_B = np.where(fused > 0, 2.0, 8.0) * s.element_B
    kernels = np.where(fused > 0, 2.0, 10.0)
    elements = s.tokens * (s.queries + s.keys)
    # torch_npu's kernel keeps what it turns (derivatives.yaml, npu_rotary_mul: self), and with it the whole product of which
    # that is a view: queries, keys and values, or the queries of latent attention.
    values = s.where(lambda c: c.model.latent_attention is None) * (s.keys + s.values)
    turned_B = s.mindspeed * s.rotary * s.tokens * (s.queries + values) * s.element_B
    return (passes("rotary embedding", elements, each_B, each_B, kernels, kernels, times=s.rotary).keeping(turned_B),)


def _core(s: Shapes) -> tuple[Operator, ...]:
    t, w = s.tokens, s.element_B
    kept = (s.queries + s.keys + s.values) * t * w
    # nanotron rotates copies and stacks keys and values anew (src/nanotron/models/llama.py, CausalSelfAttention).
    copies = s.where(lambda c: c.framework == "nanotron") * (s.queries + 2 * s.keys + s.values) * t * w
    # MindSpeed fills the values of latent attention up to the width of the keys, and cuts the result behind the kernel
    # (mindspeed_llm, multi_latent_attention.py, F.pad): padded values, and a padded result beside the one that is cut.
    pads = s.mindspeed * s.flash * (s.key_width > s.value_width)
    padding = pads * (s.key_width - s.value_width)
    copies = copies + (padding + pads * s.key_width) * s.heads * t * w
    flops = 2 * CAUSAL * t * s.sequence * s.heads * (s.key_width + s.value_width + padding)
    flops = flops * np.where(s.where(lambda c: c.attention is AttentionKernel.FLASH1) > 0, FLASH1_SLOWDOWN, 1.0)
    moved = kept + s.attended * t * w
    forward = Work("fused attention", flops=flops, head_dim=s.key_width, traffic_B=moved, times=s.flash)
    backward = replace(
        forward, name="fused attention backward", flops=ATTENTION_BACKWARD * flops, traffic_B=3 * moved, kernels=3
    )
    flash = Operator(
        forward=(forward,),
        backward=(backward,),
        part=Part.ATTENTION_CORE,
        # Maximum and sum of every row; FlashAttentionScore keeps both, eight times each.
        part_kept_B=s.flash * s.heads * t * np.where(s.mindspore + s.mindspeed > 0, 64, 4),
    )
    return (Operator(kept_B=kept + copies), flash, *_plain(s, 1 - s.flash), *_ring(s), *_exchange(s))


def _plain(s: Shapes, times: Array) -> tuple[Operator, ...]:
    """Scores that are written to memory: two batched products with scale, mask, softmax and dropout between them."""
    t, w = s.tokens, s.element_B
    scores = s.heads * t * s.sequence
    fused = s.fused_softmax
    # Scale, mask and softmax apart read and write the scores once each; where Megatron's kernel cannot be used, its
    # fallback does so in float32, with a cast before and behind.
    fallback = s.where(lambda c: c.attention is AttentionKernel.FUSED_SOFTMAX) * (1 - fused)
    forward_B = np.where(fused > 0, 2 * w, 6 * w + 12 * fallback) + s.dropout * (2 * w + 1)
    backward_B = np.where(fused > 0, 3 * w, 7 * w + 14 * fallback) + s.dropout * (2 * w + 1)
    kept_B = np.where(fused > 0, w, w + 4) + s.dropout * (w + 1)

    def batched(name: str, n: Array, k: Array) -> Operator:
        moved = (t * s.heads * (s.key_width + s.value_width) + scores) * w
        # Every head is a product of its own: points of all of them together fill the cores.
        work = Work(f"{name} forward", points=t * s.heads * n, depth=k, traffic_B=moved, times=times)
        first = Work(f"{name} of the first", points=t * s.heads * k, depth=n, traffic_B=moved, times=times)
        second = Work(f"{name} of the second", points=s.sequence * s.batch * s.heads * k, depth=t / s.batch,
                      traffic_B=moved, times=times)  # fmt: skip
        return Operator((work,), (first, second), part=Part.ATTENTION_CORE)

    softmax = passes(
        "softmax", scores, forward_B, backward_B, np.where(fused > 0, 1, 4) + s.dropout,
        np.where(fused > 0, 1, 4) + s.dropout, Part.ATTENTION_CORE, times,
    )  # fmt: skip
    layouts = passes("layouts of heads", t * (s.queries + s.keys + s.values + s.attended), 2 * w, 2 * w, 4, 4,
                     Part.ATTENTION_CORE, times)  # fmt: skip
    return (
        batched("scores", s.sequence, s.key_width),
        softmax.keeping(0.0, times * scores * kept_B),
        batched("weighted values", s.value_width, s.sequence),
        layouts,
    )


def _ring(s: Shapes) -> tuple[Operator, ...]:
    """Context parallelism: keys and values go round the ranks, and their gradients with them backward; each step attends to
    what came, and its result is merged with that of the steps before.
    """
    shared = (s.keys + s.values) * s.tokens * s.element_B
    steps = (s.cp - 1) * (1 - s.exchanges_heads)
    attended = s.tokens * s.attended
    merged = passes(
        "ring: results merged", attended, MERGE_B, MERGE_BACKWARD_B, MERGE_KERNELS, MERGE_KERNELS_BACKWARD,
        Part.ATTENTION_CORE, steps * s.mindspeed * s.flash,
    )  # fmt: skip
    return (
        merged,
        Operator(
            sent=(Transfer("keys and values round the ring", Collective.SEND, "cp", shared, steps),),
            sent_back=(
                Transfer("keys, values and gradients round the ring", Collective.SEND, "cp", 2 * shared, steps),
            ),
            part=Part.ATTENTION_CORE,
        ),
    )


def _exchange(s: Shapes) -> tuple[Operator, ...]:
    """Ulysses: before attention the ranks of context parallelism exchange their tokens of all heads for all tokens of their
    heads, and back behind it.
    """
    whole = (s.queries + s.keys + s.values + s.attended) * s.tokens * s.element_B
    sent = (Transfer("heads for tokens", Collective.ALL_TO_ALL, "cp", whole / 4, 4 * s.exchanges_heads),)
    return (Operator(sent=sent, sent_back=sent, part=Part.ATTENTION_CORE),)


def _output(s: Shapes) -> Operator:
    t, h, w = s.tokens, s.hidden, s.element_B
    made = product("output projection", t, h, s.attended, w).keeping(t * s.attended * w)
    return scattered(s, made, "output projection", t * h * w)
