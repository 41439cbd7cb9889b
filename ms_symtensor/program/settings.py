"""What a plan switches on beside the operators' strategies, in MindSpore's own terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ms_symtensor.ops.placement import OpStrategy


class OptimizerLevel(IntEnum):
    """`parallel_optimizer_config["optimizer_level"]`: what is sharded over the copies of a parameter (ZeRO 1 to 3)."""

    NONE = 0
    LEVEL1 = 1  # weights and optimizer states
    LEVEL2 = 2  # and gradients
    LEVEL3 = 3  # and weights are gathered again for the backward pass


@dataclass(frozen=True)
class Recompute:
    """`cell.recompute(mp_comm_recompute=…)` on a repeated block: activations are recomputed in the backward pass.

    But for the work of the operators `kept` (`primitive.recompute(False)`), and the moves before and the sums behind those of
    `kept_communication`. Or, where there are `only` some, the work of these alone (`primitive.recompute()`), and nothing of the
    block that has no primitive. All are named by their primitives within the block (`"attention.query.matmul"`), so that equal
    blocks have equal selections. `is_marked`: its operators tell of communication; those of `cell.recompute()`, where a user
    leaves the argument out, do not, and what they deliver to other blocks is not moved again. `sliced`: operators whose outputs,
    where they are kept, are cut over the ranks that hold the same (a user's `recompute_slice_activation=True`).
    """

    communication: bool = True
    kept: tuple[str, ...] = ()
    kept_communication: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    is_marked: bool = True
    sliced: tuple[str, ...] = ()

    @property
    def in_part(self) -> bool:
        """Whether some operators of the block are not recomputed."""
        return bool(self.kept or self.kept_communication or self.only)

    @property
    def named(self) -> tuple[str, ...]:
        """The operators that it names."""
        return (*self.kept, *self.kept_communication, *self.only)


@dataclass(frozen=True)
class Settings:
    """The parallel settings of one stage.

    `optimizer_weight_shard_size` -1 shards over all copies. `parallel_optimizer_threshold_KB`: smaller parameters are not
    sharded (MindSpore's key and unit; its default is 64). `swap_optimizer`: optimizer states stay in host memory between
    updates (MindSpore's `Parameter(…, device="CPU")`, `swap` of MindFormers' AdamW). `recompute` maps block names to what is
    recomputed.
    """

    device_num: int
    enable_alltoall: bool = False
    optimizer_level: OptimizerLevel = OptimizerLevel.NONE
    optimizer_weight_shard_size: int = -1
    parallel_optimizer_threshold_KB: int = 64
    gradient_fp32_sync: bool = True
    swap_optimizer: bool = False
    recompute: Mapping[str, Recompute] = field(default_factory=dict)


@dataclass(frozen=True)
class StagePlan:
    """Everything that decides the program of a rank: a strategy per operator (by full name), and the settings."""

    strategies: Mapping[str, OpStrategy]
    settings: Settings
