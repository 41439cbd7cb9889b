"""What a trace on the `meta` device does otherwise than MindFormers: values that are read on the host are assumed.

Three things: the counts of tokens that each expert gets, which MindFormers reads to split its all-to-alls, are taken as equal;
and `tensor[index]` and `tensor[index] = values` are functions with a gradient, for MindSpore's own ways copy to the host;
and stages do not tell each other which of them hold the embedding.
"""

from typing import Any

from mindspore import Tensor, mint, ops
from mindspore.common._grad_function import _Function


def install() -> None:
    """Put these in their places; MindFormers is imported."""
    from mindformers.pynative.base_models.gpt import parallelize
    from mindformers.pynative.distributed.expert_parallel import ExpertParallel

    ExpertParallel._dispatch_comm = _noting_rows(ExpertParallel._dispatch_comm)
    ExpertParallel._dispatch_a2a = _noting_rows(ExpertParallel._dispatch_a2a)
    ExpertParallel._host_token_splits = _even_splits
    ExpertParallel._finish_async_d2h = lambda self, _copy, _event, experts, degree: _even(self, experts, degree)
    ExpertParallel._issue_async_d2h = lambda *_: (None, None)
    parallelize._setup_mtp_embedding_grad_sync = lambda *_: None
    original = Tensor.__setitem__
    add_detach()

    def assign(self: Any, index: Any, value: Any) -> Any:
        if not isinstance(index, Tensor):
            return original(self, index, value)
        self.assign_value(_Placed.apply(self, index, value))
        return self

    read = Tensor.__getitem__

    def chosen(self: Any, index: Any) -> Any:
        rows = isinstance(index, Tensor) and index.ndim == 1 and "Int" in str(index.dtype)
        return mint.index_select(self, 0, index) if rows else read(self, index)

    Tensor.__setitem__, Tensor.__getitem__ = assign, chosen


def add_detach() -> None:
    """`Tensor.detach`, which MindSpore 2.11 has."""
    if not hasattr(Tensor, "detach"):
        Tensor.detach = lambda self: ops.stop_gradient(self)


class _Placed(_Function):
    """`tensor[index] = values` as a function: its gradient reads the rows of `index`."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, index: Any, values: Any) -> Any:
        ctx.save_for_backward(index)
        return tensor * 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (index,) = ctx.saved_tensors
        return gradient, None, gradient[index]


def _noting_rows(method: Any) -> Any:
    def dispatch(self: Any, flat: Any, *args: Any, **kwargs: Any) -> Any:
        cell = kwargs["cell"]
        self.routed_rows = int(flat.size) // cell.hidden_size
        return method(self, flat, *args, **kwargs)

    return dispatch


def _even_splits(self: Any, counts: Any, grouped: Any, degree: int) -> Any:
    del grouped
    return _even(self, counts.shape[-1], degree)


def _even(self: Any, experts: int, degree: int) -> Any:
    """Rows sent to and received from each rank, and rows per pair of source and expert. The last takes what is left over."""
    per = self.routed_rows // experts
    counts = [per] * (experts - 1) + [self.routed_rows - per * (experts - 1)]
    local = experts // degree
    sent = [sum(counts[rank * local : (rank + 1) * local]) for rank in range(degree)]
    total = self.routed_rows
    received = [total // degree] * (degree - 1) + [total - total // degree * (degree - 1)]
    grouped = []
    for rows in received:
        grouped += [rows // local] * (local - 1) + [rows - rows // local * (local - 1)]
    return sent, received, grouped
