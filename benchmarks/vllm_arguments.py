"""Commands that `symtensor serve` writes, read by vllm's own arguments, and by vllm-ascend's or vllm-mindspore's.

    python -m benchmarks.vllm_arguments --python PYTHON --ascend FOLDER
    python -m benchmarks.vllm_arguments --python PYTHON --mindspore FOLDER

PYTHON is that of an environment with vllm 0.23.0 (0.11.0 for vllm-mindspore) without its dependencies, but torch for CPUs,
transformers, and small ones. FOLDER is the source of vllm-ascend 0.23.0.post1, or the wheel of vllm-mindspore 0.5.1, unpacked.

Each case is a deployment of a network. A command must be understood
as it was meant, and one that is said to be refused must be, in the same words. Exit code 1 if anything differs.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from model_zoo import dimensions_of
from model_zoo.config import TransformerConfig
from model_zoo.config_json import read
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.constraints.request import free_B
from ms_symtensor.serving.commands import ASCEND, MINDSPORE, NO_NETWORK, NO_WIDE, EngineCommand, engine_commands
from ms_symtensor.serving.deployment import MIXED, SPLIT
from ms_symtensor.serving.request import Request, Tokens, fixed_of
from ms_symtensor.serving.search import search

FILES = Path(__file__).parents[1] / "tests" / "data" / "configs"
JUDGES = {ASCEND: "vllm_judge.py", MINDSPORE: "vllm_mindspore_judge.py"}
ARCHITECTURES = {
    "llama3_8b": "LlamaForCausalLM", "llama3_70b": "LlamaForCausalLM", "qwen3_32b": "Qwen3ForCausalLM",
    "qwen3_30b_a3b": "Qwen3MoeForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
}  # fmt: skip
TYPES = {
    "LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3_moe",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}  # fmt: skip
PUBLISHED = {"qwen3_next_80b_a3b": "Qwen3NextForCausalLM", "deepseek_v3_2_exp": "DeepseekV32ForCausalLM"}
"""Architectures of files in tests/data/configs."""
CASES = (
    ("llama3_8b", "atlas_800t_a2", 4, "", MIXED), ("llama3_8b", "atlas_800t_a2", 8, "", SPLIT),
    ("llama3_8b", "atlas_800t_a2", 4, "dp=2", MIXED), ("llama3_8b", "atlas_800t_a2", 8, "decode.pp=2", SPLIT),
    ("llama3_70b", "atlas_800t_a2", 8, "", MIXED), ("llama3_70b", "atlas_800t_a2", 16, "", SPLIT),
    ("llama3_70b", "atlas_800t_a2", 16, "dp=2", MIXED), ("llama3_70b", "atlas_800t_a2", 32, "decode.pp=2", SPLIT),
    ("llama3_70b", "cloudmatrix384", 32, "prefill.pp=2,decode.tp=8", SPLIT), ("llama3_70b", "atlas_800t_a3", 16, "tp=4", MIXED),
    ("qwen3_32b", "atlas_800t_a2", 8, "", MIXED), ("qwen3_32b", "atlas_800t_a2", 8, "", SPLIT),
    ("qwen3_32b", "atlas_800t_a2", 16, "dp=4", MIXED), ("qwen3_32b", "atlas_800t_a3", 16, "decode.dp=2", SPLIT),
    ("qwen3_32b", "atlas_800t_a2", 16, "pp=2", MIXED), ("qwen3_32b", "atlas_800t_a2", 16, "decode.pp=4", SPLIT),
    ("qwen3_30b_a3b", "atlas_800t_a2", 16, "", MIXED), ("qwen3_30b_a3b", "atlas_800t_a2", 16, "", SPLIT),
    ("qwen3_30b_a3b", "atlas_800t_a2", 8, "dp=8,ep=8", MIXED), ("qwen3_30b_a3b", "atlas_800t_a2", 8, "tp=4,ep=1", MIXED),
    ("qwen3_30b_a3b", "atlas_800t_a2", 16, "decode.pp=2", SPLIT), ("qwen3_30b_a3b", "atlas_800t_a3", 32, "decode.dp=16", SPLIT),
    ("deepseek_v3", "atlas_800t_a3", 64, "", MIXED), ("deepseek_v3", "atlas_800t_a3", 64, "", SPLIT),
    ("deepseek_v3", "atlas_800t_a3", 64, "decode.pp=2", SPLIT), ("deepseek_v3", "cloudmatrix384", 384, "", SPLIT),
    ("deepseek_v3", "cloudmatrix384", 384, "decode.dp=320,decode.tp=1,decode.ep=320", SPLIT),
    ("qwen3_next_80b_a3b", "atlas_800t_a3", 8, "", MIXED), ("qwen3_next_80b_a3b", "atlas_800t_a3", 16, "", SPLIT),
    ("qwen3_next_80b_a3b", "atlas_800t_a3", 8, "tp=1", MIXED), ("qwen3_next_80b_a3b", "atlas_800t_a3", 16, "tp=8", SPLIT),
    ("deepseek_v3_2_exp", "atlas_800t_a3", 64, "", MIXED), ("deepseek_v3_2_exp", "atlas_800t_a3", 64, "", SPLIT),
    ("deepseek_v3_2_exp", "atlas_800t_a3", 64, "decode.pp=2", SPLIT),
)  # fmt: skip
"""Network, cluster, devices, what is pinned, mode."""


def requests() -> Iterator[tuple[Request, str]]:
    """The request and the mode of every case, in bfloat16, the largest network in 8 bits."""
    for name, known, devices, pinned, mode in CASES:
        cluster = load(known)
        weights = "int8" if name.startswith("deepseek_v3") else "bfloat16"
        fixed = fixed_of(pinned.split(",")) if pinned else fixed_of(())
        tokens = Tokens(2048, 2048, 512)
        network = read(FILES / f"{name}.json").config if name in PUBLISHED else dimensions_of(name)
        yield Request(network, cluster, devices, tokens, free_B(cluster), weights=weights, fixed=fixed), mode


@cache
def cases(engine: str = ASCEND) -> tuple[tuple[Request, EngineCommand], ...]:
    """A command for every kind of instance of every deployment that there is."""
    found = []
    for request, mode in requests():
        try:
            best = search(request, (mode,)).best
        except (InfeasibleError, InputError) as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        found += [(request, command) for command in engine_commands(request, best, engine)]
    return tuple(found)


def config_json(config: TransformerConfig) -> dict[str, Any]:
    """What Hugging Face's config.json says of a network of the zoo, as far as vllm asks."""
    if config.name in PUBLISHED:
        file = json.loads((FILES / f"{config.name}.json").read_text())
        return file | {"architectures": [PUBLISHED[config.name]], "torch_dtype": "bfloat16"}
    architecture = ARCHITECTURES[config.name]
    found: dict[str, Any] = {
        "architectures": [architecture], "model_type": TYPES[architecture], "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers, "num_attention_heads": config.num_heads, "head_dim": config.head_dim,
        "num_key_value_heads": config.n_kv_heads, "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size, "max_position_embeddings": config.max_position_embeddings, "rms_norm_eps": 1e-6,
        "rope_theta": config.rotary_base, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    if config.experts is not None:
        experts = config.experts
        found |= {
            "moe_intermediate_size": experts.intermediate_size, "num_experts_per_tok": experts.per_token,
            "num_experts": experts.number, "n_routed_experts": experts.number, "norm_topk_prob": True,
        }  # fmt: skip
    if config.latent_attention is not None and config.experts is not None:
        latent = config.latent_attention
        found |= {
            "q_lora_rank": latent.query_rank, "kv_lora_rank": latent.key_value_rank, "v_head_dim": latent.value_head_dim,
            "qk_rope_head_dim": latent.rotary_head_dim, "qk_nope_head_dim": config.head_dim - latent.rotary_head_dim,
            "n_group": config.experts.groups, "topk_group": config.experts.groups_per_token, "n_shared_experts": 1,
            "first_k_dense_replace": config.dense_layers, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
            "routed_scaling_factor": config.experts.scale, "moe_layer_freq": 1,
        }  # fmt: skip
        del found["head_dim"]
    return found


def meant(command: EngineCommand) -> dict[str, object]:
    """What vllm has to make of `command`, by the names of the judge."""
    words = command.arguments
    value = dict(itertools.pairwise(words))
    transfer = json.loads(value.get("--kv-transfer-config", "{}"))
    more = json.loads(value.get("--additional-config", "{}"))
    numbers = {
        "tp": "--tensor-parallel-size", "pp": "--pipeline-parallel-size", "dp": "--data-parallel-size",
        "requests": "--max-num-seqs", "tokens": "--max-num-batched-tokens", "length": "--max-model-len", "block": "--block-size",
    }  # fmt: skip
    return {name: int(value[option]) for name, option in numbers.items()} | {
        "experts": "--enable-expert-parallel" in words,
        "role": transfer.get("kv_role"),
        "quantization": value.get("--quantization"),
        "copies": more.get("eplb_config", {}).get("num_redundant_experts", 0),
    }


def main() -> int:
    command_line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command_line.add_argument("--python", required=True, help="of an environment with vllm")
    folder = command_line.add_mutually_exclusive_group(required=True)
    folder.add_argument("--ascend", help="the source folder of vllm-ascend")
    folder.add_argument("--mindspore", help="the unpacked wheel of vllm-mindspore")
    chosen = command_line.parse_args()
    engine = ASCEND if chosen.ascend else MINDSPORE
    commands = [
        (request, one) for request, one in cases(engine) if one.refused not in (NO_WIDE, NO_NETWORK)
    ]  # what no option says is not asked
    entries = [
        {"config": config_json(request.config), "arguments": command.arguments, "environment": command.environment}
        for request, command in commands
    ]
    done = subprocess.run(
        [chosen.python, str(Path(__file__).with_name(JUDGES[engine])), chosen.ascend or chosen.mindspore],
        input=json.dumps(entries),
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    wrong = 0
    for (request, command), answer in zip(commands, found, strict=True):
        expected = {"refused": command.refused} if command.refused else {"understood": meant(command)}
        if answer != expected:
            wrong += 1
            print(f"{request.config.name}: {command.line}\n  {answer}\n  not {expected}")
    refused = sum(bool(command.refused) for _, command in commands)
    print(f"{len(found) - wrong} of {len(found)} commands as said, {refused} of them refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
