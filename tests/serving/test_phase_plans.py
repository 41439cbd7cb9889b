"""The plans of prefill and decode that `serve --out` writes: compiled by MindSpore, run by local processes."""

import json
from pathlib import Path

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.megatron import megatron_strategy
from model_zoo.phase import NAMES, Phase
from ms_symtensor.cli import main
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Phase as Direction
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.strategy.folder import read
from ms_symtensor.strategy.record import PROVED_FILE, record

DIMS = {
    "model_type": "qwen3", "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 16, "head_dim": 32,
    "num_key_value_heads": 8, "intermediate_size": 2048, "vocab_size": 4096, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip


def config_of(name: str, phase: str, weights: str = "", **sizes: int) -> TransformerConfig:
    chunk = 1 if phase == "decode" else 256
    text = Phase(phase, cache_blocks=64, block_tokens=128, request_blocks=8, weights=weights).text
    return dimensions_of(name, num_layers=2, seq_length=chunk, batch_size=8, phase=text, **sizes)


def serve(folder: Path, *options: str, dims: dict[str, object] = DIMS) -> Path:
    (folder / "config.json").write_text(json.dumps(dims))
    lengths = ["--input-tokens", "600", "--output-tokens", "100"]
    out = folder / "served"
    assert main(["serve", str(folder / "config.json"), "--device-num", "4", *lengths, *options, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize(
    ("name", "phase", "weights"),
    [
        ("qwen3_32b", "prefill", ""),
        ("qwen3_30b_a3b", "decode", "int8"),
        ("deepseek_v3", "decode", ""),
        pytest.param("deepseek_v3", "decode", "int8", marks=pytest.mark.matrix),
        pytest.param("deepseek_v3", "prefill", "int8", marks=pytest.mark.matrix),
        pytest.param("llama3_70b", "decode", "", marks=pytest.mark.matrix),
        pytest.param("qwen3_30b_a3b", "prefill", "", marks=pytest.mark.matrix),
    ],
)
def test_graphs_of_phases_are_the_captured_ones(name: str, phase: str, weights: str) -> None:
    pytest.importorskip("mindspore")
    from model_zoo.network import build
    from ms_symtensor.bridge.capture.capture import capture

    config = config_of(name, phase, weights, **({"dense_layers": 1} if name == "deepseek_v3" else {}))
    cell, inputs = build(config)
    assert build_graph(config) == capture(cell, *inputs)


def test_a_decode_step_has_one_sum_of_each_branch_and_cuts_the_cache_by_heads() -> None:
    config = config_of("llama3_70b", "decode")
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 1, 4, sequence_parallel=False)
    program = partition(graph, StagePlan({name: OpStrategy(*each) for name, each in cuts.items()}, Settings(4)))
    assert {node.phase for node in program.nodes} == {Direction.FORWARD}
    sums = [one.op.split("/")[-3] for one in program.collectives() if one.kind == "AllReduce"]
    assert len(sums) == 2 * config.num_layers
    assert program.parameters["layers.0.attention.key_cache"].slice_shape == (64, 128, 2, 128)
    assert program.collectives()[-1].kind == "AllGather"  # the logits, which every rank has whole


def test_a_latent_cache_lies_whole_on_every_rank_and_its_queries_are_cut_by_requests() -> None:
    """2 ranks of data times 4 of tensor parallelism: MindSpore cuts no heads of queries without those of the cache."""
    config = config_of("deepseek_v3", "decode", dense_layers=1)
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 2, 4, False, expert_parallel=8, expert_model_parallel=1)
    program = partition(graph, StagePlan({name: OpStrategy(*each) for name, each in cuts.items()}, Settings(8)))
    attention = "layers.0.attention"
    assert program.parameters[f"{attention}.latent_cache"].slice_shape == (64, 128, 1, 512 + 64)
    assert program.parameters[f"{attention}.key.weight"].slice_shape == (128, 128, 512)
    assert program.parameters[f"{attention}.query.weight"].slice_shape == (128 * 128 // 4, 1536)
    read = next(node for node in program.nodes if node.kind == "PagedAttention")
    assert program.tensors[read.inputs[0]].shape == (1, 1, 128 * (512 + 64))
    written = next(one for one in program.collectives() if one.kind == "AllGather" and "CachedLatent" in one.op)
    assert written.size_B == config.batch_size * (512 + 64) * 2  # of all requests: slots are not cut


def test_experts_are_cut_over_ranks_that_take_requests_apart() -> None:
    """4 ranks of data parallelism: each has its requests' cache, and a slice of every expert."""
    config = config_of("qwen3_30b_a3b", "decode")
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 4, 1, False, expert_parallel=1, expert_model_parallel=4)
    program = partition(graph, StagePlan({name: OpStrategy(*each) for name, each in cuts.items()}, Settings(4)))
    assert config.experts is not None
    width = config.experts.intermediate_size
    assert program.parameters["layers.0.feed_forward.experts.gate"].slice_shape == (128, 2048, width // 4)
    attention = next(node for node in program.nodes if node.kind == "PagedAttention")
    assert program.tensors[attention.inputs[0]].shape[0] == config.batch_size // 4
    gathered = [one for one in program.collectives() if one.kind == "AllGather" and "CachedAttention" in one.op]
    keys_B = config.batch_size * config.n_kv_heads * config.head_dim * 2
    assert [one.size_B for one in gathered] == [keys_B] * 2 * config.num_layers  # new keys and values of all requests


def test_serve_writes_plans_that_mindspore_compiles_as_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mindspore")
    out = serve(tmp_path, "--fix", "tp=4", "--colocated")
    capsys.readouterr()
    assert main(["verify", str(out), "--blocks", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["phases"]) == set(NAMES) and found["collectives"]["equal"]
    for one in found["phases"].values():
        assert one["collectives"]["predicted"] > 0 and one["collectives"]["equal"]
        assert one["parameter_bytes"]["predicted"] == one["parameter_bytes"]["compiled"]
        assert one["files"]["certified"]


def test_other_content_than_was_served_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = serve(tmp_path, "--colocated")
    plan, deployment = out / "decode" / "plan.json", out / "serve.json"
    written = {file: file.read_text() for file in (plan, deployment)}
    for file, words in ((plan, "plan.json differs"), (deployment, "serve.json is cut or was changed")):
        file.write_text(written[file] + " ")
        capsys.readouterr()
        for command in ("verify", "prove"):
            assert main([command, str(out)]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert words in line and len(line) <= 450
        file.write_text(written[file])


def test_other_commands_take_the_plan_of_a_phase_and_name_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = serve(tmp_path, "--fix", "tp=4", "--colocated")
    proved = {
        "equal": True,
        "ranks": {"prefill": 2, "decode": 4},
        "logits_rel_error": {"prefill": 1e-7, "decode": None},
    }
    folder = read(out / "decode")
    assert record(folder, PROVED_FILE, proved | {"cache_rel_error_max": 0.0, "caches_checked": 4}) == ""
    for command in ("explain", "report"):
        assert main([command, str(out / "decode")]) == 0
    assert "logits of decode not finite" in (out / "decode" / "report.html").read_text()
    capsys.readouterr()
    for command, words in (
        (["explain", str(out)], "such as decode"),
        (["prove", str(out / "decode")], "folder of serve"),
    ):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line and len(line) <= 450


def test_what_has_no_network_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = serve(tmp_path, "--colocated", "--weights", "int4")
    assert "no plans to verify" in capsys.readouterr().err
    assert main(["verify", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "packed in pairs" in line and len(line) <= 450


def test_weights_of_eight_bits_have_a_scale_for_every_output_cut_as_it_is() -> None:
    config = config_of("qwen3_30b_a3b", "decode", "int8")
    graph = build_graph(config)
    cuts = megatron_strategy(graph, config, 4, 1, False, expert_parallel=1, expert_model_parallel=4)
    program = partition(graph, StagePlan({name: OpStrategy(*each) for name, each in cuts.items()}, Settings(4)))
    assert config.experts is not None
    experts, width = "layers.0.feed_forward.experts", config.experts.intermediate_size // 4
    assert program.parameters[f"{experts}.gate"].dtype == "int8"
    assert program.parameters[f"{experts}.gate_scale"].slice_shape == (128, 1, width)
    assert program.parameters[f"{experts}.down_scale"].slice_shape == (128, 1, config.hidden_size)


LATENT = {
    "model_type": "deepseek_v3", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "q_lora_rank": 64,
    "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "num_key_value_heads": 8,
    "intermediate_size": 512, "moe_intermediate_size": 64, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "vocab_size": 1024, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
    "norm_topk_prob": True, "moe_layer_freq": 1,
}  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_latent_attention_is_compiled_as_predicted_and_proved(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mindspore")
    options = ["--fix", "tp=2", "--fix", "dp=2", "--fix", "ep=4", "--colocated", "--weights", weights]
    out = serve(tmp_path, *options, dims=LATENT)
    capsys.readouterr()
    assert main(["verify", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collectives"]["equal"]
    assert main(["prove", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] and found["caches_checked"] == 2
    assert all(error <= 1e-5 for error in found["logits_rel_error"].values())


@pytest.mark.matrix
def test_stages_of_prefill_hand_on_to_each_other_and_their_caches_to_one_stage_of_decode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mindspore")
    pins = ["prefill.pp=2", "prefill.tp=1", "prefill.dp=1", "decode.pp=1", "decode.tp=2", "decode.dp=1", "decode.ep=2"]
    fixed = [word for pin in pins for word in ("--fix", pin)]
    out = serve(tmp_path, *fixed, "--disaggregated", dims=LATENT)
    capsys.readouterr()
    assert main(["prove", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] and found["ranks"] == {"prefill": 2, "decode": 2} and found["caches_checked"] == 2
    assert all(error <= 1e-5 for error in found["logits_rel_error"].values())


@pytest.mark.matrix
def test_logits_of_both_phases_are_those_of_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mindspore")
    out = serve(tmp_path, "--fix", "tp=4", "--colocated")
    capsys.readouterr()
    assert main(["prove", str(out), "--ranks", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] and set(found["logits_rel_error"]) == set(NAMES)
    assert all(error <= 1e-5 for error in found["logits_rel_error"].values()) and found["caches_checked"] == 4
