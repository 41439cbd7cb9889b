"""Recomputation by MindSpore's own `recompute`, and what is left out of it."""

from typing import Any

import mindspore
from mindspore import nn

from ms_symtensor.bridge.pynative.session import CURRENT
from ms_symtensor.errors import InputError


class CheckpointPolicy:
    """What a policy answers for a tensor."""

    MUST_SAVE, MUST_RECOMPUTE, MUST_SWAP = "save", "recompute", "swap"


class SwapManager:
    """Activations on the host: their copies are no collective, so there is nothing to note."""

    def set_forward_prefetch_layer(self, layer: Any, fetched: Any) -> None:
        del layer, fetched


class _Recomputed(nn.Cell):
    """A cell whose forward runs once more before its gradient."""

    def __init__(self, cell: Any, **options: Any):
        super().__init__(auto_prefix=False)
        self._checkpoint_wrapped_module = cell
        self._options = options

    def __getattr__(self, name: str) -> Any:
        inner = self.__dict__.get("_cells", {}).get("_checkpoint_wrapped_module")
        if inner is None or name in self.__dict__["_cells"]:
            return super().__getattr__(name)
        return getattr(inner, name)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        return mindspore.recompute(
            self._checkpoint_wrapped_module, *args, use_reentrant=False, **self._options, **kwargs
        )


def checkpoint_wrapper(cell: Any, context_fn: Any = None, early_stop: bool = True, **options: Any) -> Any:
    """`cell`, recomputed. A function that is no cell stays as it is, which is refused."""
    if not isinstance(cell, nn.Cell):
        raise InputError(
            "recompute_comm of a function cannot be traced without hyper-parallel: leave it out, or install it"
        )
    return _Recomputed(cell, context_fn=_counted(context_fn), early_stop=early_stop, **options)


def checkpoint_exclude_wrapper(operator: Any) -> Any:
    """An operator whose output is kept: refused, for its calls cannot be told from recomputed ones here."""
    raise InputError("recompute.exclude_op cannot be traced without hyper-parallel: leave it out, or install it")


def swap_wrapper(cell: Any, policy_fn: Any = None) -> Any:
    """`cell` as it is: what it keeps lies on the host."""
    del policy_fn
    return cell


def _counted(context_fn: Any) -> Any:
    """`context_fn`, whose second context marks calls as those of a recomputation."""

    def contexts() -> tuple[Any, Any]:
        forward, again = context_fn()
        return forward, _Recomputing(again)

    return contexts


class _Recomputing:
    def __init__(self, inner: Any):
        self.inner = inner
        self.phase = ""

    def __enter__(self) -> None:
        self.phase, CURRENT.phase = CURRENT.phase, "recompute"
        self.inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        CURRENT.phase = self.phase
        return self.inner.__exit__(*error)
