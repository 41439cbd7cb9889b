"""hyper-parallel's own file from the same plan: the degrees of its PyTorch trainer's train.yaml, not run here.

Keys as in hyper-parallel's hyper_parallel/trainer/config/parallelism.py (AcceleratorConfig, ActivationCheckpointConfig) and its
examples/training_demo (training, fsdp_config). Model, data and optimizer are the reader's.
"""

from ms_symtensor.targets.mindformers_pynative.degrees import Degrees, range_texts
from ms_symtensor.targets.plain_yaml import lines

FILE = "hyper_parallel_train.yaml"


def train_yaml(name: str, degrees: Degrees) -> str:
    """The sections that a plan decides, with a head that says what they cannot."""
    recomputation = degrees.recompute
    sections = {
        "training": {"global_batch_size": degrees.global_batch, "micro_batch_size": degrees.local_batch},
        "accelerator": {
            "tp_size": degrees.tensor,
            "cp_size": degrees.context,
            "ep_size": degrees.expert,
            "pp_size": degrees.pipeline,
            "sequence_parallel": degrees.tensor > 1,
            "loss_parallel": degrees.tensor > 1,
        },
        "fsdp_config": {
            "dp_shard_size": degrees.data_shard,
            "reshard_after_forward": degrees.reshards,
            "forward_prefetch_depth": 1,
            "backward_prefetch_depth": 1,
            "comm_fusion": False,
        },
        "activation_checkpoint": {"mode": "full" if recomputation.layers or recomputation.modules else "off"},
    }
    return "".join(f"{line}\n" for line in (*_head(name, degrees), *lines(sections)))


def _head(name: str, degrees: Degrees) -> list[str]:
    recomputation, found = degrees.recompute, []
    found += [
        f"# {name} on {degrees.device_num} devices, for hyper-parallel's PyTorch trainer. Not run here, nor priced for it."
    ]
    found += ["# Put these keys into a train.yaml that has your model, data and optimizer."]
    texts = [f"layers {', '.join(range_texts(recomputation.layers))} whole"] if recomputation.layers else []
    texts += [f"{module} of layers {', '.join(range_texts(ranges))}" for module, ranges in recomputation.modules]
    if texts:
        found += [f"# Planned to be recomputed: {'; '.join(texts)}. The key has no ranges, so that it says more."]
    if degrees.dense_shard:
        found += [f"# Planned: dense parameters shared by {degrees.dense_shard} ranks, for which there is no key."]
    if degrees.context > 1:
        found += [
            f"# Context parallelism is planned as {degrees.context_method}: choose its wrapper in plan_overrides."
        ]
    if degrees.pipeline > 1:
        stages = "; ".join(", ".join(range_texts(chunks)) for chunks in degrees.stage_layers) or "even"
        found += [f"# Layers of the stages as planned: {stages}."]
    return found
