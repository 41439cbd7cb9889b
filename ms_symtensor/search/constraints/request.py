"""What a user asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.runtime import DEFAULT as DEFAULT_RUNTIME
from ms_symtensor.cost.runtime import Runtime
from ms_symtensor.cost.runtime import load as load_runtime
from ms_symtensor.ops.registry import Rule
from ms_symtensor.search.constraints.limits import Limits

GIB = 1 << 30

KEPT_FREE = 0.05
"""empirical: a share of a device's memory that plans leave by default; predicted peaks are off by a few percent on published
runs (docs/results/validation.md)."""


def free_B(cluster: Cluster) -> int:
    """Bytes of a device of `cluster` that a plan may use where the user gives no limit."""
    return int(cluster.device.hbm_usable_B * (1 - KEPT_FREE))


@dataclass(frozen=True)
class Request:
    """A plan for `device_num` devices of `cluster`, a step of `global_batch_size` samples, and `limit_B` of a device's memory.

    `is_trial`: it is asked only whether a plan is found, so that no last attempt is worth minutes, nor what is missing.
    `certified_gap`: how far from the optimum the plan may be, a fraction, by a certificate; None: none is asked for. `runtime`:
    what the plan's price assumes of the software that runs it.
    """

    cluster: Cluster
    device_num: int
    global_batch_size: int
    seq_length: int
    limit_B: int
    model: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    rules: Mapping[str, Rule] | None = None
    is_trial: bool = False
    certified_gap: float | None = None
    runtime: Runtime = field(default_factory=lambda: load_runtime(DEFAULT_RUNTIME))

    @property
    def space(self) -> str:
        """What was asked for, in words."""
        devices = f"{self.device_num} device{'' if self.device_num == 1 else 's'}"
        limits = str(self.limits)
        return f"{devices} with {limits}" if limits else devices
