"""Predictions of whole steps: what must grow, what must shrink, and what published formulas say."""

from dataclasses import replace

import numpy as np
import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.attention import MERGE_KERNELS, MERGE_KERNELS_BACKWARD
from ms_symtensor.cost.configuration import (
    FULL_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    AttentionKernel,
    Bytes,
    Configuration,
    Experts,
    LatentAttention,
    Recomputation,
    Transformer,
)
from ms_symtensor.cost.prediction import model_flops, predict, usable_B
from ms_symtensor.cost.shapes import shapes_of
from ms_symtensor.program.settings import OptimizerLevel

A100 = load("a100_80g")
GPT = Transformer(
    4096,
    32,
    32,
    32,
    16384,
    51200,
    gated=False,
    norm="layer_norm",
    position="learned",
    tied_embeddings=True,
    dropout=True,
)
LLAMA = Transformer(4096, 32, 32, 8, 14336, 128256)
BASE = Configuration(LLAMA, 4096, data_parallel=8, micro_batch_num=16)


def one(**changes):
    return replace(BASE, **changes)


def test_a_row_does_not_depend_on_the_others():
    rows = [
        one(model_parallel=t, pipeline_stages=p, micro_batch_size=b) for t in (1, 8) for p in (1, 4) for b in (1, 4)
    ]
    together = predict(rows, A100)
    for i, row in enumerate(rows):
        alone = predict([row], A100)
        assert alone.step_time_s[0] == pytest.approx(together.step_time_s[i], rel=1e-12)
        assert alone.peak_memory_B[0] == together.peak_memory_B[i]


def test_recomputation_costs_time_and_spares_memory():
    found = predict([one(), one(recomputation=FULL_RECOMPUTATION)], A100)
    assert 1.15 < found.step_time_s[1] / found.step_time_s[0] < 1.35
    assert found.peak_memory_B[1] < found.peak_memory_B[0]
    assert found.seconds.recompute_s[0] == 0


def test_mindspore_does_not_compute_the_last_product_of_a_block_again():
    wide = replace(LLAMA, intermediate_size=16 * LLAMA.intermediate_size)  # of which it is a third
    rows = [one(model=wide, recomputation=FULL_RECOMPUTATION, framework=f) for f in ("mindspore", "mindspeed")]
    spared, whole = predict(rows, A100).seconds.recompute_s
    assert spared / whole == pytest.approx(2 / 3, rel=0.05)


def test_more_micro_batches_fill_the_pipeline():
    rows = [one(pipeline_stages=8, micro_batch_num=m) for m in (8, 64)]
    found = predict(rows, A100)
    share = found.seconds.bubble_s / found.step_time_s
    assert share[0] > 3 * share[1]
    assert found.mfu[1] > found.mfu[0]


def test_interleaving_shortens_the_bubble_and_keeps_more():
    found = predict([one(pipeline_stages=8, micro_batch_num=16, interleave=v) for v in (1, 4)], A100)
    assert found.seconds.bubble_s[1] < found.seconds.bubble_s[0]
    assert found.bytes.activations_B[1, 0] > found.bytes.activations_B[0, 0]


@pytest.mark.parametrize("level, shares", [(0, (1, 1, 1)), (1, (1, 1, 8)), (2, (1, 8, 8)), (3, (8, 8, 8))])
def test_optimizer_levels_shard_what_zero_says(level, shares):
    found = predict([one(), one(optimizer_level=OptimizerLevel(level))], A100).bytes
    for part, share in zip(("parameters_B", "gradients_B", "optimizer_states_B"), shares, strict=True):
        values = getattr(found, part)
        assert values[0, 0] == pytest.approx(share * values[1, 0])


def test_the_first_step_has_no_optimizer_states_while_it_computes():
    found = predict([one(optimizer_level=OptimizerLevel(level)) for level in (0, 1)], A100)
    whole, first, parts = found.stage_memory_B[:, 0], found.first_step_memory_B[:, 0], found.bytes
    assert (first < whole).all() and (first >= parts.resting_B[:, 0]).all()
    assert first[1] == whole[1] - parts.optimizer_states_B[1, 0]


def test_mindspore_shards_experts_only_where_their_number_divides():
    model = Transformer(1024, 4, 16, 16, 4096, 32000, experts=Experts(16, 2, 512))
    rows = [
        Configuration(
            model, 1024, data_parallel=d, expert_parallel=2, framework="mindspore",
            optimizer_level=OptimizerLevel.LEVEL1, bytes_per_parameter=Bytes(4, 0, 4, 8),
        )
        for d in (16, 32)
    ]  # fmt: skip
    divides, does_not = predict(rows, A100).bytes.optimizer_states_B[:, 0]
    experts = 4 * 16 / 2 * 3 * 1024 * 512 * 8  # four blocks, half of the experts, three products, two moments
    assert divides < experts / 4 and does_not > experts


def test_kept_activations_are_those_of_megatron():
    # Korthikanti et al., arXiv 2205.05198, equation 2: s b h (34 + 5 a s / h) bytes per block; half of it on two stages.
    plain = replace(BASE, model=GPT, attention=AttentionKernel.FUSED_SOFTMAX, precision="float16", micro_batch_num=1)
    s, h, a = plain.seq_length, GPT.hidden_size, GPT.num_heads
    deep, shallow = predict([plain, replace(plain, model=replace(GPT, num_layers=16))], A100).bytes.activations_B[:, 0]
    assert (deep - shallow) / 16 == pytest.approx(s * h * (34 + 5 * a * s / h))


def test_gradients_of_scores_live_beside_them():
    kinds = (AttentionKernel.FLASH, AttentionKernel.FUSED_SOFTMAX, AttentionKernel.PLAIN)
    flash, fused, plain = predict([replace(BASE, attention=kind) for kind in kinds], A100).bytes.moments_B[:, 0]
    scores = 2 * BASE.model.num_heads * BASE.micro_batch_size * BASE.seq_length**2
    assert (fused - flash, plain - fused) == (scores, scores)


def test_model_flops_are_the_published_formula():
    # Narayanan et al., arXiv 2104.04473, section 5.1, without recomputation: three quarters of 96 B s l h^2 (...)
    c = replace(BASE, model=GPT)
    batch, s, layers, h, v = c.global_batch_size, c.seq_length, GPT.num_layers, GPT.hidden_size, GPT.vocab_size
    published = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert model_flops(c) == pytest.approx(published)


def test_experts_on_more_devices_take_less_memory_and_more_communication():
    latent = LatentAttention(1536, 512, 64, 128, 128)
    model = Transformer(
        7168, 8, 128, 128, 18432, 129280, head_dim=128, experts=Experts(64, 8, 2048, 1, 1), latent_attention=latent
    )
    rows = [Configuration(model, 4096, data_parallel=64, expert_parallel=e, micro_batch_num=4) for e in (8, 64)]
    found = predict(rows, A100)
    assert found.bytes.parameters_B[1, 0] < found.bytes.parameters_B[0, 0]
    assert found.seconds.communication_s[1] > found.seconds.communication_s[0] > 0


@pytest.mark.parametrize("change", [{"cube_efficiency": 0.5}, {"hbm_efficiency": 0.4}, {"host_overhead_s": 1e-3}])
def test_a_slower_device_takes_longer(change):
    slower = replace(A100, device=replace(A100.device, **change))
    assert predict([BASE], slower).step_time_s[0] > predict([BASE], A100).step_time_s[0]


def test_the_parts_add_up():
    rows = [one(model_parallel=t, pipeline_stages=p) for t in (1, 8) for p in (1, 4)]
    found = predict(rows, A100).seconds
    parts = ("compute_s", "communication_s", "recompute_s", "transfer_s", "bubble_s", "gradient_s", "optimizer_s")
    total = sum(getattr(found, part) for part in parts)
    np.testing.assert_allclose(total, found.step_time_s, rtol=1e-12)
    assert all((getattr(found, part) >= -1e-12).all() for part in parts if part != "bubble_s")


def test_a_vocabulary_whose_rows_are_not_aligned_takes_longer():
    # 50257 is odd, padded it is 50304; its halves of 25128 rows are a multiple of 8.
    model = replace(LLAMA, vocab_size=50257)
    rows = [one(model=model, model_parallel=t, padded_vocabulary=p) for t in (1, 2) for p in (True, False)]
    padded, odd, half_padded, half = predict(rows, A100).step_time_s
    assert odd > 1.03 * padded
    assert half == pytest.approx(half_padded, rel=0.01)


def test_an_eager_host_is_hidden_but_for_tensor_ranks_which_wait_for_each_other():
    free = replace(A100, device=replace(A100.device, host_overhead_s=0.0))
    rows = [one(model_parallel=t) for t in (1, 2)]
    alone, ranks = predict(rows, A100).step_time_s / predict(rows, free).step_time_s
    assert alone == pytest.approx(1.0, abs=1e-3)  # blocks of 4096 keep the device busy
    assert 1.01 < ranks < 1.1
    compiled = replace(rows[1], framework="mindspore")
    assert predict([compiled], A100).step_time_s[0] == predict([compiled], free).step_time_s[0]


def test_gathered_logits_of_a_pipeline_are_held_once_more_on_its_last_stage():
    rows = [one(gathered_logits=g, pipeline_stages=p) for g in (True, False) for p in (1, 2)]
    alone, staged, plain, plain_staged = predict(rows, A100).bytes.activations_B
    logits_B = 2 * BASE.seq_length * LLAMA.vocab_size
    assert staged[1] - plain_staged[1] == pytest.approx(alone[0] - plain[0] + logits_B)
    assert staged[0] == plain_staged[0]


def kept_B(*configurations):
    """Activations of the first stage of each."""
    return predict(configurations, A100).bytes.activations_B[:, 0]


def test_the_rotary_kernel_of_torch_npu_keeps_the_product_that_it_turns():
    plain, npu = kept_B(one(framework="megatron"), one(framework="mindspeed"))
    tokens, width, heads = 4096, 4096 + 2 * 8 * 128, 32  # queries, keys and values of 32 and 8 heads
    statistics_B = (64 - 4) * heads * tokens  # of FlashAttentionScore beside FlashAttention's
    assert npu - plain == pytest.approx(32 * (2 * width * tokens + statistics_B))
    learned = replace(LLAMA, position="alibi")
    plain, npu = kept_B(one(model=learned), one(model=learned, framework="mindspeed"))
    assert npu - plain == pytest.approx(32 * statistics_B)


def test_a_loss_that_copies_the_logits_keeps_them_once_more_in_float32():
    in_place, copied = predict([one(), one(copied_logits=True)], A100).peak_memory_B
    assert copied - in_place == 4 * 4096 * 128256


def test_few_recomputed_blocks_are_those_of_the_first_chunks_which_have_most_micro_batches_in_flight():
    def spread(blocks):
        return one(pipeline_stages=4, interleave=4, recomputation=Recomputation(blocks=(blocks,)))

    three, four, five = kept_B(*map(spread, (3, 4, 5)))
    # Stage 0 has 2 * 3 + 3 * 4 + 1 = 19 chunks in flight: 4 of each, and 3 more of the first. The fourth block is of the last.
    assert (four - five) / (three - four) == pytest.approx(7 / 4)


def test_norms_behind_attention_and_feed_forward_a_gelu_gate_and_capped_logits_keep_more():
    plain, norms, gate, capped = kept_B(
        one(), *(one(model=replace(LLAMA, **{name: True})) for name in ("post_norms", "geglu", "capped_logits"))
    )
    tokens = 4096
    assert norms - plain == 32 * 2 * 2 * tokens * 4096
    assert gate - plain == 32 * 2 * tokens * 14336
    assert capped - plain == 4 * tokens * 128256
    times = predict([one(), one(model=replace(LLAMA, post_norms=True))], A100).step_time_s
    assert times[1] > times[0]


def test_every_further_communicator_takes_memory():
    h100 = load("h100_80g")
    rows = [one(), one(model_parallel=2), one(model_parallel=2, pipeline_stages=2)]
    left = usable_B(shapes_of(rows), h100)
    assert list(h100.device.hbm_usable_B - left) == [0, h100.device.communicator_B, 2 * h100.device.communicator_B]
    needed_B = predict(rows, h100).bytes.reserved_B.max(axis=1)
    tight = replace(h100, device=replace(h100.device, hbm_usable_B=float(needed_B[2])))
    assert not predict(rows, tight).fits[2]
    assert predict(rows, replace(tight, device=replace(tight.device, communicator_B=0.0))).fits[2]


def test_pytorch_hands_out_more_of_an_ascend_device_than_mindspore():
    a2 = load("atlas_800t_a2")
    eager, graph = usable_B(shapes_of([one(framework="mindspeed"), one(framework="mindspore")]), a2)
    assert eager / 2**30 == pytest.approx(60.6)
    assert graph == a2.device.hbm_usable_B < eager


def test_mindspeed_pads_the_values_of_latent_attention():
    wide = replace(LLAMA, latent_attention=LatentAttention(1536, 512, 64, 128, 128))
    even = replace(LLAMA, latent_attention=LatentAttention(1536, 512, 64, 128, 192))
    padded, plain = (
        kept_B(one(model=model, framework="mindspeed"))[0] - kept_B(one(model=model))[0] for model in (wide, even)
    )
    # The 64 that are missing of every value, and the result of 192 beside the one that is cut to 128.
    assert padded - plain == pytest.approx(32 * 2 * 4096 * 32 * (64 + 192))


def test_short_sequences_round_a_ring_are_bound_by_the_host_that_merges_results():
    a2 = load("atlas_800t_a2")
    spread = dict(data_parallel=2, context_parallel=4, framework="mindspeed")
    ring, exchanged = (predict([one(exchanged_heads=e, **spread)], a2).step_time_s[0] for e in (False, True))
    launches_s = 32 * 16 * 3 * (MERGE_KERNELS + MERGE_KERNELS_BACKWARD) * a2.device.host_overhead_s
    assert exchanged < ring < exchanged + 1.1 * launches_s
    alone = predict([one(exchanged_heads=e, framework="mindspeed") for e in (False, True)], a2).step_time_s
    assert alone[0] == alone[1]


@pytest.mark.parametrize("exchanged", [False, True])
def test_attention_that_is_recomputed_sends_its_keys_or_heads_again(exchanged):
    # megatron/core/transformer/attention.py: the checkpointed core_attention is what goes round the ring or exchanges heads.
    spread = one(context_parallel=4, exchanged_heads=exchanged, recomputation=SELECTIVE_RECOMPUTATION)
    slow_links = replace(A100, levels=tuple(replace(level, efficiency=level.efficiency / 100) for level in A100.levels))
    near, far = (predict([spread, one(context_parallel=4)], cluster).seconds for cluster in (A100, slow_links))
    longer = far.communication_s[0] - near.communication_s[0]
    assert far.recompute_s[0] - near.recompute_s[0] == pytest.approx(longer / (2 if exchanged else 3))


def test_experts_one_after_the_other_take_longer_than_a_grouped_product():
    model = replace(LLAMA, experts=Experts(8, 2, 1792))
    grouped, apart = predict([one(model=model, grouped_experts=g) for g in (True, False)], A100).step_time_s
    assert apart > 1.05 * grouped
    spread = one(model=model, expert_parallel=8)
    assert predict([spread], A100).step_time_s == predict([replace(spread, grouped_experts=False)], A100).step_time_s


def test_float32_is_computed_at_its_own_peak():
    half, single = predict([one(), one(precision="float32")], A100).seconds.compute_s
    ratio = A100.device.cube_peak_FLOPs / A100.device.cube_fp32_peak_FLOPs
    assert 0.5 * ratio < single / half < ratio


def test_fsdp_gathers_weights_in_every_micro_batch():
    exposed = {"overlap_gradients": False, "overlap_weights": False, "framework": "fsdp"}
    rows = [
        one(optimizer_level=level, micro_batch_num=number, **exposed)
        for level in (OptimizerLevel.LEVEL2, OptimizerLevel.LEVEL3)
        for number in (1, 8)
    ]
    once, still, whole, often = predict(rows, A100).seconds.gradient_s
    assert still == once < whole and often == pytest.approx(8 * whole)
