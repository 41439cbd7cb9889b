"""Megatron-core's own classes over options that say a plan: run by the Python of an environment that has it.

python mindspeed_judge.py < EXPECTED.json
"""

import dataclasses
import json
import sys

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import MLATransformerConfig, TransformerConfig
from megatron.core.transformer.transformer_block import get_num_layers_to_build

RENAMED = {
    "ffn-hidden-size": "ffn_hidden_size", "num-experts": "num_moe_experts", "norm-epsilon": "layernorm_epsilon",
    "moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size",
}  # fmt: skip
"""core_transformer_config_from_args renames these options (megatron/training/arguments.py)."""

ACTIVATIONS = {True: torch.nn.functional.silu, False: torch.nn.functional.gelu}


def config_of(options):
    """The TransformerConfig that Megatron makes of the options."""
    kind = MLATransformerConfig if "multi-latent-attention" in options else TransformerConfig
    known = {field.name: field for field in dataclasses.fields(kind)}
    found = {}
    for name, value in options.items():
        key = RENAMED.get(name, name.replace("-", "_"))
        if key in known:
            found[key] = plain(value)
    stages = int(options["pipeline-model-parallel-size"])
    each = options.get("num-layers-per-virtual-pipeline-stage")
    if each:
        found["virtual_pipeline_model_parallel_size"] = int(options["num-layers"]) // stages // int(each)
    if "num-layer-list" in options:  # MindSpeed-LLM has Megatron check as many layers as stages, and deals them itself
        found["num_layers"] = stages
    gated = "swiglu" in options
    return kind(
        **found,
        add_bias_linear="disable-bias-linear" not in options,
        gated_linear_unit=gated,
        activation_func=ACTIVATIONS[gated],
        pipeline_dtype=torch.bfloat16,
        params_dtype=torch.bfloat16,
        layernorm_zero_centered_gamma=False,
    )


def plain(value):
    """A value of the command line as a number, a switch or text."""
    if value == "":
        return True
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def judged(entry):
    """What differs from the plan."""
    options = entry["options"]
    config = config_of(options)
    DistributedDataParallelConfig(
        use_distributed_optimizer="use-distributed-optimizer" in options,
        overlap_grad_reduce="overlap-grad-reduce" in options,
        overlap_param_gather="overlap-param-gather" in options,
    )
    OptimizerConfig(bf16="bf16" in options, use_distributed_optimizer="use-distributed-optimizer" in options)
    differs = []
    sizes = {name: int(options.get(f"{name}-size", 1)) for name in (
        "tensor-model-parallel", "pipeline-model-parallel", "context-parallel", "expert-model-parallel", "expert-tensor-parallel",
    )}  # fmt: skip
    devices = entry["devices"]
    inner = sizes["tensor-model-parallel"] * sizes["pipeline-model-parallel"] * sizes["context-parallel"]
    data = devices // inner
    ranks = parallel_state.RankGenerator(
        tp=sizes["tensor-model-parallel"], ep=1, dp=data, pp=sizes["pipeline-model-parallel"],
        cp=sizes["context-parallel"], order="tp-cp-ep-dp-pp",
    )  # fmt: skip
    if len(ranks.get_ranks("dp")[0]) != entry["data_parallel"]:
        differs.append(f"data_parallel {len(ranks.get_ranks('dp')[0])}")
    if entry["experts"]:
        parallel, tensor = sizes["expert-model-parallel"], sizes["expert-tensor-parallel"]
        share = devices // sizes["pipeline-model-parallel"]
        if share % (parallel * tensor):
            differs.append("experts do not divide the ranks")
        experts = parallel_state.RankGenerator(
            tp=tensor, ep=parallel, dp=share // (parallel * tensor), pp=sizes["pipeline-model-parallel"], cp=1,
            order="tp-cp-ep-dp-pp",
        )  # fmt: skip
        if [len(experts.get_ranks("ep")[0]), len(experts.get_ranks("tp")[0])] != entry["experts"]:
            differs.append("groups of experts")
    samples = int(options["global-batch-size"]), int(options["micro-batch-size"])
    number = ConstantNumMicroBatchesCalculator(*samples, data, False, 0).get()
    if number != entry["micro_batches"]:
        differs.append(f"micro-batches {number}")
    if not entry["listed"] and layers(config, sizes["pipeline-model-parallel"]) != entry["layers"]:
        differs.append(f"layers {layers(config, sizes['pipeline-model-parallel'])}")
    return differs


def layers(config, stages):
    """The layers of every model chunk in the order of a micro-batch's way."""
    chunks = config.virtual_pipeline_model_parallel_size or 1
    found = []
    for chunk in range(chunks):
        for stage in range(stages):
            parallel_state.set_pipeline_model_parallel_rank(stage)
            parallel_state.set_pipeline_model_parallel_world_size(stages)
            parallel_state.set_virtual_pipeline_model_parallel_rank(chunk if chunks > 1 else None)
            parallel_state.set_virtual_pipeline_model_parallel_world_size(chunks if chunks > 1 else None)
            found.append(get_num_layers_to_build(config))
    return found


def main():
    entries = json.load(sys.stdin)
    wrong = 0
    for number, entry in enumerate(entries):
        try:
            differs = judged(entry)
        except Exception as error:  # whatever Megatron raises is its verdict
            differs = [f"{type(error).__name__}: {error}"]
        for one in differs:
            print(f"case {number}: {one}")
        wrong += bool(differs)
    print(f"{len(entries) - wrong} of {len(entries)} sets of arguments as planned")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
