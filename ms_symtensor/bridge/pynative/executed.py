"""Processes that communicate: of MindSpore's collectives on a CPU only all-reduce and the list form of all-gather work in a part
of the world, so that the others are made of them.
"""

from typing import Any

import mindspore
import mindspore.mint.distributed as distributed
import numpy as np
from mindspore import Tensor, mint

from ms_symtensor.bridge.pynative.session import CURRENT

_ALL_REDUCE, _ALL_GATHER = distributed.all_reduce, distributed.all_gather
"""MindSpore's own, before others are put in their places."""


class Processes:
    """What `collectives` communicates by."""

    def all_gather(self, tensor: Any, group: str) -> Any:
        return mint.cat(_gathered(tensor.contiguous(), group), dim=0)

    def reduce_scatter(self, tensor: Any, group: str) -> Any:
        ranks = CURRENT.ranks(group)
        size = tensor.shape[0] // len(ranks)
        begin = ranks.index(CURRENT.rank) * size
        return self.all_reduce(tensor, "sum", group)[begin : begin + size].contiguous()

    def all_reduce(self, tensor: Any, op: str, group: str | None) -> Any:
        found = tensor.contiguous().copy()
        if len(CURRENT.ranks(group)) > 1:
            _ALL_REDUCE(found, op=op, group=group)
        return found

    def all_to_all(self, tensor: Any, received: list[int], sent: list[int], group: str) -> Any:
        """Every rank gathers what all send, padded to one length, and takes its parts."""
        counts = [one.asnumpy().astype(int) for one in _gathered(Tensor(np.array(sent, np.float32)), group)]
        longest = max(int(row.sum()) for row in counts)
        mine = np.zeros(longest, np.float32)
        flat = tensor.asnumpy().reshape(-1)
        mine[: flat.size] = flat
        parts = [one.asnumpy() for one in _gathered(Tensor(mine), group)]
        place = CURRENT.ranks(group).index(CURRENT.rank)
        taken = [
            part[int(row[:place].sum()) : int(row[: place + 1].sum())] for part, row in zip(parts, counts, strict=True)
        ]
        found = np.concatenate(taken)
        assert found.size == sum(received), (found.size, received)
        return Tensor(found, tensor.dtype)


def summed(tensor: Any, ranks: tuple[int, ...]) -> Any:
    """The sum of a gradient over `ranks`."""
    if len(ranks) == 1:
        return tensor
    return Processes().all_reduce(tensor, "sum", group_of(ranks))


def group_of(ranks: tuple[int, ...]) -> str:
    """The group of `ranks`, made where it is not known yet."""
    from ms_symtensor.bridge.pynative.stand_in.meshes import DeviceMesh

    return DeviceMesh(list(ranks), ("ranks",)).get_group()


def _gathered(tensor: Any, group: str) -> list[Any]:
    ranks = CURRENT.ranks(group)
    if len(ranks) == 1:
        return [tensor]
    found = [mint.zeros(tuple(tensor.shape), dtype=tensor.dtype) for _ in ranks]
    _ALL_GATHER(found, tensor, group=group)
    return found


def join() -> tuple[int, int]:
    """Join the other processes; this one's rank, and how many there are."""
    from mindspore.communication import get_group_size, get_rank, init

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device("CPU")
    init()
    return get_rank(), get_group_size()
