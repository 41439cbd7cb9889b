"""MindFormers' own networks, audited as a whole: their shard() calls, Morphs, groups and loss, read and compared; and planned.

    pip install mindspore==2.9.0 mindformers==1.9.0
    python -m benchmarks.mindformers_networks [--networks llama qwen3_moe glm-planned …] [--layers 2] [--device-num 8] [--rank 0]

Each is one of `mindformers_models`, with its own strategies or (`-planned`) those that are found for it. MindSpore compiles it
for one rank; collectives, slices, gradient sums and the peak of activations are compared. Exit code 1 if one differs.
"""

import argparse
import os
import subprocess
import sys

from benchmarks.mindformers_models import BATCH, NETWORKS, TOKENS, Degrees

os.environ.setdefault("GLOG_v", "4")

PLANNED = tuple(f"{name}-planned" for name in ("llama", "llama_experts", "glm", "glm_self_attention"))
"""Those of ordinary primitives: the strategies that are written in them, taken off, give way to a plan's."""


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
            network, inputs = NETWORKS[name](
                layers, Degrees(data=device_num // tensor, tensor=tensor, expert=device_num // tensor)
            )
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
        network, inputs = NETWORKS[name](layers, Degrees())
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
