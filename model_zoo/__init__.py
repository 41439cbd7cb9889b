"""Networks to plan for, by name. Importing this does not import MindSpore; calling a factory does."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from model_zoo.dimensions import PUBLISHED, dimensions_of


def _build(name: str, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    from model_zoo.network import build

    return build(dimensions_of(name, **options))


#: name -> factory(**options of dimensions_of) -> (cell, inputs)
FACTORIES: Mapping[str, Callable[..., tuple[Any, tuple[Any, ...]]]] = MappingProxyType(
    {name: partial(_build, name) for name in PUBLISHED}
)

__all__ = ["FACTORIES", "PUBLISHED", "dimensions_of"]
