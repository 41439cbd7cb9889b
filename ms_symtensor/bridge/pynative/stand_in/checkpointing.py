"""Recomputation by MindSpore's own `recompute`, and what is left out of it."""

from collections.abc import Iterator
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

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Any]]:
        """Without this wrapper's own name, as hyper-parallel's has them: MindFormers' rules for sharding go by names."""
        for name, parameter in super().parameters_and_names(name_prefix, expand):
            yield ".".join(part for part in name.split(".") if part != "_checkpoint_wrapped_module"), parameter

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
    """Communication whose result is kept, so that it is noted once. A cell is refused: what it keeps is not known here."""
    if isinstance(operator, nn.Cell):
        raise InputError(
            "recompute.exclude_op of a module cannot be traced without hyper-parallel: leave it out, or install it"
        )

    def once(*args: Any, **kwargs: Any) -> Any:
        CURRENT.silent = CURRENT.phase == "recompute"
        try:
            result = operator(*args, **kwargs)
        finally:
            CURRENT.silent = False
        if CURRENT.recomputes:
            CURRENT.kept.append(result[0])
        return result

    return once


def swap_wrapper(cell: Any, policy_fn: Any = None) -> Any:
    """`cell` as it is: what it keeps lies on the host."""
    del policy_fn
    return cell


def _counted(context_fn: Any) -> Any:
    """`context_fn`, whose second context marks calls as those of a recomputation."""

    def contexts() -> tuple[Any, Any]:
        forward, recomputation = context_fn()
        return _Marked(forward, "recomputes", True), _Marked(recomputation, "phase", "recompute")

    return contexts


class _Marked:
    """A context in which the session's `field` has another value."""

    def __init__(self, inner: Any, field: str, value: Any):
        self.inner, self.field, self.value = inner, field, value
        self.before: Any = None

    def __enter__(self) -> None:
        self.before = getattr(CURRENT, self.field)
        setattr(CURRENT, self.field, self.value)
        self.inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        setattr(CURRENT, self.field, self.before)
        return self.inner.__exit__(*error)
