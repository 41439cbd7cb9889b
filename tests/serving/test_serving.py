"""Serving: bytes against the networks' graphs, exactness against brute force, published orders, refusals."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from model_zoo.builder import build_graph
from model_zoo.config import BlockKind, StateSpaceSizes
from model_zoo.dimensions import dimensions_of
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.constraints.request import free_B
from ms_symtensor.serving.commands import MINDSPORE, engine_commands
from ms_symtensor.serving.deployment import MIXED, SPLIT, TURNS
from ms_symtensor.serving.memory import cache_B, cache_tokens, weights_B
from ms_symtensor.serving.phases import decode, first_token_s, most_requests, prefill
from ms_symtensor.serving.request import Request, Tokens, fixed_of
from ms_symtensor.serving.search import held_up, search
from ms_symtensor.serving.sides import Served, side_of_instances
from ms_symtensor.serving.strategy import Strategy, strategies, why_not


def request_for(name, cluster="atlas_800t_a2", devices=8, tokens=(3500, 3500, 1500), **options):
    config = dimensions_of(name) if isinstance(name, str) else name
    known = load(cluster)
    return Request(config, known, devices, Tokens(*tokens), free_B(known), **options)


@pytest.mark.parametrize("name", ["llama3_8b", "qwen3_32b", "qwen3_30b_a3b", "deepseek_v3"])
def test_weights_of_one_device_are_those_of_the_graph(name):
    """All but norms and biases, and the network that predicts a second token."""
    config = dimensions_of(name, num_layers=5)
    parameters = build_graph(config).parameters
    elements = sum(
        int(np.prod(p.type.shape))
        for p in parameters
        if len(p.type.shape) > 1 and not p.name.startswith("second_token")
    )
    assert weights_B(request_for(config), Strategy()) == 2 * elements


@pytest.mark.parametrize("name", ["llama3_70b", "qwen3_30b_a3b"])
def test_tensor_and_expert_parallelism_share_out_the_weights(name):
    request = request_for(name)
    whole = weights_B(request, Strategy())
    for one in strategies(request.config, 8, {"dp": 1, "pp": 1}):
        per = weights_B(request, one) * one.tp
        assert whole <= per * 1.001 and per < 1.15 * whole  # key-value heads and the router are repeated


def test_latent_attention_has_one_cache_on_all_devices_of_tp():
    latent = request_for("deepseek_v3")
    assert cache_B(latent, Strategy(tp=8)) == cache_B(latent, Strategy()) == 61 * 576 * 2
    dense = request_for("llama3_70b")
    assert cache_B(dense, Strategy(tp=8)) * 8 == cache_B(dense, Strategy()) == 80 * 2 * 1024 * 2


@pytest.mark.parametrize("name", ["deepseek_v3", "one_kv_head"])
def test_data_parallel_attention_has_nearly_as_many_times_the_capacity(name):
    """On 8 devices of 180 GB: 7.7 times for DeepSeek-V4 Flash (vllm issue 51454), less where weights are a larger part."""
    config = dimensions_of("deepseek_v3", num_layers=30)
    if name == "one_kv_head":
        config = replace(dimensions_of("llama3_70b", num_layers=40), n_kv_heads=1)
    request = request_for(config, "b200", weights="int8")
    experts = config.experts is not None
    data = Strategy(1, 8, 1, 8 if experts else 1, 1 if experts else 8)
    tensor = Strategy(1, 1, 8, 8 if experts else 1, 8)
    ratio = 8 * cache_tokens(request, data, 256, 256) / cache_tokens(request, tensor, 256, 256)
    assert 7.7 * 0.9 < ratio < 7.7 * 1.1


@pytest.mark.parametrize("name", ["one_kv_head", "deepseek_v3"])
def test_data_parallel_attention_is_chosen_for_what_tensor_parallelism_copies(name):
    """Copies of one head, or of the latent cache, on all of tp leave a cache for fewer requests."""
    if name == "one_kv_head":
        config = replace(dimensions_of("llama3_70b", num_layers=60), n_kv_heads=1, max_position_embeddings=1 << 17)
        request = request_for(config, tokens=(32000, 32000, 1000), tpot_s=0.05)
    else:
        request = request_for(dimensions_of(name, num_layers=30), "b200", weights="int8", tpot_s=0.05)
    decode = search(request, (SPLIT,)).best.instances[-1]
    assert decode.phase == "decode" and decode.strategy.dp > 1 and decode.strategy.tp == 1


def test_prefill_of_deepseek_is_ordered_as_published():
    """DeepSeek-V3.1 on 16 dies of A3, prompts of 4k to 64k: PP2 TP8, TP16, DP2 TP8 (vllm-ascend, dynamic chunk pipeline)."""
    rates = []
    for pp, dp, tp in ((2, 1, 8), (1, 1, 16), (1, 2, 8)):
        request = request_for("deepseek_v3", "atlas_800t_a3", 16, (4096, 65536, 1024), weights="int8")
        passes = prefill(request, Strategy(pp, dp, tp, dp * tp, tp))
        rates.append(float((passes.one.dp * passes.tokens / passes.stage_s).max()))
    assert rates == sorted(rates, reverse=True)


def test_many_expert_devices_are_ahead_in_decode_on_cloudmatrix():
    """EP320 against EP32 at 50 ms (arXiv 2506.12708): tokens a second and device."""
    best = []
    for devices in (320, 32):
        request = request_for("deepseek_v3", "cloudmatrix384", devices, (4096, 4096, 1024), weights="int8")
        passes = decode(request, Strategy(1, devices, 1, devices, 1))
        best.append(float((passes.requests / passes.stage_s)[passes.pass_s <= 0.05].max()))
    assert best[0] > 1.1 * best[1]


def qwen3_235b():
    small = dimensions_of("qwen3_30b_a3b")
    experts = replace(small.experts, intermediate_size=1536)
    dims = {"hidden_size": 4096, "num_layers": 94, "num_heads": 64, "intermediate_size": 12288, "experts": experts}
    return replace(small, name="qwen3_235b", **dims)


def test_qwen3_235b_on_two_nodes_is_faster_in_two_kinds_of_instances():
    """2,425 tokens/s against 2,210 (vllm-ascend's nightly tests): dp2 tp8 and dp4 tp4 against dp4 tp8, 32 requests of a rank."""
    mixed = {"tp": 8, "dp": 4, "requests": 32, "tokens": 8192}
    split = {"prefill": {"tp": 8, "dp": 2, "tokens": 8192}, "decode": {"tp": 4, "dp": 4, "requests": 32}}
    rates = []
    for mode, fixed in ((SPLIT, split), (MIXED, {"prefill": mixed, "decode": mixed})):
        request = request_for(qwen3_235b(), "atlas_800t_a3", 32, fixed=fixed)
        rates.append(search(request, (mode,)).best.tokens_per_s_device)
    assert 1.0 < rates[0] / rates[1] < 1.4


def test_a_window_bounds_the_cache_and_the_keys():
    config = replace(dimensions_of("llama3_8b"), kinds=tuple(BlockKind(window=512 * (n % 2)) for n in range(32)))
    whole, half = request_for("llama3_8b"), request_for(config)
    assert cache_B(half, Strategy()) < 0.6 * cache_B(whole, Strategy())
    steps = [decode(one, Strategy()).parts["attention"][15] for one in (whole, half)]
    assert steps[1] < 0.8 * steps[0]


def test_the_best_split_is_that_of_brute_force():
    request = request_for("llama3_8b", devices=4, tpot_s=0.03, ttft_s=1.0)
    found = search(request, (SPLIT,)).best
    best = 0.0
    every = list(strategies(request.config, 4, {}))
    for first, other in itertools.product(every, every):
        one, steps = prefill(request, first), decode(request, other)
        if one is None or steps is None:
            continue
        quick = first_token_s(request, one) <= 1.0  # a transfer of the cache comes on top: checked below
        fast = steps.pass_s <= 0.03
        if not quick.any() or not fast.any():
            continue
        rates = (
            float((first.dp * one.requests / one.stage_s)[quick].max()),
            float((other.dp * steps.requests / steps.stage_s)[fast].max()) / request.tokens.output,
        )
        for count, more in itertools.product(range(1, 4), range(1, 4)):
            if count * first.device_num + more * other.device_num <= 4:
                best = max(best, min(count * rates[0], more * rates[1]))
    assert found.requests_per_s == pytest.approx(best, rel=1e-9)
    assert found.ttft_s <= 1.0 and found.tpot_s <= 0.03


def test_the_best_mixed_deployment_is_that_of_brute_force():
    request = request_for("llama3_8b", devices=2, tpot_s=0.05)
    found = search(request, (MIXED,)).best
    best = 0.0
    for one in strategies(request.config, 2, {}):
        first, steps = prefill(request, one), decode(request, one)
        if first is None or steps is None:
            continue
        for n, b in itertools.product(range(len(first.tokens)), range(len(steps.requests))):
            waits = float(held_up(one.dp, steps.requests[b : b + 1] / 1500)[0])
            cycle_s = 1500 * steps.stage_s[b] + waits * steps.requests[b] * first.stage_s[n] / first.requests[n]
            room = most_requests(request, one, int(first.tokens[n]))
            if one.pp * cycle_s / 1500 <= 0.05 and steps.requests[b] <= room:
                best = max(best, 2 // one.device_num * one.dp * steps.requests[b] / cycle_s)
    assert found.requests_per_s == pytest.approx(best, rel=1e-9)


def test_in_turns_stages_take_in_prompts_and_tensor_parallelism_decodes():
    """Seesaw (arXiv 2503.06433) is ahead of one engine, by at most as much as the paper measured."""
    request = request_for("qwen3_32b", fixed=fixed_of(["prefill.pp=8", "decode.tp=8"]))
    turns, one = search(request, (TURNS,)).best, search(request_for("qwen3_32b"), (MIXED,)).best
    first, last = turns.instances
    assert first.strategy.pp == 8 and last.strategy.tp == 8
    assert turns.devices == 8 and turns.transition_s > 0
    assert 1.05 < turns.tokens_per_s_device / one.tokens_per_s_device < 1.78
    assert all("while it runs" in command.refused for command in engine_commands(request, turns))
    pinned = fixed_of(["prefill.pp=8", "prefill.tp=1", "decode.pp=8", "decode.tp=1"])
    same = search(request_for("qwen3_32b", fixed=pinned), (TURNS,)).best
    assert same.transition_s == 0.0 and same.tokens_per_s_device < turns.tokens_per_s_device


def test_requests_of_a_cycle_are_within_both_caches_and_make_its_rate():
    request = request_for("llama3_8b", devices=2, tpot_s=0.05)
    found = search(request, (TURNS,)).best
    first, last = found.instances
    requests = last.requests * last.strategy.dp
    assert requests * math.ceil(5000 / 128) * 128 <= min(one.cache_tokens * one.strategy.dp for one in (first, last))
    cycle_s = requests / last.requests_per_s
    assert cycle_s > found.transition_s + 1500 * last.step_s
    assert found.tpot_s <= 0.05 and found.requests_per_s == pytest.approx(first.count * last.requests_per_s)


def test_in_turns_a_window_bounds_the_cache_that_moves():
    """Of the whole cache a message would find no room."""
    kinds = tuple(BlockKind(window=0 if layer % 6 == 5 else 128) for layer in range(30))
    config = replace(dimensions_of("llama3_8b", num_layers=30), kinds=kinds)
    fixed = fixed_of(["prefill.pp=2", "decode.tp=2"])
    assert search(request_for(config, devices=2, fixed=fixed), (TURNS,)).best.transition_s > 0


def test_more_requests_take_longer_and_give_more():
    passes = decode(request_for("llama3_70b"), Strategy(tp=8, ffn_tp=8))
    assert (np.diff(passes.stage_s) > -1e-9).all()
    assert passes.requests[-1] / passes.stage_s[-1] > 3 * passes.requests[0] / passes.stage_s[0]


def test_8_bit_weights_are_half_as_large_and_faster():
    both = [decode(request_for("llama3_70b", weights=kind), Strategy(tp=8, ffn_tp=8)) for kind in ("bfloat16", "int8")]
    assert both[1].stage_s[0] < 0.8 * both[0].stage_s[0]


def test_what_cannot_be_is_said():
    with pytest.raises(InfeasibleError, match="does not fit 1 devices"):
        search(request_for("llama3_70b", devices=1))
    with pytest.raises(InfeasibleError, match="--tpot"):
        search(request_for("llama3_70b", tpot_s=0.001))
    with pytest.raises(InputError, match="has tp=3; give tp one of 1, 2, 4, 8$"):
        search(request_for("llama3_70b", fixed={"decode": {"tp": 3}, "prefill": {"tp": 3}}))
    with pytest.raises(InputError, match="need 12 devices, and there are 8"):
        search(request_for("llama3_8b", fixed={"decode": {"tp": 8}, "prefill": {"tp": 4}}), (SPLIT,))
    with pytest.raises(InputError, match="need 2 devices, and there are 1"):
        search(request_for("llama3_8b", devices=1), (SPLIT,))
    with pytest.raises(InputError, match="one value"):
        search(request_for("llama3_8b", fixed={"decode": {"tp": 8}, "prefill": {"tp": 4}}), (MIXED,))
    with pytest.raises(InfeasibleError, match="no batch with tokens=1000"):
        search(request_for("llama3_8b", fixed={"decode": {}, "prefill": {"tokens": 1000, "tp": 8}}), (SPLIT,))
    with pytest.raises(InputError, match="does not generate"):
        request_for("bert_large", tokens=(100, 100, 10))
    state_space = replace(dimensions_of("llama3_8b"), state_space=StateSpaceSizes(128, 64, 1, 128))
    with pytest.raises(InputError, match="states of state-space layers have no price in serving"):
        request_for(state_space)
    with pytest.raises(InputError, match="at most 262144 devices, more than any cluster has"):
        request_for("llama3_8b", devices=10**30)
    with pytest.raises(InputError, match="positions"):
        request_for("llama2_7b", tokens=(4000, 4000, 1000))
    with pytest.raises(InputError, match="NAME=N"):
        fixed_of(["tp"])
    with pytest.raises(InputError, match="--fix pins tp twice"):
        fixed_of(["tp=2", "tp=4"])
    reason = why_not(dimensions_of("llama3_70b"), Strategy(tp=3, ffn_tp=3))
    assert reason == "64 heads do not divide by tp 3"


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("llama3_70b", Strategy(tp=8, ffn_tp=8)),
        ("llama3_70b", Strategy(pp=2, dp=2, tp=2, ffn_tp=4)),
        ("qwen3_30b_a3b", Strategy(dp=2, tp=8, ep=16, ffn_tp=8)),
        ("qwen3_30b_a3b", Strategy(tp=4, ffn_tp=4)),
        ("deepseek_v3", Strategy(dp=4, tp=2, ep=8, ffn_tp=2)),
    ],
)
def test_weights_lie_on_devices_as_they_are_counted(name, one):
    """All but norms, biases and what corrects the choice of experts, on the fullest device."""
    request = request_for(dimensions_of(name, num_layers=8))
    side = side_of_instances(Served(request.config, one, 1, "atlas_800t_a2"), "bfloat16", 1)
    total = np.zeros(side.rank_num)
    for held in side.tensors:
        if len(held.shape) > 1:
            for stage, slices in held.stages:
                ranks = slice(stage * side.stage_ranks, (stage + 1) * side.stage_ranks)
                total[ranks] += 2 * math.prod(held.shape) / math.prod(slices.cuts)
    assert total.max() == pytest.approx(weights_B(request, one), rel=1e-6)


def test_experts_that_do_not_lie_evenly_are_refused():
    served = Served(dimensions_of("qwen3_30b_a3b"), Strategy(dp=48, ep=48), 1, "atlas_800t_a2")
    with pytest.raises(InputError, match="evenly"):
        side_of_instances(served, "bfloat16", 1)


@pytest.mark.parametrize(
    ("name", "devices", "fixed", "words"),
    [
        ("llama3_8b", 4, "dp=2", "only for MOE models"),
        ("llama3_8b", 4, "decode.pp=2", "decode pp size must be 1"),
        ("llama3_8b", 4, "", ""),
    ],
)
def test_commands_say_what_vllm_ascend_refuses(name, devices, fixed, words):
    request = request_for(name, devices=devices, fixed=fixed_of([fixed] if fixed else []))
    mode = SPLIT if "decode" in fixed else MIXED
    commands = engine_commands(request, search(request, (mode,)).best)
    assert all(words in one.refused and bool(one.refused) == bool(words) for one in commands)


def test_vllm_mindspore_has_its_own_connector_and_words():
    request = request_for("llama3_8b", devices=4, cache="int8")
    commands = engine_commands(request, search(request, (SPLIT,)).best, MINDSPORE)
    assert [one.arguments[0] for one in commands] == ["vllm-mindspore"] * 2
    assert all("DLLMDsD2DConnector" in one.line and "--kv-cache-dtype int8" in one.line for one in commands)
    wide = request_for("llama3_8b", devices=4, fixed=fixed_of(["dp=2"]))
    (one,) = engine_commands(wide, search(wide, (MIXED,)).best, MINDSPORE)
    assert "over ranks of dp" in one.refused and "--additional-config" not in one.line


def test_more_devices_than_experts_take_redundant_ones():
    fixed = fixed_of(["decode.dp=320", "decode.tp=1", "decode.ep=320"])
    request = request_for("deepseek_v3", "cloudmatrix384", 384, weights="int8", fixed=fixed)
    best = search(request, (SPLIT,)).best
    command = engine_commands(request, best)[-1]
    assert '"num_redundant_experts": 64' in command.line and command.line.startswith("DYNAMIC_EPLB=true vllm serve")
    command = engine_commands(request, best, MINDSPORE)[-1]
    assert "only supported on CUDA" in command.refused and command.line.startswith("vllm-mindspore serve")
