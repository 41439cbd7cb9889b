"""`import hyper_parallel` finds the package where it is installed, or this stand-in."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

from ms_symtensor.errors import InputError

NAME = "hyper_parallel"


def install() -> bool:
    """Have `import hyper_parallel` work; whether it is the stand-in that is found."""
    if importlib.util.find_spec(NAME) is not None:
        return False
    sys.meta_path.insert(0, _Finder())
    return True


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes any module of the package: each has the names that are known, and refuses others when they are used."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname == NAME or fullname.startswith(f"{NAME}."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = _known()
        if name in known:
            return known[name]
        return _missing_class(name) if name[:1].isupper() else _missing_function(name)


def _known() -> dict[str, Any]:
    from ms_symtensor.bridge.pynative.stand_in import checkpointing, context, meshes, pipeline, placements, sharding

    rooms = (checkpointing, context, meshes, pipeline, placements, sharding)
    found = {name: value for room in rooms for name, value in vars(room).items() if not name.startswith("_")}
    return found | {"get_platform": _platform, "enable_mindspore_backward_compat": lambda: None}


def _platform() -> SimpleNamespace:
    from ms_symtensor.bridge.pynative.collectives import Reduce

    def all_reduce(tensor: Any, op: str, group: str) -> Any:
        if op != "sum":
            raise InputError(_refusal(f"differentiable_all_reduce of {op}"))
        return Reduce.apply(tensor, group)

    return SimpleNamespace(platform_type="MINDSPORE", Module=object, differentiable_all_reduce=all_reduce)


def _refusal(name: str) -> str:
    return f"what uses hyper-parallel's {name} cannot be traced without it: leave that out, or install hyper-parallel"


def _missing_class(name: str) -> type:
    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise InputError(_refusal(name))

    return type(name, (), {"__init__": refuse})


def _missing_function(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InputError(_refusal(name))

    return refuse
