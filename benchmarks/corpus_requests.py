"""The requests of benchmarks/corpus.py, a line each: network, devices, samples of a step, and options of `symtensor plan`.

Where no --cluster stands, devices are those of atlas_800t_a2.
"""

import shlex
from dataclasses import dataclass

NODES = (
    "llama2_7b 8 8",
    "llama2_7b 8 16",
    "llama2_7b 8 64",
    "llama2_7b 32 64",
    "llama2_13b 16 32",
    "llama3_8b 8 16 --seq-length 8192",
    "deepseek_coder_7b 8 64",
    "internlm2_20b 16 32",
    "codellama_34b 32 128",
    "gpt2_xl 8 64",
    "bert_large 8 64",
    "qwen_7b_lora 8 8",
    "qwen_7b_lora 8 64 --seq-length 2048",
)
"""Dense networks on some nodes."""

CLUSTERS_OF_NODES = (
    "llama2_7b 64 128",
    "llama2_13b 64 512",
    "llama2_70b 64 64",
    "llama2_70b 64 128",
    "llama2_70b 64 512",
    "llama2_70b 128 256",
    "llama2_70b 1024 8192",
    "llama3_70b 64 256 --seq-length 8192",
    "llama3_70b 128 1024",
    "llama3_70b 256 512",
    "llama3_70b 2048 2048",
    "llama3_70b 4096 4096",
    "qwen1_5_72b 64 128",
    "qwen1_5_72b 512 2048",
    "qwen3_32b 64 256",
    "qwen3_32b 256 256",
    "codellama_34b 64 512",
    "internlm2_20b 64 128",
    "llama2_7b 1024 1024",
    "gpt2_xl 256 512",
    "qwen_7b_lora 64 256",
)
"""Dense networks on 64 devices and more, most of them bound by memory."""

EXPERTS = (
    "mixtral_8x7b 32 64",
    "mixtral_8x7b 64 128",
    "mixtral_8x7b 64 512",
    "mixtral_8x7b 256 1024",
    "mixtral_8x7b 64 128 --experts dropless",
    "qwen3_30b_a3b 16 32",
    "qwen3_30b_a3b 64 128",
    "qwen3_30b_a3b 512 1024",
    "deepseek_v3 256 512",
    "deepseek_v3 1024 4096",
    "deepseek_v3 4096 8192",
    "deepseek_v3 384 768 --cluster cloudmatrix384",
    "deepseek_v3 384 3840 --cluster cloudmatrix384",
    "deepseek_v3 512 1024 --load-imbalance 1.5",
)

LONG = (
    "llama2_7b 8 8 --seq-length 32768",
    "llama3_8b 64 64 --seq-length 131072",
    "qwen1_5_72b 64 64 --seq-length 32768",
    "llama3_70b 256 64 --seq-length 32768",
    "mixtral_8x7b 64 64 --seq-length 32768",
    "llama2_7b 8 16 --attention self",
)
"""Long sequences, and scores that are stored."""

OFFLOAD = (
    "llama2_13b 8 16 --fix swap_optimizer=yes",
    "llama2_70b 32 64 --max swap_optimizer=yes",
    "llama2_70b 64 128 --max swap_optimizer=yes",
)

PINS = (
    "llama2_13b 16 32 --fix pipeline_stages=4 --fix micro_batch_num=8",
    "llama3_70b 64 256 --fix model_parallel=8 --fix pipeline_stages=8 --fix sequence_parallel=yes --fix recompute=full",
    "llama3_70b 64 256 --fix pipeline_stages=4 --fix pp_interleave_num=2",
    "llama2_7b 8 16 --fix '*.query.matmul=m/4,n/2'",
    "llama2_7b 8 16 --fix data_parallel=4 --fix '*/feed_forward/*=dp,tp'",
    "qwen3_30b_a3b 64 128 --fix expert_parallel=8",
    "llama2_13b 32 32 --seq-length 16384 --fix context_parallel=4",
    "llama2_70b 64 128 --max pipeline_stages=1",
)

CLUSTERS = (
    "llama2_13b 16 64 --cluster atlas_800t_a2_910b4",
    "qwen3_32b 64 128 --cluster atlas_800t_a2_910b3",
    "llama3_70b 64 128 --cluster atlas_800t_a3",
    "llama2_7b 32 64 --cluster ascend910a --dtype float16",
    "llama2_13b 16 64 --cluster a100_80g",
    "llama3_70b 128 256 --cluster h100_80g",
    "llama3_70b 64 128 --cluster b200",
)

INFEASIBLE = (
    "llama2_70b 8 16",
    "mixtral_8x7b 8 8",
    "deepseek_v3 64 128",
    "llama2_7b 8 16 --memory-limit 12",
    "llama2_13b 8 16 --fix data_parallel=8 --fix recompute=none",
    "llama3_8b 8 8 --seq-length 1048576",
    "llama2_7b 8 7",
    "llama2_7b 16 32 --fix pipeline_stages=3",
)
"""Nothing fits, or nothing can be cut so."""

GROUPS = {
    "nodes": NODES, "clusters of nodes": CLUSTERS_OF_NODES, "experts": EXPERTS, "long": LONG, "offload": OFFLOAD,
    "pins": PINS, "clusters": CLUSTERS, "infeasible": INFEASIBLE,
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One line of a group."""

    group: str
    text: str

    @property
    def arguments(self) -> list[str]:
        """What `symtensor plan` takes for it, but for the folder. All of the device's memory may be used."""
        model, device_num, batch, *options = shlex.split(self.text)
        return [model, "--device-num", device_num, "--global-batch-size", batch, "--memory-margin", "0", *options]


REQUESTS = tuple(Request(group, text) for group, texts in GROUPS.items() for text in texts)
