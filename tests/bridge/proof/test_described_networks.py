"""Networks of config.json files with parts that no published model of the zoo has: verified, and proved on four processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = ROOT / "tests" / "data" / "configs"
NARROW = ("hidden_size=1024", "vocab_size=32000")
CLASSES = json.loads((FILES / "class_defaults.json").read_text(encoding="utf-8"))


def _small(*dims: str, layers: int = 2, length: int = 1024) -> tuple[str, ...]:
    """The defaults of a class, narrow."""
    given = (*NARROW, "num_attention_heads=16", "head_dim=64", *dims)
    return f"--num-layers={layers}", f"--seq-length={length}", *(f"--dim={dim}" for dim in given)


NETWORKS = {
    "olmo_3_7b": ("--num-layers=4", "--seq-length=8192", "--fix=context_parallel=4"),
    "gemma_2_27b": ("--num-layers=2", "--seq-length=8192", *(f"--dim={dim}" for dim in NARROW)),
    "gpt_oss_20b": ("--num-layers=2", "--seq-length=512", "--dim=vocab_size=32000"),
    "llama_4_maverick_17b_128e": (
        "--num-layers=4", "--seq-length=512", "--dim=num_local_experts=8", *(f"--dim={dim}" for dim in NARROW),
    ),
    "deepseek_v2_lite": ("--num-layers=4",),
    "deepseek_v2": ("--num-layers=2", "--seq-length=1024", "--dim=n_routed_experts=32", "--dim=vocab_size=32000"),
    "deepseek_v3_2_exp": (
        "--num-layers=2", "--seq-length=1024", "--dim=n_routed_experts=32", "--dim=vocab_size=32000", "--dim=index_topk=256",
    ),
    "glm_5": (
        "--num-layers=2", "--seq-length=1024", "--dim=n_routed_experts=32", "--dim=vocab_size=32000", "--dim=index_topk=256",
        "--dim=mlp_layer_types=" + json.dumps(["dense", "sparse"]), "--layouts=uniform", "--fix=model_parallel=4",
    ),
    "qwen3_next_80b_a3b": (
        "--num-layers=4", "--seq-length=1024", "--dim=num_experts=16", "--dim=vocab_size=32000", "--fix=model_parallel=4",
    ),
    "qwen3_5": _small("intermediate_size=2048", layers=4),
    "kimi_linear_48b_a3b": (
        "--num-layers=5", "--seq-length=1024", "--dim=num_experts=16", "--dim=vocab_size=32000", "--fix=model_parallel=4",
    ),
    "olmo_hybrid": _small(
        "intermediate_size=2048", "num_key_value_heads=16", "linear_num_key_heads=16", "linear_num_value_heads=16", layers=4
    ),
    "granite_4_0_h_small": (
        "--num-layers=6", "--seq-length=1024", "--dim=num_local_experts=16", "--dim=vocab_size=32000", "--fix=model_parallel=4",
    ),
    "codestral_mamba_7b": ("--num-layers=2", "--seq-length=1024", "--fix=model_parallel=2", "--fix=data_parallel=2"),
    "bamba": (
        *_small("intermediate_size=2048", "mamba_n_heads=32", "mamba_n_groups=4", "attn_layer_indices=[1]"),
        "--layouts=uniform", "--fix=model_parallel=2", "--fix=data_parallel=2",
    ),
    "nemotron_3_nano_30b_a3b": (
        "--num-layers=7", "--seq-length=1024", "--dim=n_routed_experts=16", "--dim=vocab_size=32000", "--layouts=uniform",
        "--fix=model_parallel=2", "--fix=data_parallel=2",
    ),
    "glm_moe_dsa": (
        "--num-layers=5", "--seq-length=1024", "--dim=n_routed_experts=32", "--dim=vocab_size=32000", "--dim=index_topk=256",
        "--dim=indexer_types=null", "--dim=index_topk_freq=2",
    ),
    "minimax_m2_m2_5": ("--num-layers=2", "--seq-length=1024", "--dim=num_local_experts=16"),
    "glm_4_9b_0414": ("--num-layers=2", "--fix=model_parallel=2"),
    "qwen3_8b": ("--num-layers=2", "--lora=8"),
    "falcon_7b": ("--num-layers=2", "--seq-length=1024", "--dim=vocab_size=32000"),
    "gpt_neox": _small("intermediate_size=4096"),
    "cohere2": _small("intermediate_size=2048", "num_key_value_heads=4", layers=4, length=8192),
    "granitemoeshared": _small("intermediate_size=512", "num_key_value_heads=4"),
    "hunyuan_v1_dense": _small("intermediate_size=4096", "num_key_value_heads=4"),
    "nemotron": _small("intermediate_size=4096", "num_key_value_heads=4"),
    "olmo": _small("intermediate_size=2048", "num_key_value_heads=16"),
    "bloom": ("--num-layers=2", "--seq-length=1024", "--dim=vocab_size=32000"),
    "llama_2_7b": (
        "--num-layers=2", "--seq-length=1024", "--dim=model_type=baichuan", "--dim=max_position_embeddings=null",
        "--dim=vocab_size=125696", "--fix=model_parallel=2",
    ),
    "opt": ("--num-layers=2", "--seq-length=1024"),
    "gpt2": ("--num-layers=2",),
}  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("file", NETWORKS)
def test_a_plan_is_verified_and_proved(file: str, tmp_path: Path) -> None:
    pytest.importorskip("mindspore")
    if file in CLASSES:
        (tmp_path / "config.json").write_text(json.dumps(CLASSES[file]["config"]), encoding="utf-8")
    step = [
        "plan",
        "config.json" if file in CLASSES else str(FILES / f"{file}.json"),
        "--device-num=4",
        "--global-batch-size=8",
        "--out=plan",
        *NETWORKS[file],
    ]
    for arguments in (step, ["verify", "plan"], ["prove", "plan"]):
        command = [sys.executable, "-m", "ms_symtensor", *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
