"""Tables of what serving engines reach: most tokens a second, limits that are kept, CloudMatrix, facts, collectives of GPUs."""

import json
from pathlib import Path

import pytest

from ms_symtensor.cli import main

HEADS = {
    "most": "model,device,precision,tp,pp,input_len,output_len,total_out_tokens_per_s",
    "limits": "model,hardware,cards,deployment,lengths,tpot_ms,precision,remark",
    "matrix": "system,accelerator,phase,setting,metric,value,unit",
    "facts": "model,hardware,npus,prefill,decode,setting,metric,value,unit",
    "learning": "algorithm,model,machine,global_batch,samples_per_prompt,max_prompt,max_response,tokens_per_s_per_card,"
    "train_tp,train_pp,train_ep,infer_tp,infer_ep,npus",
    "sums": "network,collective,ranks,size_elements_fp16_or_bytes,devices_per_node,median_ms",
}
DEEPSEEK = "DeepSeek-V3.1 w8a8,A3"


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, *rows: str) -> dict:
    (tmp_path / f"{table}.csv").write_text("\n".join([HEADS[table], *rows]) + "\n")
    assert main(["validate", str(tmp_path / f"{table}.csv"), "--cluster", "atlas_800t_a3", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_most_tokens_follow_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Llama 3.1 405B on 8 H100 in FP8; a device without a cluster file is left out."""
    lengths = {(128, 128): 3627, (2048, 128): 453, (1000, 1000): 2919, (20000, 2000): 345}
    rows = [f"Llama 3.1 405B,H100,FP8,8,1,{a},{b},{rate}" for (a, b), rate in lengths.items()]
    found = judged(tmp_path, capsys, "most", *rows, "Llama 3.3 70B,RTX 6000,FP4,1,1,128,128,100")
    (kind,) = found["kinds"]
    assert kind["spearman"] == pytest.approx(1.0) and kind["mape"] < 0.5
    assert [one["row"] for one in found["exclusions"]] == [6]


def test_limits_are_kept_or_not_and_have_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"Qwen3-32B,A3,2,mixed,3.5K+1.5K,{limit},W8A8," for limit in (50, 1)]
    found = judged(tmp_path, capsys, "limits", *rows, "Qwen3-235B-A22B,A3,1,mixed,2K+2K,50,BF16,")
    assert found["kept"] == 0.5 and found["mape"] is None
    assert [one["reason"] for one in found["exclusions"]] == ["qwen3_30b_a3b does not fit 2 devices"]
    assert main(["validate", str(tmp_path / "limits.csv"), "--cluster", "atlas_800t_a3"]) == 0
    assert "50.0 %" in capsys.readouterr().out


def test_deepseek_on_cloudmatrix_is_as_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npu = "CloudMatrix-Infer,Ascend 910C"
    rows = [
        f'{npu},prefill,"DeepSeek-R1 INT8, 4K prompt, 16,384 tokens a device, 16 NPUs an instance (EP32)",throughput,5655,t/s',
        f'{npu},decode,"KV 4K, batch 96, EP320 on 160 NPUs, one MTP token accepted at 70 %",throughput at TPOT,1943,t/s',
        f'{npu},decode,"batch 8, TPOT limit 15 ms",throughput,538,t/s',
        f"{npu},decode,one layer,time,874,us",
    ]
    found = judged(tmp_path, capsys, "matrix", *rows)
    assert found["rows"] == 3 and found["mape"] < 0.2 and found["spearman_mean"] is None
    assert "time of decode is not predicted" in found["exclusions"][0]["reason"]


def test_facts_of_prefill_and_decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is read of the cache is widened for all heads, so a prompt that is nearly all cached is not free."""
    load = "4k to 64k in, mean 32k, prefix hit {} %, concurrency 4"
    rows = [
        f'{DEEPSEEK},,PP2 TP8,,"{load.format(99)}",input throughput,22424,tokens/s/card',
        f'{DEEPSEEK},,DP2 TP8,,"{load.format(99)}",input throughput,16150,tokens/s/card',
        f'{DEEPSEEK},,PP2 TP8,,"{load.format(50)}",input throughput,9000,tokens/s/card',
        f'{DEEPSEEK},64,DP4 TP8 EP32,DP32 TP1 EP32,"7K in 2K out, concurrency 8 / 16",TPOT,42 / 45,ms',
        f'{DEEPSEEK},64,DP4 TP8,DP32 TP1,"7K in 2K out",TPOT,42,ms',
    ]
    found = judged(tmp_path, capsys, "facts", *rows)
    stages, copies, half, few, more = (case["predicted_s"] for case in found["cases"])
    assert stages < copies and 2 * stages < half < 50 * stages and few <= more
    assert [one["row"] for one in found["exclusions"]] == [6]


def test_collectives_of_gpus_in_one_node_and_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"a100_dgx,{kind},2,33554432,{each},0.25" for kind in ("all_reduce", "send_recv") for each in (2, 1)]
    found = judged(tmp_path, capsys, "sums", *rows, "a100_pairwise_nvlink,all_reduce,2,2048,2,0.01")
    sums, far_sums, sends, far_sends = (case["predicted_s"] for case in found["cases"])
    assert far_sums > 3 * sums and far_sends > 3 * sends and len(found["exclusions"]) == 1
    (tmp_path / "sums.csv").write_text(f"{HEADS['sums']}\na100_dgx,all_reduce,4,2048,3,0.01\n")
    assert main(["validate", str(tmp_path / "sums.csv"), "--cluster", "atlas_800t_a3"]) == 2
    assert "devices_per_node" in capsys.readouterr().err


@pytest.mark.matrix  # uniform layouts are searched
def test_a_step_of_reinforcement_learning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a3 = "Atlas 900 A3 SuperPoD"
    rows = [
        f"GRPO,Qwen2.5-7B,{a3},8,4,512,512,300,2,1,1,2,1,8",
        f"GRPO,Qwen2.5-7B,{a3},8,4,512,512,300,,,,,,",
        f"GRPO,Qwen2.5-7B,{a3},8,4,512,512,300,3,1,1,2,1,8",
    ]
    found = judged(tmp_path, capsys, "learning", *rows)
    assert found["rows"] == 1 and found["cases"][0]["predicted_s"] > 1 / 5000
    assert [one["row"] for one in found["exclusions"]] == [3, 4]
