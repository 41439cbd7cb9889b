"""MindSpore's communication functions, recorded: each has the gradient that MindSpore gives it.

What a call answers comes from a transport: `Described` answers tensors of the right shape; the processes of a proof communicate.
"""

from typing import Any, Protocol

import mindspore
import mindspore.mint.distributed as distributed
from mindspore import mint
from mindspore.common._grad_function import _Function
from mindspore.ops import communication

from ms_symtensor.bridge.pynative.session import CURRENT, MINDFORMERS


class Transport(Protocol):
    """What the functions below answer."""

    def all_gather(self, tensor: Any, group: str) -> Any: ...
    def reduce_scatter(self, tensor: Any, group: str) -> Any: ...
    def all_reduce(self, tensor: Any, op: str, group: str | None) -> Any: ...
    def all_to_all(self, tensor: Any, received: list[int], sent: list[int], group: str) -> Any: ...


class Described:
    """No other rank: tensors of the right shape, on the `meta` device."""

    def all_gather(self, tensor: Any, group: str) -> Any:
        return mint.cat([tensor] * len(CURRENT.ranks(group)), dim=0)

    def reduce_scatter(self, tensor: Any, group: str) -> Any:
        return tensor[: tensor.shape[0] // len(CURRENT.ranks(group))]

    def all_reduce(self, tensor: Any, op: str, group: str | None) -> Any:
        return tensor * 1

    def all_to_all(self, tensor: Any, received: list[int], sent: list[int], group: str) -> Any:
        with mindspore.DeviceCtx("meta"):
            return mint.empty((sum(received),), dtype=tensor.dtype)


_TRANSPORT: list[Transport] = [Described()]


def use(transport: Transport) -> None:
    """Have the functions below communicate by `transport`."""
    _TRANSPORT[0] = transport


def gathered(tensor: Any, group: str, by: str) -> Any:
    """All-gather along the first dim."""
    CURRENT.record("all_gather", tensor, CURRENT.ranks(group), by)
    return _TRANSPORT[0].all_gather(tensor, group)


def scattered(tensor: Any, group: str, by: str) -> Any:
    """Sum over the ranks, of which each keeps its part along the first dim. ValueError if that does not divide."""
    ranks = CURRENT.ranks(group)
    if tensor.shape[0] % len(ranks):
        raise ValueError(
            f"ReduceScatter: the first dim of {tuple(tensor.shape)} does not divide by {len(ranks)} ranks."
        )
    CURRENT.record("reduce_scatter", tensor, ranks, by)
    return _TRANSPORT[0].reduce_scatter(tensor, group)


def reduced(tensor: Any, op: str, group: str | None, by: str = MINDFORMERS) -> Any:
    """All-reduce: the result, the input as it was."""
    CURRENT.record("all_reduce", tensor, CURRENT.ranks(group), by)
    return _TRANSPORT[0].all_reduce(tensor, op, group)


def exchanged(tensor: Any, received: list[int], sent: list[int], group: str, by: str) -> Any:
    """All-to-all of a flat tensor by counts of elements."""
    CURRENT.record("all_to_all", tensor, CURRENT.ranks(group), by)
    return _TRANSPORT[0].all_to_all(tensor, received, sent, group)


class Gather(_Function):
    """All-gather, whose gradient is a reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: str, by: str) -> Any:
        ctx.group, ctx.by = group, by
        return gathered(tensor.contiguous(), group, by)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return scattered(gradient.contiguous(), ctx.group, ctx.by), None, None


class Scatter(_Function):
    """Reduce-scatter, whose gradient is an all-gather."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: str, by: str) -> Any:
        ctx.group, ctx.by = group, by
        return scattered(tensor, group, by)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gathered(gradient.contiguous(), ctx.group, ctx.by), None, None


class Reduce(_Function):
    """All-reduce, whose gradient is one too."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, group: str | None) -> Any:
        ctx.group = group
        return reduced(tensor, "sum", group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return reduced(gradient.contiguous(), "sum", ctx.group), None


class Exchange(_Function):
    """All-to-all, whose gradient goes back the same way."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, received: list[int], sent: list[int], group: str, by: str) -> Any:
        ctx.way = (received, sent, group, by)
        return exchanged(tensor, received, sent, group, by)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        received, sent, group, by = ctx.way
        return exchanged(gradient.contiguous(), sent, received, group, by), None, None, None, None


def _all_gather_into_tensor(output: Any, tensor: Any, group: Any = None, async_op: bool = False, **_: Any) -> Any:
    return Gather.apply(tensor, group, MINDFORMERS), None


def _reduce_scatter_tensor(output: Any, tensor: Any, op: Any = None, group: Any = None, **_: Any) -> Any:
    return Scatter.apply(tensor, group, MINDFORMERS), None


def _all_reduce(tensor: Any, op: str = "sum", group: Any = None, async_op: bool = False) -> Any:
    return reduced(tensor, op, group), None


def _all_reduce_in_place(tensor: Any, op: str = "sum", group: Any = None, async_op: bool = False) -> None:
    tensor.copy_(reduced(tensor, op, group))


def _all_to_all_single(
    output: Any = None,
    input: Any = None,  # MindSpore's name of it
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    return Exchange.apply(input, output_split_sizes, input_split_sizes, group, MINDFORMERS), None


def _all_to_all(output_tensor_list: Any = None, input_tensor_list: Any = None, group: Any = None, **_: Any) -> Any:
    flat = mint.cat([tensor.reshape(-1) for tensor in input_tensor_list], dim=0)
    counts = [int(tensor.size) for tensor in output_tensor_list]
    sent = [int(tensor.size) for tensor in input_tensor_list]
    back = exchanged(flat, counts, sent, group, MINDFORMERS)
    parts, begin = [], 0
    for count, like in zip(counts, output_tensor_list, strict=True):
        parts.append(back[begin : begin + count].reshape(like.shape))
        begin += count
    return parts, None


def install() -> None:
    """Put the functions of this file in the place of MindSpore's. Before MindFormers is imported: it keeps references."""
    communication.all_gather_into_tensor = _all_gather_into_tensor
    communication.reduce_scatter_tensor = _reduce_scatter_tensor
    communication.all_reduce = _all_reduce
    communication.all_to_all_single = _all_to_all_single
    communication.all_to_all = _all_to_all
    communication.set_comm_ops_inplace = lambda *_: None
    distributed.all_reduce = _all_reduce_in_place
    distributed.get_rank = lambda *_, **__: CURRENT.rank
    distributed.get_world_size = lambda *_, **__: CURRENT.world_size
    distributed.init_process_group = lambda *_, **__: None
