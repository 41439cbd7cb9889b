"""`symtensor serve` as users call it."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from ms_symtensor.cli import main

LENGTHS = ["--input-tokens", "3500", "--output-tokens", "1500"]


def served(capsys: pytest.CaptureFixture[str], *options: str) -> dict:
    assert main(["serve", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "options",
    [
        ["llama3_70b", "--device-num", "8"],
        ["qwen3_32b", "--device-num", "8"],
        ["qwen3_30b_a3b", "--device-num", "16"],
        ["deepseek_v3", "--device-num", "64", "--cluster", "atlas_800t_a3", "--weights", "int8", "--ttft", "7s"],
    ],
    ids=lambda options: options[0],
)
def test_serve_keeps_its_limits(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = served(capsys, *options, *LENGTHS, "--tpot", "50ms")
    assert found["tokens_per_s_device"] > 0 and found["tpot_s"] <= 0.05 and found["optimality_gap"] <= 0.02
    assert (
        sum(one["count"] * one["device_num"] for one in found["instances"]) == found["devices"] <= found["device_num"]
    )
    assert found["peak_memory_B"] <= found["memory_limit_B"]
    for one in found["instances"]:
        assert one["step_time_s"] == pytest.approx(sum(one["time_s"].values()))


def test_turns_say_what_a_transition_takes(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["llama3_8b", "--device-num", "2", *LENGTHS, "--turns", "--fix", "prefill.pp=2", "--fix", "decode.tp=2"]
    found = served(capsys, *options)
    assert found["mode"] == "turns" and found["devices"] == 2 and found["transition_s"] > 0
    assert [one["strategy"]["pp"] for one in found["instances"]] == [2, 1]
    assert found["instances"][0]["vllm_refused"]
    assert main(["serve", *options]) == 0
    assert "of every cycle" in capsys.readouterr().out


def test_out_has_the_engines_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = ["--cluster", "atlas_800t_a3", "--weights", "int8"]
    options = ["deepseek_v3", "--device-num", "64", *cluster, *LENGTHS, "--tpot", "50ms", "--disaggregated"]
    found = served(capsys, *options, "--out", str(tmp_path / "served"))
    lines = (tmp_path / "served" / "vllm_ascend.sh").read_text().splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("vllm ")]
    assert [one["phase"] for one in found["instances"]] == ["prefill", "decode"] and len(commands) == 2
    roles = [json.loads(c[c.index("--kv-transfer-config") + 1])["kv_role"] for c in commands]
    assert roles == ["kv_producer", "kv_consumer"]
    for command, one in zip(commands, found["instances"]):
        for option, name in (
            ("--tensor-parallel-size", "tp"),
            ("--data-parallel-size", "dp"),
            ("--pipeline-parallel-size", "pp"),
        ):
            assert int(command[command.index(option) + 1]) == one["strategy"][name]
        assert ("--enable-expert-parallel" in command) == (one["strategy"]["ep"] > 1)
    again = json.loads((tmp_path / "served" / "serve.json").read_text())
    assert "search_time_s" not in again and again["instances"] == found["instances"]


@pytest.mark.matrix
def test_out_has_files_that_mindformers_infers_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "qwen3_30b_a3b",
        "--device-num",
        "16",
        *LENGTHS,
        "--tpot",
        "50ms",
        "--disaggregated",
        "--fix",
        "decode.ep=8",
    ]
    found = served(capsys, *options, "--out", str(tmp_path / "served"))
    for one in found["instances"]:
        data = yaml.safe_load((tmp_path / "served" / f"predict_{one['phase']}.yaml").read_text())
        cut, degrees = one["strategy"], data["parallel_config"]
        assert [degrees[n] for n in ("data_parallel", "model_parallel", "pipeline_stage", "expert_parallel")] == [
            cut[n] for n in ("dp", "tp", "pp", "ep")
        ]
        assert cut["dp"] * cut["tp"] % degrees["expert_parallel"] == 0  # as MindFormers asks
        blocks = data["model"]["model_config"]
        assert 0 < blocks["num_blocks"] * blocks["block_size"] <= one["cache_tokens"]
        assert data["run_mode"] == "predict" and data["trainer"]["model_name"] == "qwen3_moe"
    served(capsys, "llama3_70b", "--device-num", "8", *LENGTHS, "--out", str(tmp_path / "llama"))
    assert not list((tmp_path / "llama").glob("predict_*"))


def test_fix_top_and_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["llama3_70b", "--device-num", "8", *LENGTHS, "--top", "3", "--why-not", "tp=4"]
    assert main(["serve", *options]) == 0
    said = capsys.readouterr().out
    assert "Why not tp=4" in said and "fewer tokens" in said and "tokens/s/device" in said
    found = served(
        capsys, "llama3_70b", "--device-num", "8", *LENGTHS, "--fix", "tp=4", "--fix", "requests=16", "--colocated"
    )
    (one,) = found["instances"]
    assert one["strategy"]["tp"] == 4 and one["requests"] == 16


def test_a_config_json_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen3-235B-A22B: 3,500 tokens in and 1,500 out on two nodes of A3."""
    dims = {
        "model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64, "head_dim": 128,
        "num_key_value_heads": 4, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": False, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "attention_bias": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(dims))
    options = [
        str(tmp_path / "config.json"),
        "--cluster",
        "atlas_800t_a3",
        "--device-num",
        "32",
        *LENGTHS,
        "--tpot",
        "50ms",
    ]
    rates = [served(capsys, *options, mode)["tokens_per_s_device"] for mode in ("--disaggregated", "--colocated")]
    assert rates[0] > rates[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tpot", "50"], "with its unit"),
        (["--tpot", "1ms"], "--tpot"),
        (["--fix", "heads=2"], "NAME=N"),
        (["--memory-limit", "10"], "does not fit"),
        (["--input-tokens", "9-5"], "--input-tokens"),
    ],
)
def test_mistakes_are_one_line(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "llama3_70b", "--device-num", "8", *LENGTHS, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and len(line) <= 450
