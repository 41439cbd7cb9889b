"""A cluster as MindSpore's Python layer asks about it: ranks, groups and the names that its compiler gives to them."""

import ctypes
from collections.abc import Iterator
from typing import Any

from ms_symtensor.errors import CompilerError

WORLD_GROUP = "hccl_world_group"
_BETWEEN_STAGES = "Send"  # what MindSpore adds to the name of a group in which interleaved stages exchange
_STD_HASH_SEED = 0xC70F6907  # of libstdc++'s std::hash<std::string>


class Cluster:
    """A cluster as MindSpore's Python layer asks about it, seen by one rank; `groups` maps names to ranks."""

    def __init__(self, device_num: int, rank: int) -> None:
        self.device_num = device_num
        self.rank = rank
        self.groups: dict[str, tuple[int, ...]] = {WORLD_GROUP: tuple(range(device_num))}

    def get_rank_size(self, group: str = WORLD_GROUP) -> int:
        return len(self.groups[group]) if group in self.groups else self._size_in(group)

    def get_rank_id(self, group: str = WORLD_GROUP) -> int:
        return self.ranks(group).index(self.rank)

    def get_local_rank_id(self, group: str = WORLD_GROUP) -> int:
        return self.get_rank_id(group)

    def get_local_rank_size(self, group: str = WORLD_GROUP) -> int:
        return self.get_rank_size(group)

    def get_world_rank_from_group_rank(self, group: str, group_rank_id: int) -> int:
        return self.ranks(group)[group_rank_id]

    def get_group_rank_from_world_rank(self, world_rank_id: int, group: str) -> int:
        return self.ranks(group).index(world_rank_id)

    def create_group(self, group: str, rank_size: int = 0, rank_ids: list[int] | tuple[int, ...] = ()) -> None:
        self.groups[group] = tuple(sorted(rank_ids))

    def ranks(self, group: str) -> tuple[int, ...]:
        """Global ranks of `group`, ascending. MindSpore names the groups it makes by size and hash of the ranks, those in which
        interleaved stages exchange with an ending.
        """
        if group not in self.groups:
            group = group.removesuffix(_BETWEEN_STAGES)
        if group not in self.groups:
            for ranks in _lattices(self.device_num, self._size_in(group), self.rank):
                self.groups.setdefault(group_name(ranks), ranks)
        if group not in self.groups:
            raise CompilerError(f"MindSpore asked for the members of group {group!r}, which nobody described")
        return self.groups[group]

    @staticmethod
    def _size_in(group: str) -> int:
        """The size that the compiler writes before the hash: 4 for `4-15700679239691767905`."""
        size, _, identity = group.partition("-")
        if not (size.isdigit() and identity.isdigit()):
            raise CompilerError(
                f"the network uses communication group {group!r}, which was not created with create_group"
            )
        return int(size)


def group_name(ranks: tuple[int, ...]) -> str:
    """The name that MindSpore's compiler gives to the group of `ranks`: `"4-15700679239691767905"` for (4, 5, 6, 7)."""
    text = "-".join(map(str, ranks)).encode()
    return f"{len(ranks)}-{_std_hash(text, len(text), _STD_HASH_SEED)}"


def _std_hash(*arguments: Any) -> int:
    function = ctypes.CDLL("libstdc++.so.6")["_ZSt11_Hash_bytesPKvmm"]
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
    return int(function(*arguments))


def _lattices(device_num: int, size: int, rank: int) -> Iterator[tuple[int, ...]]:
    """The groups of `size` ranks with `rank` that some device matrix of `device_num` devices makes, ascending."""

    def offsets(remaining: int, size: int, stride: int) -> Iterator[tuple[tuple[int, int], ...]]:
        # from the minor axis up: an axis of the group, below it at most one axis that is not
        if size == 1:
            yield ()
            return
        for skip in range(1, remaining // size + 1):
            if remaining % (skip * size) == 0 and (skip > 1 or stride == 1):
                for extent in range(2, size + 1):
                    if size % extent == 0:
                        axis = (stride * skip, extent)
                        for rest in offsets(remaining // skip // extent, size // extent, stride * skip * extent):
                            yield axis, *rest

    for axes in offsets(device_num, size, 1):
        base = rank - sum(rank // stride % extent * stride for stride, extent in axes)
        ranks = [base]
        for stride, extent in axes:
            ranks = [r + i * stride for i in range(extent) for r in ranks]
        yield tuple(sorted(ranks))
