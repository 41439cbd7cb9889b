"""The networks that a function calls: MindSpore compiles functions too (`@jit`, `value_and_grad`), which own no cells."""

import inspect
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_NONE: frozenset[str] = frozenset()


def networks_of(function: Any) -> list[Any]:
    """The cells with weights that `function` calls: of `cells_of` all but MindSpore's that add gradients of micro-batches up."""
    return [cell for cell in cells_of(function) if type(cell).__name__ != "PipelineGradReducer"]


def cells_of(function: Any) -> list[Any]:
    """The cells with trainable parameters, no optimizers, that `function` refers to, itself or in what it calls: in closures, in
    globals, and in attributes that its code names. It may be a method, or a cell without parameters.
    """
    from mindspore import Tensor
    from mindspore.nn import Cell, Optimizer

    found: dict[int, Any] = {}
    pending: list[tuple[Any, frozenset[str]]] = [(function, _NONE)]
    seen: dict[tuple[int, frozenset[str]], Any] = {}
    while pending:
        value, names = pending.pop()
        if (id(value), names) in seen or isinstance(value, Tensor | Optimizer | type):
            continue
        seen[id(value), names] = value  # kept, so that no other object gets its id
        if isinstance(value, Cell):
            if id(value) not in found and value.trainable_params():
                found[id(value)] = value
            if id(value) not in found:
                pending.extend(_attributes(value, names | {"construct"}, {**value.__dict__, **value._cells}))
        else:
            pending.extend(_referred(value, names))
    return list(found.values())


def _referred(value: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """What `value` refers to, each with the attributes that are asked of it; `names`: those that are asked of `value`."""
    if isinstance(value, FunctionType):
        own = frozenset(_names(value.__code__))
        yield from ((cell.cell_contents, own) for cell in value.__closure__ or () if _is_assigned(cell))
        if not _is_mindspores(value.__module__):
            yield from ((value.__globals__[name], own) for name in own if name in value.__globals__)
    elif isinstance(value, MethodType):
        yield value.__func__, _NONE
        yield value.__self__, frozenset(_names(inspect.unwrap(value.__func__).__code__))
    elif isinstance(value, partial):
        yield from ((part, names) for part in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, tuple | list):
        yield from ((one, names) for one in value)
    elif isinstance(value, dict):
        yield from ((one, names) for one in value.values())
    elif isinstance(value, ModuleType):
        if not _is_mindspores(value.__name__):
            yield from ((value.__dict__[name], names) for name in names if name in value.__dict__)
    elif not _is_mindspores(type(value).__module__):  # GradOperation remembers what it was given last, by anyone
        yield from _attributes(value, names | {"__call__"}, getattr(value, "__dict__", {}))


def _attributes(value: Any, names: frozenset[str], own: dict[str, Any]) -> Iterator[tuple[Any, frozenset[str]]]:
    """The attributes of an object called `names`: its `own` ones, and methods."""
    for name in names:
        member = own[name] if name in own else inspect.getattr_static(type(value), name, None)
        if name in own:
            yield member, names
        elif isinstance(member, FunctionType):
            yield MethodType(member, value), _NONE


def _names(code: CodeType) -> Iterator[str]:
    """What `code`, and the functions defined in it, call by name: globals and attributes."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_assigned(variable: Any) -> bool:
    """Whether a variable of a closure has a value yet."""
    try:
        return variable.cell_contents is not variable
    except ValueError:
        return False


def _is_mindspores(module: str | None) -> bool:
    return f"{module}.".startswith("mindspore.")
