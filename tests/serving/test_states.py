"""Serving networks whose cache is not keys and values alone: states of gated linear attention, an indexer's keys."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model_zoo.builder import build_graph
from model_zoo.config import BlockKind
from model_zoo.config_json import read
from ms_symtensor.cli import main
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.request import free_B
from ms_symtensor.serving.commands import MINDSPORE, engine_commands
from ms_symtensor.serving.deployment import MIXED, SPLIT, TURNS
from ms_symtensor.serving.memory import block_tokens, cache_B, held_B, key_value_B, layer_B, state_B, weights_B
from ms_symtensor.serving.phases import decode, prefill
from ms_symtensor.serving.request import Request, Tokens, fixed_of
from ms_symtensor.serving.search import search
from ms_symtensor.serving.sides import Served, side_of_instances
from ms_symtensor.serving.strategy import Strategy

FILES = Path(__file__).parents[1] / "data" / "configs"
LINEAR, SPARSE = "qwen3_next_80b_a3b", "deepseek_v3_2_exp"


def request_for(name, devices=8, layers=None, tokens=(3500, 3500, 1500), **options):
    config = read(FILES / f"{name}.json").config
    config = config if layers is None else config.with_layers(layers)
    cluster = load("atlas_800t_a3")
    return Request(config, cluster, devices, Tokens(*tokens), free_B(cluster), **options)


@pytest.mark.parametrize("name", [LINEAR, "qwen3_5_35b_a3b", "kimi_linear_48b_a3b", SPARSE, "glm_5"])
@pytest.mark.parametrize("one", [Strategy(), Strategy(dp=2, tp=4, ep=8, ffn_tp=4)])
def test_weights_of_one_device_are_those_of_the_graph(name, one):
    """All but norms, rates of decay, and what corrects the choice of experts."""
    request = request_for(name, layers=range(2, 6))
    config = replace(request.config, second_token_weight=0.0)
    side = side_of_instances(Served(config, one, 1, "atlas_800t_a3"), "bfloat16", 1)
    elements = sum(
        math.prod(held.shape) // math.prod(held.stages[0][1].cuts) for held in side.tensors if len(held.shape) > 1
    )
    assert weights_B(request, one) == 2 * elements
    assert {held.name for held in side.tensors} == {parameter.name for parameter in build_graph(config).parameters}


@pytest.mark.parametrize(
    ("name", "kind", "tokens", "elements"),
    [
        (LINEAR, BlockKind(linear=True), 40, (32 * 128 * 128, 3 * 8192)),
        (LINEAR, BlockKind(), 40, (2 * 2 * 40 * 256, 0)),
        (SPARSE, BlockKind(), 40, (40 * 512 + 40 * 64, 40 * 128)),
        ("glm_5", BlockKind(shares_choice=True), 40, (40 * 512 + 40 * 64, 0)),
        ("kimi_linear_48b_a3b", BlockKind(linear=True), 40, (2 * 32 * 128 * 128, 3 * 12288)),
    ],
)
def test_a_layer_keeps_what_the_caches_of_transformers_keep(name, kind, tokens, elements):
    """Shapes of DynamicCache's layers in transformers 5.24 after 40 tokens: recurrent_states [1, 32, 128, 128], keys and values
    [1, 2, 40, 256]; [1, 1, 40, 512] and [1, 1, 40, 64], indexer_keys [1, 40, 128]. Of conv_states [1, 8192, 4] vLLM keeps 3.
    Kimi Linear's state is float32.
    """
    request = request_for(name)
    assert layer_B(request, Strategy(), kind, tokens) == 2 * sum(elements)


def test_a_state_has_the_type_that_the_file_says():
    state = replace(request_for("qwen3_5_35b_a3b").config.delta, state_dtype="float32")
    request = request_for("qwen3_5_35b_a3b")
    wide = replace(request, config=replace(request.config, delta=state))
    assert state_B(wide, Strategy())[0] == 2 * state_B(request, Strategy())[0] == 4 * 32 * 128 * 128


@pytest.mark.parametrize(
    ("tp", "block", "page_B"),
    [(1, 2048, 2433024), (2, 1024, 1216512), (4, 512, 608256), (8, 256, 304128)],
)
def test_blocks_beside_latent_attention_are_those_of_vllm_ascend(tp, block, page_B):
    """block_size and mamba_page_size_padded of Kimi Linear; every device has the whole latent cache."""
    request, one = request_for("kimi_linear_48b_a3b"), Strategy(tp=tp)
    assert block_tokens(request, one) == block
    assert block * key_value_B(request, one) + state_B(request, one)[1] == page_B


@pytest.mark.parametrize(
    ("tp", "block", "page_B"),
    [(1, 1024, 2146304), (2, 1024, 1073152), (4, 512, 536576), (8, 256, 268288), (16, 128, 134144)],
)
def test_blocks_beside_states_are_those_of_vllm_ascend(tp, block, page_B):
    """block_size and mamba_page_size_padded of Qwen3-Next, as vllm-ascend 0.23.0.post1 sets them; 36 of 48 layers have states."""
    request, one = request_for(LINEAR), Strategy(tp=tp)
    assert block_tokens(request, one) == block
    assert block * key_value_B(request, one) + state_B(request, one)[1] == page_B
    blocks = -(-5000 // block)
    assert cache_B(request, one) == math.ceil((12 * blocks + 36) * page_B / (blocks * block))


def test_states_take_the_same_bytes_whatever_the_prompt():
    request = request_for(LINEAR)
    grown = held_B(request, Strategy(), 20000) - held_B(request, Strategy(), 10000)
    assert grown == 12 * 10000 * 2 * 2 * 256 * 2


def test_an_indexer_keeps_a_key_of_its_own_in_bits_of_the_cache():
    """In 8 bits: 512 elements with 4 scales of float32, 64 rotated ones in 16 bits; a key of 128 and its scale."""
    assert cache_B(request_for(SPARSE), Strategy(tp=8)) == 61 * 2 * (512 + 64 + 128)
    assert cache_B(request_for(SPARSE, cache="int8"), Strategy()) == 61 * (512 + 4 * 4 + 2 * 64 + 128 + 2)


def longer(name, one, least, most, **options):
    """What decode's parts take with more keys: seconds that 256 requests of a rank at `most` tokens take above `least`."""
    both = [
        decode(replace(request_for(name, tokens=(n, n, 2), **options), limit_B=1 << 50), one) for n in (least, most)
    ]
    return {part: float(both[1].parts[part][255] - both[0].parts[part][255]) for part in both[0].parts}


def test_decode_reads_all_keys_of_an_indexer_and_the_chosen_ones_of_the_latent_cache():
    """By first principles: 256 bytes of a token and layer come from memory, and 2,048 latent vectors whatever there is."""
    device = load("atlas_800t_a3").arguments
    found = longer(SPARSE, Strategy(dp=32, ep=32), 8000, 16000)
    read_s = 61 * 256 * 8000 * 256 / (device["eta_read"] * device["B_hbm"])
    assert found["indexer"] == pytest.approx(read_s, rel=0.6)  # the matrix unit takes longer where it has all of them
    assert found["indexer"] >= read_s
    assert all(abs(seconds) < 1e-9 for part, seconds in found.items() if part != "indexer")


def test_decode_reads_and_writes_states_that_do_not_grow():
    device = load("atlas_800t_a3").arguments
    found = longer(LINEAR, Strategy(), 4000, 8000)
    keys_s = 256 * 4000 * 12 * 2 * 2 * 256 * 2 / (device["eta_read"] * device["B_hbm"])
    assert found["attention"] == pytest.approx(keys_s, rel=1e-6)
    assert all(abs(seconds) < 1e-9 for part, seconds in found.items() if part != "attention")
    request = replace(request_for(LINEAR), limit_B=1 << 50)
    passes = decode(request, Strategy())
    each_B = 2 * 36 * sum(state_B(request, Strategy()))
    moved_s = each_B / (device["eta_hbm"] * device["B_hbm"])
    more = float(passes.parts["linear_attention"][1023] - passes.parts["linear_attention"][511]) / 512
    assert moved_s <= more < 1.5 * moved_s  # the rest: what tokens bring


def test_prefill_takes_what_the_products_of_chunks_take():
    """Of a token and head by first principles, chunks of C = 64 and sizes of 128: 94,208 multiply-adds."""
    request = replace(request_for(LINEAR, tokens=(16384, 16384, 2)), limit_B=1 << 50)
    device, delta, hidden = load("atlas_800t_a3").arguments, request.config.delta, request.config.hidden_size
    c, n = 64, 128
    rule = delta.value_heads * (2 * c * n + c * c + 2 * c * n + c * n + 3 * n * n)
    assert rule == 32 * 94208
    projections = hidden * (16 * 768 + 2 * 32) + 4096 * hidden
    floor_s = 36 * 16384 * 2 * (rule + projections) / (device["eta_cube"] * device["F_cube"])
    passes = prefill(request, Strategy(), (16384,))
    assert floor_s < passes.parts["linear_attention"][0] < 3 * floor_s


def test_sparse_prefill_grows_with_the_chosen_keys_and_scores_with_all():
    whole, half = (
        prefill(replace(request_for(SPARSE, tokens=(n, n, 2), weights="int8"), limit_B=1 << 50), Strategy(), (16384,))
        for n in (65536, 32768)
    )
    attention, scores = (whole.parts[part][0] / half.parts[part][0] for part in ("attention", "indexer"))
    assert attention < 1.15 and 1.6 < scores < 2.1


@pytest.mark.parametrize("modes", [(MIXED,), (SPLIT,), (TURNS,)])
@pytest.mark.parametrize("name", [LINEAR, SPARSE])
def test_every_mode_serves_them(name, modes):
    devices, weights = (8, "bfloat16") if name == LINEAR else (64, "int8")
    fixed = fixed_of(["prefill.pp=1", "decode.pp=1", "tp=4"]) if modes == (TURNS,) else fixed_of([])
    best = search(request_for(name, devices, weights=weights, fixed=fixed), modes).best
    assert best.tokens_per_s_device > 0
    for one in best.instances:
        assert one.weights_B + one.cache_B <= free_B(load("atlas_800t_a3"))


def test_what_vllm_refuses_of_states_is_said():
    request = request_for(LINEAR, 32, fixed=fixed_of(["tp=32"]))
    with pytest.raises(InputError, match="16 key heads of linear attention do not divide by tp 32"):
        search(replace(request, config=replace(request.config, num_heads=32)))

    def words(*pins, config=None, mode=MIXED, **options):
        request = request_for(LINEAR, fixed=fixed_of(pins), **options)
        request = request if config is None else replace(request, config=config)
        return engine_commands(request, search(request, (mode,)).best)

    fine = words("tp=4")
    assert not any(one.refused for one in fine) and all("--block-size 512" in one.line for one in fine)
    other = words("prefill.tp=1", "decode.tp=4", mode=SPLIT)
    assert all(one.refused == "Mamba prefill TP size must be >= decode TP size." for one in other)
    assert not any(one.refused for one in words("prefill.tp=4", "decode.tp=4", mode=SPLIT))
    config = request_for(LINEAR).config
    odd = replace(config, delta=replace(config.delta, value_size=80))
    assert all("Cannot align" in one.refused for one in words("tp=4", config=odd))


def test_commands_of_an_indexer_say_how_its_cache_is_kept():
    request = request_for(SPARSE, 64, weights="int8", cache="int8", fixed=fixed_of(["tp=4"]))
    best = search(request, (MIXED,)).best
    (command,) = engine_commands(request, best)
    given = dict(zip(command.arguments, command.arguments[1:], strict=False))
    assert json.loads(given["--additional-config"]) == {"enable_sparse_sfa_c8": True, "enable_sparse_li_c8": True}
    assert not command.refused and given["--block-size"] == "128"
    (other,) = engine_commands(request, best, MINDSPORE)
    assert "indexer" in other.refused


@pytest.mark.parametrize(("name", "words"), [(LINEAR, "linear attention"), (SPARSE, "indexer")])
def test_serve_writes_commands_and_says_why_there_are_no_plans(name, words, tmp_path, capsys):
    devices = ["--device-num", "8"] if name == LINEAR else ["--device-num", "64", "--weights", "int8"]
    out = tmp_path / "served"
    asked = [
        "--cluster",
        "atlas_800t_a3",
        *devices,
        "--input-tokens",
        "3500",
        "--output-tokens",
        "100",
        "--fix",
        "tp=4",
    ]
    assert main(["serve", str(FILES / f"{name}.json"), *asked, "--out", str(out)]) == 0
    assert "no plans to verify" in capsys.readouterr().err
    assert "vllm serve" in (out / "vllm_ascend.sh").read_text()
    for command in ("verify", "prove"):
        assert main([command, str(out)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line and len(line) <= 450


def test_a_pass_of_no_more_tokens_than_the_indexer_leaves_reads_them_all():
    short, none = (
        decode(
            replace(request_for(SPARSE, tokens=(1000, 1000, 2), weights="int8"), limit_B=1 << 50, config=config),
            Strategy(),
        )
        for config in (request_for(SPARSE).config, replace(request_for(SPARSE).config, indexer=None))
    )
    assert np.allclose(short.parts["attention"][:64], none.parts["attention"][:64], rtol=1e-9)
