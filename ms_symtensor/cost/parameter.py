"""What a parameter costs: bringing its gradient together, gathering its shares, and the memory of it and its states."""

from dataclasses import dataclass

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import node_cost
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.dtype import size_B
from ms_symtensor.tensor.layout import DeviceGroup

STATES_B = 8
"""Bytes of optimizer state per element: two float32 moments (AdamW, Loshchilov and Hutter 2019)."""


@dataclass(frozen=True)
class ParameterCost:
    """Seconds per step, bytes at rest on one rank.

    `synchronisation_s`: gradient collectives; `gather_s`: AllGathers of the shares (twice at level 3); `update_s`: the
    optimizer's pass over weight, gradient and states. `used_B` is the copy in the operator's element type that the
    backward pass keeps.
    """

    synchronisation_s: float
    gather_s: float
    update_s: float
    weight_B: int
    gradient_B: int
    states_B: int
    used_B: int


def parameter_cost(
    cluster: Cluster, placement: ParameterPlacement, settings: Settings, used_dtype: str, in_gradient: bool = True
) -> ParameterCost:
    """The cost of a parameter in `placement` that operators read as `used_dtype`.

    `in_gradient`: the gradient of an operator reads it, so that it is kept or (level 3) gathered again; not so a looked-up table.
    """
    elements = 1
    for n in placement.layout.slice_shape:
        elements *= n
    share = elements // placement.shard
    stored, used = size_B(placement.dtype), size_B(used_dtype)
    weight_B = share * stored
    if not placement.requires_grad:
        return ParameterCost(0.0, 0.0, 0.0, weight_B, 0, 0, elements * used if used_dtype != placement.dtype else 0)
    gradient_size = stored if settings.gradient_fp32_sync else used
    synchronisation = 0.0
    if placement.shard > 1:
        synchronisation += _collective(cluster, "ReduceScatter", placement.gather, elements * gradient_size)
    if placement.mirror is not None:
        synchronisation += _collective(cluster, "AllReduce", placement.mirror, share * gradient_size)
    again = in_gradient and settings.optimizer_level is OptimizerLevel.LEVEL3
    gathers = 0 if placement.shard == 1 else 2 if again else 1
    gather = gathers * _collective(cluster, "AllGather", placement.gather, elements * used) if gathers else 0.0
    states_B = share * STATES_B
    update = node_cost(cluster, "AdamWeightDecay", None, 2 * (weight_B + states_B) + share * gradient_size, 0).time_s
    dropped = not in_gradient or (settings.optimizer_level is OptimizerLevel.LEVEL3 and placement.shard > 1)
    kept = 0 if dropped else elements * used
    # Before an AllGather the cast copy of the share exists too; without a cast the stored weight itself is read.
    used_B = kept if used_dtype != placement.dtype or placement.shard > 1 else 0
    return ParameterCost(synchronisation, gather, update, weight_B, share * gradient_size, states_B, used_B)


def _collective(cluster: Cluster, kind: str, group: DeviceGroup | None, bytes_: float) -> float:
    return node_cost(cluster, kind, group, bytes_, 0).time_s
