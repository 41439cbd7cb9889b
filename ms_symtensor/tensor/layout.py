"""How a tensor lies on the devices: MindSpore's device matrix and tensor map, and the groups of ranks they imply."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from ms_symtensor.errors import InvalidStrategyError


@dataclass(frozen=True)
class Layout:
    """A tensor of global `shape` on `device_matrix` (axes major to minor, product = number of devices).

    `tensor_map[i]` is the device axis that cuts tensor dim i, counted from the right (0 = the minor axis), or -1 where
    dim i is whole: MindSpore's convention, so that values read from its files and graphs need no translation.
    Device axes that appear in no entry hold copies. `fine`: the same slices with as many dims as axes of the device matrix where
    several of these cut one dim, as MindSpore's redistribution sees them.
    """

    device_matrix: tuple[int, ...]
    tensor_map: tuple[int, ...]
    shape: tuple[int, ...]
    fine: "Layout | None" = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # a search looks up every layout very often: hash it once
        return hash((self.device_matrix, self.tensor_map, self.shape))

    def __str__(self) -> str:
        """Every dim, and in how many slices it is cut: "(48/16, 128/3, 2048)"."""
        dims = (f"{size}/{cut}" if cut > 1 else str(size) for size, cut in zip(self.shape, self.cuts, strict=True))
        return f"({', '.join(dims)})"

    def cut(self, dim: int) -> int:
        """In how many slices tensor dim `dim` is cut."""
        axis = self.tensor_map[dim]
        return 1 if axis < 0 else self.device_matrix[-1 - axis]

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        return tuple(self.cut(dim) for dim in range(len(self.shape)))

    @cached_property
    def slice_shape(self) -> tuple[int, ...]:
        """Shape of what one device holds. Every cut dim divides evenly (checked where layouts are made)."""
        return tuple(size // cut for size, cut in zip(self.shape, self.cuts, strict=True))

    @cached_property
    def device_num(self) -> int:
        return math.prod(self.device_matrix)

    @cached_property
    def element_num(self) -> int:
        """Elements of the whole tensor. InvalidStrategyError where the layout does not divide it."""
        for size, cut in zip(self.shape, self.cuts, strict=True):
            if size % cut:
                raise InvalidStrategyError(f"{self}: dim of size {size} cannot be cut in {cut} equal slices")
        return math.prod(self.shape)

    @cached_property
    def plain(self) -> "Layout":
        """The same without device axes of size 1 (the tensor map is renumbered): what decides which rank holds what."""
        number, renumbered = 0, {-1: -1}
        for axis, size in enumerate(reversed(self.device_matrix)):
            renumbered[axis] = -1 if size == 1 else number
            number += size != 1
        matrix = tuple([size for size in self.device_matrix if size != 1])
        return layout_of(matrix, tuple([renumbered[axis] for axis in self.tensor_map]), self.shape)

    @cached_property
    def squeezed(self) -> "Layout":
        """`plain` without tensor dims of size 1; a tensor of one element keeps the shape (1,)."""
        plain = self.plain
        if 1 not in plain.shape:
            return plain
        kept = [dim for dim, size in enumerate(plain.shape) if size != 1]
        if not kept:
            return layout_of(plain.device_matrix, (-1,), (1,))
        tensor_map = tuple([plain.tensor_map[dim] for dim in kept])
        return layout_of(plain.device_matrix, tensor_map, tuple([plain.shape[dim] for dim in kept]))

    @cached_property
    def copies(self) -> "DeviceGroup":
        """The devices that hold the same slice."""
        used = {len(self.device_matrix) - 1 - axis for axis in self.tensor_map if axis >= 0}
        return DeviceGroup(self.device_matrix, tuple(a for a in range(len(self.device_matrix)) if a not in used))


@lru_cache(maxsize=1 << 16)
def layout_of(device_matrix: tuple[int, ...], tensor_map: tuple[int, ...], shape: tuple[int, ...]) -> Layout:
    """The layout, the same one whenever it is asked for: what is worked out of it is so once."""
    return Layout(device_matrix, tensor_map, shape)


@dataclass(frozen=True)
class DeviceGroup:
    """The ranks that differ only in their coordinates along `axes` (indices from the left) of `device_matrix`."""

    device_matrix: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod([self.device_matrix[a] for a in self.axes])

    def ranks(self, rank: int = 0) -> tuple[int, ...]:
        """The group that `rank` belongs to, ascending."""
        return _ranks(self.device_matrix, self.axes, rank)


@lru_cache(maxsize=1 << 16)
def _ranks(device_matrix: tuple[int, ...], axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    strides = [math.prod(device_matrix[a + 1 :]) for a in range(len(device_matrix))]
    base = rank - sum(rank // strides[a] % device_matrix[a] * strides[a] for a in axes)
    offsets = product(*(range(0, device_matrix[a] * strides[a], strides[a]) for a in axes))
    return tuple(sorted(base + sum(o) for o in offsets))
