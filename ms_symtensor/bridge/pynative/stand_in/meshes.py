"""Device meshes: an array of ranks with named axes, of which a rank sees the part that it lies in."""

from typing import Any

import numpy as np

from ms_symtensor.bridge.pynative.session import CURRENT


class DeviceMesh:
    """Ranks with named axes. `ranks` is the part of the mesh that this rank lies in."""

    def __init__(self, ranks: Any, names: tuple[str, ...], root: "DeviceMesh | None" = None, device_type: str = "npu"):
        self.ranks = np.asarray(ranks)
        self.mesh_dim_names = tuple(names)
        self.root_mesh = root or self
        self.device_type = device_type

    @property
    def ndim(self) -> int:
        return len(self.mesh_dim_names)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        return tuple(self.ranks.shape)

    @property
    def rank_list(self) -> tuple[int, ...]:
        return tuple(int(rank) for rank in self.ranks.flatten())

    def size(self, dim: int | None = None) -> int:
        return int(self.ranks.size if dim is None else self.ranks.shape[dim])

    def get_coordinate(self) -> tuple[int, ...]:
        return tuple(int(axis[0]) for axis in np.where(self.ranks == CURRENT.rank))

    def get_local_rank(self, mesh_dim: Any = None) -> int:
        del mesh_dim
        return self.rank_list.index(CURRENT.rank)

    def get_rank_list_along_axis(self, name: str) -> list[int]:
        return list(self[name].rank_list)

    def _unflatten(self, dim: int, degrees: Any, names: tuple[str, ...], backend_override: Any = None) -> "DeviceMesh":
        del dim, backend_override
        return DeviceMesh(self.ranks.reshape(tuple(degrees)), names, self)

    def _flatten(self, name: str | None = None) -> "DeviceMesh":
        return DeviceMesh(self.ranks.reshape(-1), (name or "flat",), self)

    def __getitem__(self, names: Any) -> "DeviceMesh":
        names = (names,) if isinstance(names, str) else tuple(names)
        here = np.where(self.ranks == CURRENT.rank)
        part = tuple(
            slice(None) if name in names else int(axis[0]) for name, axis in zip(self.mesh_dim_names, here, strict=True)
        )
        return DeviceMesh(self.ranks[part], tuple(name for name in self.mesh_dim_names if name in names), self)

    def get_group(self, *_: Any) -> str:
        """The name of this mesh's group; ranks that communicate make it when it is first asked for."""
        ranks = self.rank_list
        for name, known in CURRENT.groups.items():
            if known == ranks:
                return name
        name = "ranks_" + "_".join(map(str, ranks))
        if CURRENT.real and len(ranks) > 1:
            import mindspore.mint.distributed as distributed

            name = distributed.new_group(list(ranks))
        CURRENT.groups[name] = ranks
        return name


def init_device_mesh(device_type: str, mesh_shape: Any, mesh_dim_names: Any = None, **_: Any) -> DeviceMesh:
    """The mesh of the whole world."""
    return DeviceMesh(np.arange(int(np.prod(mesh_shape))).reshape(mesh_shape), mesh_dim_names, None, device_type)
