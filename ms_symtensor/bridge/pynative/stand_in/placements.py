"""Where a parameter lies: cut over a mesh, or whole on each rank. Only experts' weights count as `DTensor`s."""

from typing import Any

from ms_symtensor.bridge.pynative.session import CURRENT


class Placement:
    """One axis of a mesh: cut, whole or a partial sum."""

    def is_shard(self, dim: int | None = None) -> bool:
        return isinstance(self, Shard) and (dim is None or dim == self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        return isinstance(self, Partial)


class Shard(Placement):
    """Cut along `dim`."""

    def __init__(self, dim: int):
        self.dim = dim


class Replicate(Placement):
    """Whole on every rank."""


class Partial(Placement):
    """A summand on every rank."""


class _HasPlacement(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return bool(getattr(instance, "is_cut_by_the_stand_in", False))


class DTensor(metaclass=_HasPlacement):
    """A tensor with a placement: `isinstance` is what MindFormers asks of it."""


class ShardingPlan:
    """Placements by parameter name."""

    def __init__(self, plan: dict[str, Any] | None = None, **_: Any):
        self.plan = plan or {}


class SkipDTensorDispatch:
    """Nothing is dispatched here."""

    def __enter__(self) -> "SkipDTensorDispatch":
        return self

    def __exit__(self, *_: Any) -> None:
        return None


def local_part(tensor: Any, mesh: Any, placements: Any) -> Any:
    """This rank's part of `tensor`; where it does not divide, what is left over is dropped and noted."""
    for placement in placements:
        if isinstance(placement, Shard):
            length, ranks = tensor.shape[placement.dim], mesh.size()
            if length % ranks:
                CURRENT.uneven.append(
                    f"dim {placement.dim} of a parameter of shape {tuple(tensor.shape)} by {ranks} ranks"
                )
            size, part = length // ranks, [slice(None)] * tensor.ndim
            part[placement.dim] = slice(mesh.get_local_rank() * size, (mesh.get_local_rank() + 1) * size)
            tensor = tensor[tuple(part)].contiguous()
    return tensor


def distribute_tensor(tensor: Any, device_mesh: Any = None, placements: Any = None, **_: Any) -> Any:
    """This rank's part."""
    return local_part(tensor, device_mesh, placements)


def shard_module(module: Any, device_mesh: Any = None, sharding_plan: Any = None) -> Any:
    """Cut the module's parameters as the plan says, and remember how."""
    from mindspore import Parameter

    for name, placements in sharding_plan.plan.items():
        *path, leaf = name.split(".")
        owner = module
        for part in path:
            owner = getattr(owner, part)
        old = getattr(owner, leaf)
        if old is None:
            continue
        if any(isinstance(placement, Shard) for placement in placements):
            part = local_part(old, device_mesh, placements)
            setattr(owner, leaf, Parameter(part, name=old.name, requires_grad=old.requires_grad))
        new = getattr(owner, leaf)
        CURRENT.placements[id(new)] = (new, device_mesh, tuple(placements))
        if "ep" in device_mesh.mesh_dim_names:
            new.is_cut_by_the_stand_in = True
            new.device_mesh, new.placements, new.layout = device_mesh, tuple(placements), None
            new.local_shape = tuple(new.shape)
            new.to_local = lambda parameter=new: parameter
    return module


def note_distributed() -> None:
    """Remember placements of parameters that MindFormers distributes one by one (routers, whole experts); it is imported."""
    from mindformers.pynative.base_models.gpt import parallelize

    distribute = parallelize._distribute_param

    def noted(module: Any, param_name: str, device_mesh: Any, placements: Any) -> None:
        distribute(module, param_name, device_mesh, placements)
        parameter = getattr(module, param_name)
        CURRENT.placements[id(parameter)] = (parameter, device_mesh, tuple(placements))

    parallelize._distribute_param = noted
