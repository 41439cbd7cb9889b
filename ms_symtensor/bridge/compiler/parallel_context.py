"""MindSpore's parallel settings: as a value, and set for the duration of one compile."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ms_symtensor.bridge.compiler import search_mode
from ms_symtensor.bridge.compiler.speed_up import sped_up
from ms_symtensor.errors import CompilerError


@dataclass(frozen=True)
class ParallelConfig:
    """Settings of `mindspore.set_auto_parallel_context`, by its names; None leaves MindSpore's default.

    `dataset_strategy`: `"full_batch"` (inputs have global shapes), `"data_parallel"`, or a strategy per input as a
    tuple (inputs have the shapes of one device's slices). `optimizer_level` ("level1", "level2", "level3"),
    `optimizer_weight_shard_size` and `parallel_optimizer_threshold` (KB) count with `enable_parallel_optimizer` only.
    `speed_up` names settings of `parallel_speed_up.json` (`cost.overlap`); `others` holds any further settings.
    """

    parallel_mode: str = "semi_auto_parallel"
    dataset_strategy: str | tuple[tuple[int, ...], ...] = "full_batch"
    enable_parallel_optimizer: bool = False
    optimizer_level: str | None = None
    optimizer_weight_shard_size: int | None = None
    parallel_optimizer_threshold: int | None = None
    gradient_accumulation_shard: bool | None = None
    enable_alltoall: bool = False
    pipeline_stages: int = 1
    search_mode: str | None = None
    gradients_mean: bool | None = None
    gradient_fp32_sync: bool | None = None
    loss_repeated_mean: bool | None = None
    strategy_ckpt_config: Mapping[str, Any] | None = None
    speed_up: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Keyword arguments for `set_auto_parallel_context`."""
        optimizer = {
            "optimizer_level": self.optimizer_level,
            "optimizer_weight_shard_size": self.optimizer_weight_shard_size,
            "parallel_optimizer_threshold": self.parallel_optimizer_threshold,
            "gradient_accumulation_shard": self.gradient_accumulation_shard,
        }
        optimizer = {name: value for name, value in optimizer.items() if value is not None}
        settings = {
            "parallel_mode": self.parallel_mode,
            "dataset_strategy": self.dataset_strategy,
            "enable_parallel_optimizer": self.enable_parallel_optimizer,
            "parallel_optimizer_config": optimizer or None,
            "enable_alltoall": self.enable_alltoall,
            "pipeline_stages": self.pipeline_stages if self.pipeline_stages > 1 else None,
            "search_mode": self.search_mode,
            "gradients_mean": self.gradients_mean,
            "gradient_fp32_sync": self.gradient_fp32_sync,
            "loss_repeated_mean": self.loss_repeated_mean,
            "strategy_ckpt_config": dict(self.strategy_ckpt_config) if self.strategy_ckpt_config else None,
            **self.others,
        }
        return {name: value for name, value in settings.items() if value is not None}


@contextmanager
def parallel_context(device_num: int, rank: int, config: ParallelConfig) -> Iterator[None]:
    """`config` in force for rank `rank` of `device_num` devices; the settings from before come back at the end."""
    from mindspore import context

    settings = config.settings()
    with stand_alone_context():
        try:
            context.set_auto_parallel_context(device_num=device_num, global_rank=rank, **settings)
        except (ValueError, TypeError, RuntimeError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise CompilerError(f"MindSpore refuses the parallel settings {settings}: {first_line}") from error
        with sped_up(config.speed_up):
            yield


@contextmanager
def stand_alone_context() -> Iterator[None]:
    """MindSpore's default parallel settings (one device); the settings from before come back at the end."""
    from mindspore import context
    from mindspore._c_expression import AutoParallelContext
    from mindspore.parallel._auto_parallel_context import auto_parallel_context

    handle = AutoParallelContext.get_instance()
    before = _settings(handle)
    layout = getattr(auto_parallel_context(), "_dataset_layout", None)
    with search_mode.kept():
        context.reset_auto_parallel_context()
        try:
            yield
        finally:
            context.reset_auto_parallel_context()
            _restore(handle, before)
            auto_parallel_context()._dataset_layout = layout


def _restore(handle: Any, before: Mapping[str, Any]) -> None:
    defaults = _settings(handle)
    for name, value in before.items():
        if name not in defaults or defaults[name] != value:
            getattr(handle, f"set_{name}")(value)


def _settings(handle: Any) -> dict[str, Any]:
    """Every setting that MindSpore's context can both tell and take, without those that were never set."""
    settings = {}
    for name in (n.removeprefix("set_") for n in dir(handle) if n.startswith("set_")):
        is_set = getattr(handle, f"get_{name}_is_set", None)
        if not hasattr(handle, f"get_{name}") or (is_set is not None and not is_set()):
            continue
        try:
            settings[name] = getattr(handle, f"get_{name}")()
        except TypeError:
            continue  # one value per fusion group: these belong to a communication backend that does not exist here
    return settings
