"""The places of a transformer on one device: blocks, dense or with experts, the embedding and the head with its loss."""

import numpy as np

from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cost.attention import attention
from ms_symtensor.cost.configuration import Part
from ms_symtensor.cost.elements import Elements, elements_of
from ms_symtensor.cost.shapes import Array, Shapes
from ms_symtensor.cost.tensor_ranks import gathered, scattered
from ms_symtensor.cost.work import Operator, Place, Transfer, Work, passes, product

_FP32_B = 4

KEPT_GATHERED = 0.6
"""empirical: of a block's two gathered inputs nanotron keeps none with tp_recompute_allgather and both without; published runs,
which do not say, have either (huggingface.co/spaces/nanotron/ultrascale-playbook). So many of the two stand for them: the middle
of where the mean error of their memory is least, 0.3 to 0.9.
"""

ALIGNED = 8
"""Elements that a row has to be a multiple of, so that the cube unit's loads of 16 bytes are aligned (NVIDIA, Matrix
Multiplication Background User's Guide). empirical: a product with rows of fewer takes the square root of what is missing longer.
"""


def dense_block(s: Shapes) -> Place:
    """Norm, attention, residual sum, norm, feed-forward, residual sum."""
    operators = (_norm(s), *attention(s), *_residual(s), _norm(s), *_feed_forward(s), *_last_residual(s))
    return Place("dense block", (*operators, _accumulation(s, elements_of(s)[1], tensors=6)))


def expert_block(s: Shapes) -> Place:
    """As a dense block, with a mixture of experts for the feed-forward."""
    operators = (_norm(s), *attention(s), *_residual(s), _norm(s), *_experts(s), *_last_residual(s))
    # The device counts every expert's tokens, and the host needs that for the sizes of what it launches
    # (megatron/core/transformer/moe/token_dispatcher.py).
    return Place("expert block", (*operators, _accumulation(s, elements_of(s)[2], tensors=6)), asks_host=True)


def embedding(s: Shapes) -> Place:
    """The look-up; its gradient is added row by row."""
    rows = s.norm_tokens * s.hidden * s.element_B
    learned = s.where(lambda c: c.model.position == "learned")
    look_up = Operator(
        forward=(Work("embedding", traffic_B=2 * rows * (1 + learned), kernels=2 + 2 * learned),),
        backward=(Work("embedding backward", traffic_B=4 * rows, kernels=3),),
        kept_B=s.dropout * s.norm_tokens * s.hidden,
    )
    cut = s.table_copies < s.tp
    return Place(
        "embedding",
        (
            scattered(s, look_up, "embedding", s.tokens * s.hidden * s.element_B, cut),
            # Of a tied table once, with the head's part.
            _accumulation(s, elements_of(s)[0], tensors=1, of_a_product=False),
        ),
    )


def head(s: Shapes) -> Place:
    """Last norm, product with the vocabulary, cross entropy in float32."""
    t, h, w = s.tokens, s.hidden, s.element_B
    logits = t * s.loss_vocabulary
    gathers = s.where(lambda c: c.gathered_logits)
    slowdown = np.sqrt(ALIGNED / np.gcd(s.vocabulary.astype(int), ALIGNED))
    gather, made = gathered(s, product("head", t, s.vocabulary, h, w, slowdown=slowdown), "head", t * h * w)
    # nanotron subtracts the maximum into one more copy (src/nanotron/parallel/tensor_parallel/functional.py); PyTorch's own
    # loss, which gathered logits go to, keeps the logarithms of the probabilities beside them.
    parts = gathers * (s.tp > 1) * 2  # the gathered parts beside their concatenation, forward and backward
    copies = 1 + s.where(lambda c: c.framework == "nanotron" or c.gathered_logits or c.copied_logits)
    # Cast, maximum, shifted exponential, sum; the gradient is written over the exponential.
    loss = passes("cross entropy", logits, w + 5 * _FP32_B, 2 * _FP32_B + 2 * w, 7, 4)
    capped = s.where(lambda c: c.model.capped_logits)
    # Divided, tanh, multiplied: the result of tanh and that of the product stand beside the logits.
    cap = passes("cap of the logits", logits, 6 * w, 7 * w, 3, 3, times=capped).keeping(capped * logits * 2 * w)
    sums = Transfer("sums of the loss", Collective.ALL_REDUCE, "tp", t * _FP32_B, 3.0 * (1 - gathers))
    whole = Transfer("logits", Collective.ALL_GATHER, "tp", logits * w, gathers)
    return Place(
        "head",
        (
            _norm(s),
            gather,
            made.keeping(s.norm_tokens * h * w),
            cap,
            loss.keeping(logits * (w * (1 + parts) + copies * _FP32_B)).sending((sums, whole)),
            _accumulation(s, elements_of(s)[3], tensors=2),
        ),
    )


def _accumulation(s: Shapes, elements: Elements, tensors: int, of_a_product: bool = True) -> Operator:
    """Every gradient of a micro-batch is added to that of the step in an operator of its own: under nanotron
    (src/nanotron/optim/gradient_accumulator.py, backward), under MindSpore where a step has several
    (mindspore/ops/_grad_experimental/grad_comm_ops.py, _VirtualAssignAdd), and, but for the gradients that products add up
    themselves, under MindSpeed's Megatron (megatron/core/distributed/distributed_data_parallel.py, main_grad). A block has the
    `tensors` fused query, key and value, output, gate and up, down, and two norms.
    """
    gradient_B = s.column(lambda c: c.bytes_per_parameter.gradient)
    moved_B = (elements.shared + elements.of_experts) * (s.element_B + 2 * gradient_B)
    fused = s.where(lambda c: c.fused_gradient_sums and of_a_product)
    always, several = s.where(lambda c: c.framework == "nanotron"), s.mindspore * (s.micro_batches > 1)
    times = always + several + s.mindspeed * (1 - fused)
    return Operator(backward=(Work("accumulated gradients", traffic_B=moved_B, kernels=tensors, times=times),))


def _norm(s: Shapes) -> Operator:
    """One kernel where it is fused; otherwise a cast, square, mean, product, cast and weight, and their gradients."""
    w, elements, fused = s.element_B, s.norm_tokens * s.hidden, s.fused_norm > 0
    casts = s.mindspore > 0  # to float32 before MindSpore's kernel and back behind it
    forward_B = np.where(fused, np.where(casts, 2 * w + 16, 2 * w), 4 * w + 28)
    backward_B = np.where(fused, np.where(casts, 2 * w + 20, 3 * w), 6 * w + 56)
    kernels, kernels_back = np.where(fused, 1 + 2 * casts, 6), np.where(fused, 2 + 2 * casts, 10)
    operator = passes("norm", elements, forward_B, backward_B, kernels, kernels_back, Part.NORM)
    # Its output, which the product behind it reads, and its input: that of the residual sum, or MindSpore's in float32.
    kept_B = np.where(s.mindspore > 0, _FP32_B, w)
    # Apart, its operators also keep the input and the normalised input in float32.
    return operator.keeping(elements * kept_B, elements * (w + np.where(fused, 0, 2 * _FP32_B)))


def _residual(s: Shapes) -> tuple[Operator, ...]:
    w, elements = s.element_B, s.norm_tokens * s.hidden
    operator = passes("residual sum", elements, 3 * w + s.dropout, w + s.dropout * (w + 1), 1, 1 + s.dropout)
    further = s.where(lambda c: c.model.post_norms)
    # Of a norm before the sum only the input is kept.
    norm = passes("norm before the sum", elements, 2 * w, 3 * w, 1, 2, times=further).keeping(further * elements * w)
    return norm, operator.keeping(s.dropout * elements)


def _last_residual(s: Shapes) -> tuple[Operator, ...]:
    return tuple(operator.delivering() for operator in _residual(s))


def _feed_forward(s: Shapes) -> tuple[Operator, ...]:
    t, h, w = s.tokens, s.hidden, s.element_B
    gather, first = gathered(s, product("up", t, s.branches * s.width, h, w), "up", t * h * w)
    second = scattered(s, product("down", t, h, s.width, w), "down", t * h * w)
    gathered_B = KEPT_GATHERED * s.where(lambda c: c.framework == "nanotron") * (1 - 1 / s.tp) * t * h * w
    first = first.keeping(t * s.branches * s.width * w + gathered_B)
    return gather, first, _activation(s, t * s.width), second.delivering()


def _activation(s: Shapes, elements: Array, parts: Array | float = 1.0) -> Operator:
    """The activation function, times the gate's branch where there is one; its result is read by the product behind it.
    So many `parts` of the elements are computed one after the other.
    """
    w, gated = s.element_B, s.branches > 1
    fused = s.fused_activation > 0
    forward_B = np.where(gated, np.where(fused, 3 * w, 5 * w), np.where(fused, 2 * w, 4 * w))
    backward_B = np.where(gated, np.where(fused, 5 * w, 8 * w), np.where(fused, 3 * w, 5 * w))
    operator = passes("activation", elements / parts, forward_B, backward_B, np.where(fused, 1, 2), np.where(fused, 1, 3),
                      Part.ACTIVATION_FUNCTION, parts)  # fmt: skip
    # Separate operators keep the function's value beside its product with the other branch.
    apart = gated & ~fused
    return operator.keeping(0.0, elements * w * np.where(apart, 2, 1))


def _experts(s: Shapes) -> tuple[Operator, ...]:
    """Router, dispatch, the experts on this device, combination, and the shared experts beside them."""
    h, w, tokens, routed = s.hidden, s.element_B, s.norm_tokens, s.routed
    number = s.column(lambda c: c.model.experts.num_experts if c.model.experts else 1)
    shared = s.column(
        lambda c: (
            c.model.experts.shared_experts * c.model.experts.intermediate_size / c.model_parallel
            if c.model.experts
            else 0
        )
    )
    local, has_shared = number / s.ep, shared > 0
    shared_gather, shared_up = gathered(
        s, product("shared experts up", s.tokens, s.branches * shared, h, w, times=has_shared),
        "shared experts up", s.tokens * h * w, has_shared,
    )  # fmt: skip
    shared_down = product("shared experts down", s.tokens, h, np.maximum(shared, 1), w, times=has_shared)
    apart = np.where(s.where(lambda c: c.grouped_experts) > 0, 1.0, local)  # products one after the other
    # Every rank sends the tokens that its part of the sequence routes, as many as experts have room for, once to the experts and
    # once back; ranks that cut an expert exchange them among each other too.
    own = routed / np.where(s.sequence_parallel > 0, s.etp, 1.0)
    there = Transfer("tokens to experts", Collective.ALL_TO_ALL, "ep", own * h * w, 2.0)
    inside = Transfer("routed tokens", Collective.ALL_GATHER, "etp", routed * h * w, s.sequence_parallel)
    outside = Transfer("routed results", Collective.REDUCE_SCATTER, "etp", routed * h * w, s.sequence_parallel)
    summed = Transfer("routed results", Collective.ALL_REDUCE, "etp", routed * h * w, 1 - s.sequence_parallel)
    sent = (there, inside, outside, summed)  # and their counterparts backward, which are as many of each kind
    return (
        product("router", tokens, number, h, _FP32_B).keeping(tokens * (number * 2 + s.mindspore * h) * _FP32_B),
        passes("permute", routed * h, 2 * w, 2 * w, 6, 6).sending(sent, sent),
        product("experts up", routed / apart, s.branches * s.expert_width, h, w, local / apart, apart).keeping(
            routed * (h + s.branches * s.expert_width) * w
        ),
        _activation(s, routed * s.expert_width, apart),
        product("experts down", routed / apart, h, s.expert_width, w, local / apart, apart).keeping(routed * h * w),
        passes("combine", routed * h, 2 * w, 2 * w, 4, 4),
        shared_gather,
        shared_up.keeping(s.tokens * s.branches * shared * w),
        _activation(s, s.tokens * shared),
        scattered(s, shared_down, "shared experts down", s.tokens * h * w, has_shared).delivering(),
    )
