"""Constructors run as they will on the cluster: MindSpore tells them that it has Ascend devices, and makes their constants here.

Layers choose their operators by the device target (`nn.GRU` is one operator on Ascend and loops on a CPU), and functions of
`mint`, which constructors call for constants, have kernels on Ascend alone.
"""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ms_symtensor.bridge.compiler.ascend_registration import ASCEND
from ms_symtensor.bridge.compiler.host import import_mindspore

_PRIMITIVES = "mindspore.ops.auto_generate.gen_ops_prim", "mindspore.ops.auto_generate.pyboost_inner_prim"


@contextmanager
def as_on_ascend() -> Iterator[None]:
    """While open, `mindspore.get_context("device_target")` is "Ascend", and functions of `mint` without a kernel on this machine
    give what numpy does. On a machine with Ascend devices nothing changes.
    """
    mindspore = import_mindspore()
    if mindspore.get_context("device_target") == ASCEND:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(_target_in_python())
        stack.enter_context(_values_by_numpy())
        yield
        mindspore.runtime.synchronize()  # what MindSpore could not execute is told here at the latest


@contextmanager
def _target_in_python() -> Iterator[None]:
    """Python is told that the target is Ascend; what MindSpore executes meanwhile stays on the target that there is."""
    from mindspore.context import _Context, ms_ctx_param

    real = _Context.get_param

    def get_param(context: Any, param: Any) -> Any:
        return ASCEND if param == ms_ctx_param.device_target else real(context, param)

    with _replaced(_Context, "get_param", get_param):
        yield


@contextmanager
def _values_by_numpy() -> Iterator[None]:
    from mindspore import Tensor

    from ms_symtensor.bridge.apply.eager_values import METHODS, Eager

    functions = Eager().functions()
    modules = [importlib.import_module(name) for name in _PRIMITIVES]
    with ExitStack() as stack:
        for name, function in functions.items():
            for owner in (getattr(m, place, None) for m in modules for place in (name, f"_Pyboost{name}Prim")):
                if owner is not None and "__call__" in vars(owner):
                    stack.enter_context(_replaced(owner, "__call__", _method(function)))
        for method, name in METHODS.items():
            stack.enter_context(_replaced(Tensor, method, _bound(functions[name])))
        yield


@contextmanager
def _replaced(owner: type, name: str, value: Any) -> Iterator[None]:
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _method(function: Any) -> Any:
    return lambda _, *arguments, **named: function(*arguments, **named)


def _bound(function: Any) -> Any:
    return lambda tensor, *arguments, **named: function(tensor, *arguments, **named)
