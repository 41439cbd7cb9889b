"""What a parameter costs: bringing its gradient together, gathering its shares, and the memory of it and its states."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import SWAP, node_cost
from ms_symtensor.cost.runtime import Stored
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import DeviceGroup

STATES_B = 8
"""Bytes of optimizer state per element: two float32 moments (AdamW, Loshchilov and Hutter 2019)."""


@dataclass(frozen=True)
class ParameterCost:
    """Seconds per step, bytes at rest on one rank.

    `scatter_s`, `sum_s`: ReduceScatter and AllReduce of the gradient; `gather_s`: AllGathers of the shares (twice at level 3);
    `update_s`: the optimizer's pass over weight, gradient and states, and fetching these from the host and bringing them back
    where they stay there. `used_B` is the copy in the operator's element type that the backward pass keeps.
    """

    scatter_s: float
    sum_s: float
    gather_s: float
    update_s: float
    weight_B: int
    gradient_B: int
    states_B: int
    used_B: int

    @property
    def at_rest_B(self) -> int:
        """Bytes that stay from step to step."""
        return self.weight_B + self.gradient_B + self.states_B


def parameter_cost(
    cluster: Cluster, placement: ParameterPlacement, settings: Settings, used_dtype: str, in_gradient: bool = True
) -> ParameterCost:
    """The cost of a parameter in `placement` that operators read as `used_dtype`.

    `in_gradient`: the gradient of an operator reads it, so that it is kept or (level 3) gathered again; not so a looked-up table.
    """
    elements = math.prod(placement.layout.slice_shape)

    def seconds(kind: str, group: DeviceGroup | None, size_B: float) -> float:
        return node_cost(cluster, kind, group, size_B, 0)

    return price_slice(seconds, placement, placement.shard, elements, settings, used_dtype, in_gradient)


def price_slice(
    seconds: Callable[[str, DeviceGroup | None, Any], Any],
    placement: ParameterPlacement,
    shard: Any,
    elements: Any,
    settings: Settings,
    used_dtype: str,
    in_gradient: bool,
) -> ParameterCost:
    """As `parameter_cost`, of a slice of `elements` that `shard` ranks share: numbers, or arrays with one entry per mesh.

    `seconds(kind, group, bytes)` prices a node.
    """
    share = elements // shard
    stored, used = size_B(placement.dtype), size_B(used_dtype)
    weight_B = share * stored
    is_cast = used_dtype != placement.dtype
    is_shared = placement.gather is not None
    gradient_size = stored if settings.gradient_fp32_sync else used
    scattered = seconds("ReduceScatter", placement.gather, elements * gradient_size) if is_shared else 0.0
    summed = seconds("AllReduce", placement.mirror, share * gradient_size) if placement.mirror is not None else 0.0
    recomputation = in_gradient and settings.optimizer_level is OptimizerLevel.LEVEL3
    gathers = 0 if not is_shared else 2 if recomputation else 1
    gather = gathers * seconds("AllGather", placement.gather, elements * used) if gathers else 0.0
    # Before an AllGather the cast copy of the share exists too; without a cast the stored weight itself is read.
    dropped = not in_gradient or (settings.optimizer_level is OptimizerLevel.LEVEL3 and is_shared)
    used_B = elements * used if not dropped and (is_cast or is_shared) else 0
    if not placement.requires_grad:  # MindSpore shares frozen parameters too
        return ParameterCost(0.0, 0.0, gather, 0.0, weight_B, 0, 0, used_B)
    states_B = share * STATES_B
    update = seconds("AdamWeightDecay", None, update_B(share, stored, gradient_size))
    if settings.swap_optimizer:
        update, states_B = update + seconds(SWAP, None, swapped_B(share)), 0 * states_B
    return ParameterCost(scattered, summed, gather, update, weight_B, share * gradient_size, states_B, used_B)


def update_B(share: Any, stored_B: int, gradient_B: int) -> Any:
    """Bytes through memory where `share` elements are updated: weights and states are read and written, gradients read."""
    return (2 * (stored_B + STATES_B) + gradient_B) * share


def kernels_B(kernels: tuple[str, ...], stored_B: int, gradient_B: int) -> Mapping[int, int]:
    """Bytes of an element that each of the `kernels` of an update moves (`Runtime.updates`), and how many move so many."""
    sizes = {"w": stored_B, "g": gradient_B, "f": 4}
    found: Counter[int] = Counter()
    for kernel in kernels:
        read, made = kernel.split(">")
        is_cast = len(read) == len(made) == 1 and read != made
        if not is_cast or sizes[read] != sizes[made]:
            found[sum(sizes[tensor] for tensor in read + made)] += 1
    return found


def swapped_B(share: Any) -> Any:
    """Bytes of the states of `share` elements that are fetched from the host for their update, and brought back."""
    return 2 * STATES_B * share


def adding_B(elements: Any, dtype: str) -> Any:
    """Bytes through memory where a gradient of so many `elements` is added to another one: two are read, and one is written
    (MindSpore's _VirtualAssignAdd, mindspore/ops/_grad_experimental/grad_comm_ops.py).
    """
    return 3 * elements * size_B(dtype)


def stored_B(
    parameters: Iterable[tuple[ParameterPlacement, int]], stored: Stored, level: OptimizerLevel
) -> dict[str, int]:
    """Bytes at rest of parameters, each so many times, that a run-time has as `stored`; master weights count as parameters."""
    found = {"parameters": 0, "gradients": 0, "optimizer_states": 0}
    for placement, times in parameters:
        whole = times * math.prod(placement.layout.slice_shape)
        share = times * _updated(placement, OptimizerLevel.LEVEL1)
        found["parameters"] += stored.weight * (share if level >= OptimizerLevel.LEVEL3 else whole)
        if placement.requires_grad:
            updated = share if level >= OptimizerLevel.LEVEL1 else whole
            found["parameters"] += stored.master * updated
            found["gradients"] += stored.gradient * (share if level >= OptimizerLevel.LEVEL2 else whole)
            found["optimizer_states"] += stored.states * updated
    return found


def update_peak_B(parameters: Iterable[tuple[ParameterPlacement, int]], stored: Stored, level: OptimizerLevel) -> int:
    """Bytes that the update of one parameter after the other makes for itself, when no activations are alive: the largest's."""
    return stored.update * max((_updated(one, level) for one, _ in parameters if one.requires_grad), default=0)


def _updated(placement: ParameterPlacement, level: OptimizerLevel) -> int:
    """Elements of a parameter that a rank updates: a share of its copies where the optimizer is sharded."""
    whole = math.prod(placement.layout.slice_shape)
    return -(-whole // len(placement.layout.copies.ranks())) if level >= OptimizerLevel.LEVEL1 else whole


def updating_B(parameters: Mapping[str, ParameterPlacement]) -> int:
    """Device bytes of optimizer states that stay on the host, while one parameter after the other is updated: the largest's.

    No activations are alive then.
    """
    return max((math.prod(p.slice_shape) * STATES_B for p in parameters.values() if p.requires_grad), default=0)
