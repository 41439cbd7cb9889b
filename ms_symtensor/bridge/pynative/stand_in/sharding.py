"""`fully_shard`: which parameters one module gathers for its use. Nothing is gathered here; units are noted."""

from typing import Any

from ms_symtensor.bridge.pynative.session import CURRENT, Unit


class HSDPModule:
    """Mixed into the class of a sharded module; MindFormers sets prefetch and reductions on it."""

    def set_modules_to_forward_prefetch(self, modules: Any) -> None:
        del modules

    def set_modules_to_backward_prefetch(self, modules: Any) -> None:
        del modules

    def set_reduce_op_type(self, kind: str) -> None:
        del kind

    def set_requires_all_reduce(self, needed: bool) -> None:
        del needed


class Policy:
    """A policy of precision or offload: kept as it was given."""

    def __init__(self, *args: Any, **options: Any):
        self.args, self.options = args, options


class OffloadPolicy(Policy):
    """Nothing on the host."""


class CPUOffloadPolicy(OffloadPolicy):
    """Shards on the host."""


class MixedPrecisionPolicy(Policy):
    """Dtypes of parameters and of gradients' sums."""


def fully_shard(
    module: Any,
    mesh: Any = None,
    reshard_after_forward: bool = True,
    ignored_params: Any = (),
    replicate_params: Any = (),
    **_: Any,
) -> Any:
    """Note the parameters of `module` that no unit has yet, shared by the last axis of `mesh`, replicated over the others."""
    taken = {id(parameter) for unit in CURRENT.units for parameter, _ in unit.parameters}
    ignored = {id(parameter) for parameter in ignored_params or ()}
    whole = {id(parameter) for parameter in replicate_params or ()}
    parameters = [
        (parameter, id(parameter) in whole)
        for _, parameter in module.parameters_and_names()
        if id(parameter) not in taken and id(parameter) not in ignored
    ]
    grid = mesh.ranks.reshape(-1, mesh.ranks.shape[-1]).tolist()
    shards = next(tuple(row) for row in grid if CURRENT.rank in row)
    replicas = tuple(row[shards.index(CURRENT.rank)] for row in grid)
    CURRENT.units.append(Unit(type(module).__name__, parameters, shards, replicas, reshard_after_forward))
    kind = module.__class__
    if not isinstance(module, HSDPModule):
        module.__class__ = type(f"HSDP{kind.__name__}", (HSDPModule, kind), {})
    return module
