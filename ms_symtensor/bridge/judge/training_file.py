"""MindFormers' own network, built from a training file in graph mode as its trainer builds it, and audited."""

import importlib.util
import os
import sys
from contextlib import redirect_stdout
from typing import Any

from ms_symtensor.bridge.compiler.host import described_cluster, import_mindspore
from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.judge.audit import Audit, audit
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers.reduced import Reduced

CONTEXT = (
    "enable_alltoall",
    "enable_parallel_optimizer",
    "parallel_optimizer_config",
    "pipeline_config",
    "gradients_mean",
)
"""Keys of a file's `parallel` that the compiled program depends on."""


def require_mindformers() -> None:
    """InputError where MindFormers is not installed."""
    if importlib.util.find_spec("mindformers") is None:
        raise InputError(
            "--check builds MindFormers' own network, and there is no MindFormers here: pip install mindformers==1.9.0 beside"
            " mindspore==2.9.0"
        )


def audit_training_file(file: Reduced, rank: int, cluster: Cluster) -> Audit:
    """The audit of the program that MindFormers trains for `rank`.

    Errors: those of `require_mindformers`; what MindFormers itself raises passes through.
    """
    require_mindformers()
    mindspore, device_num = import_mindspore(), file.layout.device_num
    os.environ.setdefault("LOG_MF_PATH", str(file.place.parent / "log"))  # else it logs where the user stands
    with redirect_stdout(sys.stderr), described_cluster(device_num, rank), stand_alone_context():
        import mindformers
        from mindspore.nn.utils import no_init_parameters

        config = mindformers.MindFormerConfig(str(file.place))
        said = {key: _plain(config.parallel[key]) for key in CONTEXT if config.parallel.get(key) is not None}
        mindspore.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=device_num, global_rank=rank, full_batch=True,
            pipeline_stages=config.parallel_config.pipeline_stage, **said,
        )  # fmt: skip
        with no_init_parameters():
            network = _network(mindspore, config)
        network.set_train()
        tokens = mindspore.Tensor(shape=(file.samples, file.seq_length), dtype=mindspore.int32)
        return audit(network, *[tokens] * 4, device_num=device_num, cluster=cluster, rank=rank)


def _network(mindspore: Any, config: Any) -> Any:
    """The network with its losses added up (`grads_for_mcore`), in micro-batches (base_trainer.py)."""
    from mindformers.core.context.build_context import build_mf_context, set_context
    from mindformers.core.parallel_config import build_parallel_config
    from mindformers.models import build_network

    build_mf_context({"use_legacy": False, "context": {}, "parallel": {}, "run_mode": "train"})
    set_context(mode=mindspore.GRAPH_MODE)  # which classes it builds
    build_parallel_config(config)
    if config.get("pretrained_model_dir"):
        config.model.pretrained_model_dir = os.fspath(config.pretrained_model_dir)
    made = build_network(
        config.model,
        default_args={
            "parallel_config": config.parallel_config, "moe_config": config.moe_config, "dataset_config": config.train_dataset,
            "calculate_per_token_loss": False, "batch_size": config.runner_config.batch_size,
        },
    )  # fmt: skip

    class Loss(mindspore.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.network = made

        def construct(self, ids: Any, labels: Any, mask: Any, positions: Any) -> Any:
            loss, second, balancing, indexer = self.network(ids, positions, None, None, labels, None, None, mask)
            return loss + balancing + indexer + second

    stages, of = config.parallel_config.pipeline_stage, config.runner_config.gradient_accumulation_steps or 1
    if stages > 1:
        return mindspore.nn.PipelineCell(Loss(), config.parallel_config.micro_batch_num)
    return mindspore.nn.GradAccumulationCell(Loss(), of) if of > 1 else Loss()


def _plain(value: Any) -> Any:
    """Data without MindFormers' own kinds of it."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
