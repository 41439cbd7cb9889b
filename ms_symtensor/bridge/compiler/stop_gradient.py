"""StopGradient in a network. MindSpore's front end drops it from a graph that is not differentiated, so a capture would not see
where gradients end; while a capture runs, an operator that MindSpore does not know stands in its place.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STAND_IN = "SymTensorStopGradient"
"""Primitive name of the operator that stands for StopGradient in a captured graph."""


@contextmanager
def visible(cells: list[Any]) -> Iterator[None]:
    """While open, StopGradient in the code of `cells`, or of any module, survives MindSpore's front end as STAND_IN.

    It is found where code can name it: attributes of cells, and names of modules (the class, and objects of it).
    """
    from mindspore.ops import StopGradient

    stand_in = _stand_in()
    changed: list[tuple[dict[str, Any], str, Any]] = []
    spaces = [vars(module) for module in list(sys.modules.values()) if module is not None]
    for cell in cells:
        spaces += [cell.__dict__, cell.__dict__.get("_primitives", {})]
    for names in spaces:
        for name, value in list(names.items()):
            if value is StopGradient or type(value) is StopGradient:
                changed.append((names, name, value))
    try:
        for names, name, value in changed:
            names[name] = stand_in if value is StopGradient else stand_in()
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


def _stand_in() -> Any:
    from mindspore.ops import PrimitiveWithInfer, prim_attr_register

    class SymTensorStopGradient(PrimitiveWithInfer):
        """Its result is its input, as far as shapes and types tell."""

        @prim_attr_register
        def __init__(self) -> None:
            pass

        def infer_shape(self, shape: Any) -> Any:
            return shape

        def infer_dtype(self, dtype: Any) -> Any:
            return dtype

    return SymTensorStopGradient
