"""A configuration through MindFormers' own classes: the parallel network of one stage, as its trainer would build it."""

from dataclasses import dataclass
from typing import Any

import mindspore

from ms_symtensor.bridge.pynative.session import CURRENT, begin


@dataclass(frozen=True)
class Stage:
    """What one rank trains."""

    trainer: Any
    """MindFormers' trainer, as far as it is needed to build a network."""
    parts: list[Any]
    """One network per model chunk."""


def trainer_of(config: str | dict[str, Any], world_size: int) -> Any:
    """MindFormers' trainer with its configuration checked and its degrees derived. Its own errors pass through."""
    from mindformers.pynative.trainer.trainer import Trainer, patch_pynative_modules

    begin(0, world_size)
    patch_pynative_modules()
    trainer = Trainer.__new__(Trainer)
    trainer.config = Trainer._init_config(config)
    trainer.is_inference = False
    trainer.world_size, trainer.enable_parallel = world_size, world_size > 1
    trainer.global_batch_size = trainer.config.training.global_batch_size
    trainer.dynamic_batch_enabled = False
    trainer._compute_data_parallel_size()
    return trainer


def stage_of(config: str | dict[str, Any], world_size: int, stage: int) -> Stage:
    """The first rank of a pipeline stage. Its own errors pass through."""
    trainer = trainer_of(config, world_size)
    ranks = world_size // trainer.config.parallelism.pipeline_parallel
    begin(stage * ranks, world_size)
    with mindspore.DeviceCtx("meta"):
        trainer.model = trainer._create_model(None, trainer.config.model)
    trainer._apply_parallelism(trainer.model, trainer.config.parallelism)
    if CURRENT.uneven:  # after what MindFormers itself refuses
        raise ValueError(f"MindFormers cuts what does not divide: {CURRENT.uneven[0]}.")
    parts = trainer.model if isinstance(trainer.model, list) else [trainer.model]
    for part in parts:
        part.set_train(True)
    return Stage(trainer, parts)
