"""vllm-ascend's nightly benchmarks: tokens a second of engines, by model."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main

HEAD = (
    "name,model,nodes,npu_per_node,case,dataset,num_prompts,out_len,concurrency,request_rate,"
    "baseline_output_tokens_per_s,mixed,prefill,decode,source"
)
MODEL = "Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp"


def row(load: str, rate: float, engine: str, model: str = MODEL, nodes: str = "1,") -> str:
    return f"case,{model},{nodes},perf,{load},{rate},{engine},source"


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], *rows: str) -> dict:
    (tmp_path / "nightly.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    assert main(["validate", str(tmp_path / "nightly.csv"), "--cluster", "atlas_800t_a3", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_loads_of_one_engine_are_ranked_as_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = "dp1 tp16 ep seqs128 tokens16384 len133120 mtp3 full_decode quant noprefix,,"
    loads = {
        "GSM8K-in65536-prefix0,32,1024,8,0": 160.55,
        "GSM8K-in32768-prefix0,48,512,12,0": 180.6,
        "GSM8K-in16384-prefix0,144,1024,36,0": 630.88,
        "GSM8K-in3500-bs2800,640,1500,160,5": 1959.97,
    }
    found = judged(tmp_path, capsys, *(row(load, rate, engine) for load, rate in loads.items()))
    (kind,) = found["kinds"]
    assert kind["kind"] == MODEL.rpartition("/")[2] and kind["spearman"] == pytest.approx(1.0)


def test_what_is_cached_is_not_computed_and_a_rate_is_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = "dp1 tp16 ep seqs128 tokens16384 len133120 mtp3 quant,,"
    rows = [
        row(f"GSM8K-in65536-prefix{share},8,1024,8,{rate}", 100.0, engine)
        for share, rate in ((0, 0), (90, 0), (90, 0.01))
    ]
    whole, cached, limited = (case["predicted_s"] for case in judged(tmp_path, capsys, *rows)["cases"])
    assert cached < whole and limited == pytest.approx(16 / (0.01 * 1024))


def test_two_kinds_of_engines_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = "dp4 tp8 ep seqs32 tokens8192 len8192 noprefix,,"
    split = ",dp2 tp8 ep seqs32 tokens8192 len8192 noprefix,dp4 tp4 ep seqs32 tokens8192 len8192 noprefix"
    load, model = "GSM8K-in3500-bs2800,2800,1500,700,11.2", "Qwen/Qwen3-235B-A22B"
    rows = [row(load, rate, engine, model, "2,16") for engine, rate in ((mixed, 2209.9), (split, 2424.6))]
    both, apart = (case["predicted_s"] for case in judged(tmp_path, capsys, *rows)["cases"])
    assert apart < both


def test_rows_that_say_too_little_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = "tp16 ep seqs32 tokens8192 len8192,,"
    rows = [
        row("GSM8K-in3500,8,512,8,0", 100.0, engine),
        row("GSM8K,8,512,8,0", 100.0, engine),
        row("GSM8K-in9000,8,512,8,0", 100.0, engine),
        row("GSM8K-in3500,8,512,8,0", 100.0, engine, "some/Network-9B"),
    ]
    found = judged(tmp_path, capsys, *rows)
    assert found["rows"] == 1 and [one["row"] for one in found["exclusions"]] == [3, 4, 5]
