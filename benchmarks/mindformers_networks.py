"""MindFormers' own networks, audited as a whole: their shard() calls, Morphs, groups and loss, read and compared; and planned.

    pip install mindspore==2.9.0 mindformers==1.9.0
    python -m benchmarks.mindformers_networks [--networks llama qwen3 llama-planned] [--layers 2] [--device-num 8] [--rank 0]

Each is built by MindFormers' classes with small dims, as its files say for training, on data x tensor parallelism with sequence
parallelism, or (`-planned`) with the strategies that are found for it, its own taken off. MindSpore compiles it for one rank;
collectives, slices, gradient sums and the peak of activations are compared. Exit code 1 if one differs.
"""

import argparse
import os
import subprocess
import sys
from typing import Any

os.environ.setdefault("GLOG_v", "4")

TOKENS, BATCH, HIDDEN, HEADS, INNER, VOCABULARY = 1024, 4, 1024, 8, 2816, 32000


def llama(layers: int, data: int, tensor: int) -> tuple[Any, tuple[Any, ...]]:
    """MindFormers' Llama of ordinary primitives, with its loss."""
    import mindspore
    from mindformers.models.llama import LlamaConfig, LlamaForCausalLM
    from mindformers.modules.transformer import TransformerOpParallelConfig

    config = LlamaConfig(
        batch_size=BATCH, seq_length=TOKENS, hidden_size=HIDDEN, num_layers=layers, num_heads=HEADS,
        vocab_size=VOCABULARY, intermediate_size=INNER, compute_dtype="bfloat16", param_init_type="float32",
        use_flash_attention=True, input_sliced_sig=False,
        parallel_config=TransformerOpParallelConfig(
            data_parallel=data, model_parallel=tensor, use_seq_parallel=True
        ),
    )  # fmt: skip
    return LlamaForCausalLM(config), (mindspore.Tensor(shape=(BATCH, TOKENS + 1), dtype=mindspore.int32),)


def qwen3(layers: int, data: int, tensor: int) -> tuple[Any, tuple[Any, ...]]:
    """MindFormers' Qwen3 of Morphs with collectives inside; its loss is divided as its training step does."""
    import mindspore
    from mindformers.core.context.build_context import build_mf_context
    from mindformers.models.qwen3.configuration_qwen3 import Qwen3Config
    from mindformers.models.qwen3.modeling_qwen3_train import TrainingQwen3ForCausalLM
    from mindformers.modules.transformer import TransformerOpParallelConfig

    build_mf_context({"use_legacy": False, "context": {}, "parallel": {}, "run_mode": "train"})
    config = Qwen3Config(
        batch_size=BATCH, seq_length=TOKENS, max_position_embeddings=TOKENS, hidden_size=HIDDEN,
        num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=HIDDEN // HEADS,
        vocab_size=VOCABULARY, intermediate_size=INNER, tie_word_embeddings=False,
    )  # fmt: skip
    for name, value in {
        "params_dtype": "float32", "compute_dtype": "bfloat16", "layernorm_compute_dtype": "float32",
        "softmax_compute_dtype": "float32", "rotary_dtype": "float32", "fp32_residual_connection": True,
        "hidden_dropout": 0.0, "qkv_concat": True, "input_sliced_sig": True, "offset": 0,
        "untie_embeddings_and_output_weights": True, "position_embedding_type": "rope",
        "use_contiguous_weight_layout_attention": False,
        "parallel_config": TransformerOpParallelConfig(
            data_parallel=data, model_parallel=tensor, use_seq_parallel=True
        ),
    }.items():  # fmt: skip
        setattr(config, name, value)

    class Loss(mindspore.nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network, self.divide = TrainingQwen3ForCausalLM(config), mindspore.ops.RealDiv()

        def construct(self, ids: Any, labels: Any, mask: Any) -> Any:
            total, count = self.network(ids, None, None, None, labels, None, None, mask)
            return self.divide(total, count)

    return Loss(), (mindspore.Tensor(shape=(BATCH, TOKENS), dtype=mindspore.int32),) * 3


NETWORKS = {"llama": llama, "qwen3": qwen3}
PLANNED = ("llama-planned",)


def check(name: str, layers: int, device_num: int, rank: int) -> bool:
    """Whether the audit of one network finds nothing; its table is printed."""
    import ms_symtensor
    from ms_symtensor.bridge.compiler.host import import_mindspore
    from ms_symtensor.report.verdict_report import audit_text

    mindspore = import_mindspore()
    with ms_symtensor.described_cluster(device_num, rank):
        import mindformers
        from mindspore.nn.utils import no_init_parameters

        mindspore.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=device_num, global_rank=rank)
        tensor = min(4, device_num)
        with no_init_parameters():
            network, inputs = NETWORKS[name](layers, device_num // tensor, tensor)
        network.set_train()
        found = ms_symtensor.audit(network, *inputs, device_num=device_num, rank=rank)
    print(f"\n== {name} of MindFormers {mindformers.__version__}, {layers} layers, {device_num // tensor} x {tensor}")
    print(audit_text(found).split("\n\n")[0], flush=True)
    return found.verdict.passed


def check_plan(name: str, layers: int, device_num: int, rank: int) -> bool:
    """Whether MindSpore agrees with the plan that is found for one network; its table is printed."""
    import ms_symtensor
    from ms_symtensor.bridge.apply.apply import apply, parallel_config, remove
    from ms_symtensor.bridge.compiler.host import import_mindspore
    from ms_symtensor.bridge.judge.verify import judge
    from ms_symtensor.report.verdict_report import verdict_text

    import_mindspore()
    import mindformers
    from mindspore.nn.utils import no_init_parameters

    with no_init_parameters():
        network, inputs = NETWORKS[name](layers, 1, 1)
    remove(network, by_hand=True)
    network.set_train()
    graph, cluster = ms_symtensor.capture(network, *inputs), ms_symtensor.load_cluster("atlas_800t_a2")
    plan = ms_symtensor.plan(graph, cluster, device_num=device_num, global_batch_size=BATCH, seq_length=TOKENS)
    apply(network, graph, plan)
    verdict, _ = judge(network, inputs, graph, plan.stage, parallel_config(plan), rank)
    print(f"\n== {name} of MindFormers {mindformers.__version__}, {layers} layers, planned for {device_num} devices")
    print(verdict_text(verdict), flush=True)
    return verdict.passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", nargs="+", default=[*NETWORKS, *PLANNED], choices=[*NETWORKS, *PLANNED])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device-num", type=int, default=8)
    parser.add_argument("--rank", type=int, default=0)
    chosen = parser.parse_args()
    if len(chosen.networks) == 1:
        name = chosen.networks[0]
        judge_one = check_plan if name in PLANNED else check
        return 0 if judge_one(name.removesuffix("-planned"), chosen.layers, chosen.device_num, chosen.rank) else 1
    options = ["--layers", str(chosen.layers), "--device-num", str(chosen.device_num), "--rank", str(chosen.rank)]
    command = [sys.executable, "-m", "benchmarks.mindformers_networks", *options, "--networks"]
    return max(subprocess.run([*command, name]).returncode for name in chosen.networks)


if __name__ == "__main__":
    sys.exit(main())
