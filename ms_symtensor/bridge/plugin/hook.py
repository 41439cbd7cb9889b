"""The plugin: MindSpore accepts `search_mode="symtensor"` and `AutoParallel(net, parallel_mode="symtensor")`.

At the first compile of a training cell its forward network is planned, the strategies are set, and the compile goes on
in semi-automatic mode. A function (`@jit`, `value_and_grad`) goes on with the plan of the networks that it calls, which must
have one (`plan_network`). The plan depends on the network and the options alone, so every rank finds the same one: they
compare, and so they do where a plan was put onto a network without the search mode.
`install` does not import MindSpore: it waits for the import, or changes MindSpore at once where it is imported already. Nor is
what plans imported before something is to be planned: every `import ms_symtensor` comes here.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MethodType, ModuleType
from typing import Any

from ms_symtensor.bridge.compiler.search_mode import NAME, request
from ms_symtensor.bridge.plugin.auto_parallel import is_auto_parallel
from ms_symtensor.errors import SymTensorError

_FRAMEWORK = "mindspore"
_OURS = "_symtensor_mode"  # on an AutoParallel cell made with parallel_mode="symtensor", and on what is patched


def install() -> None:
    """Make MindSpore know the search mode, now or when it is imported. Calling it again changes nothing."""
    module = sys.modules.get(_FRAMEWORK)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _patch_or_warn()
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds MindSpore as the other finders do, and has it patched once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _FRAMEWORK:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target))), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _patch_or_warn()

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def _patch_or_warn() -> None:
    """A MindSpore that is built otherwise is still usable, only without the search mode."""
    try:
        _patch()
    except (ImportError, AttributeError, KeyError, SymTensorError) as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f'ms_symtensor: no search_mode="{NAME}" in this MindSpore ({reason})', stacklevel=2)


def _patch() -> None:
    from mindspore.parallel import _auto_parallel_context as parallel
    from mindspore.parallel.auto_parallel import AutoParallel

    from ms_symtensor.bridge.compiler.host import cell_graph_executor

    executor = type(cell_graph_executor())
    functions = sys.modules[executor.__module__]._JitExecutor
    if hasattr(executor.compile, _OURS):
        return
    setters, getters = parallel._set_auto_parallel_context_func_map, parallel._get_auto_parallel_context_func_map
    context = type(parallel.auto_parallel_context())
    setter, getter = _search_mode_setter(setters["search_mode"]), _search_mode_getter(getters["search_mode"])
    reset, compile_cell = _reset(context.reset), _compile(executor.compile)
    compile_function = _compile_function(functions.compile)
    setattr(compile_cell, _OURS, True)
    setters["search_mode"], getters["search_mode"] = setter, getter
    AutoParallel.__init__ = _auto_parallel_init(AutoParallel.__init__)
    context.reset, executor.compile, functions.compile = reset, compile_cell, compile_function


def _search_mode_setter(original: Any) -> Any:
    @functools.wraps(original)
    def set_search_mode(search_mode: str) -> None:
        request.active = search_mode == NAME
        if not request.active:
            original(search_mode)

    return set_search_mode


def _search_mode_getter(original: Any) -> Any:
    @functools.wraps(original)
    def get_search_mode() -> str:
        return NAME if request.active else original()

    return get_search_mode


def _reset(original: Any) -> Any:
    @functools.wraps(original)
    def reset(self: Any) -> None:
        request.active = False
        original(self)

    return reset


def _auto_parallel_init(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, network: Any, parallel_mode: str = "semi_auto") -> None:
        original(self, network, "semi_auto" if parallel_mode == NAME else parallel_mode)
        if parallel_mode == NAME:
            self.__dict__[_OURS] = True

    return __init__


def _compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile_cell(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(obj, "cells_and_names"):  # it may be a function, too
            with _prepared(obj, args):
                return original(self, obj, *args, **kwargs)
        return original(self, obj, *args, **kwargs)

    return compile_cell


def _compile_function(original: Any) -> Any:
    @functools.wraps(original)
    def compile_function(self: Any, method_name: str, *args: Any, **kwargs: Any) -> Any:
        from mindspore.nn import Cell, Optimizer

        if isinstance(self.obj, Cell) and method_name == "construct":
            if not isinstance(self.obj, Optimizer):
                with _prepared(self.obj, args):
                    return original(self, method_name, *args, **kwargs)
        elif request.active and _is_automatic():
            from ms_symtensor.bridge.plugin.prepare import prepare_function

            prepare_function(self.fn if self.obj is None else MethodType(self.fn, self.obj))
        elif request.planned and not request.capturing and _is_automatic():
            from ms_symtensor.bridge.plugin.functions import networks_of
            from ms_symtensor.bridge.plugin.prepare import compare_networks

            compare_networks(networks_of(self.fn if self.obj is None else MethodType(self.fn, self.obj)))
        return original(self, method_name, *args, **kwargs)

    return compile_function


@contextmanager
def _prepared(cell: Any, arguments: Sequence[Any]) -> Iterator[None]:
    """Around the compile of `cell`, which is planned first if that is asked for. What MindSpore rejects in here is told in one
    line where `cell` was planned for inputs of other shapes.
    """
    _prepare_if_asked(cell, arguments)
    from ms_symtensor.bridge.apply.whole_count import count_over_whole_batches

    count_over_whole_batches(cell)
    try:
        yield
    except RuntimeError as error:
        if request.planned and not request.capturing:
            from ms_symtensor.bridge.plugin.prepare import require_planned_inputs

            require_planned_inputs(cell, arguments, error)
        raise


def _prepare_if_asked(cell: Any, arguments: Sequence[Any]) -> None:
    if request.capturing:
        return
    wrapper = next((c for _, c in cell.cells_and_names() if is_auto_parallel(c) and _OURS in c.__dict__), None)
    if wrapper is not None or (request.active and _is_automatic()):
        from ms_symtensor.bridge.plugin.prepare import prepare

        prepare(cell, arguments, wrapper)
    elif request.planned and (_is_automatic() or any(is_auto_parallel(c) for _, c in cell.cells_and_names())):
        from ms_symtensor.bridge.plugin.prepare import compare_networks

        compare_networks([cell])
    elif request.active:
        _say_that_it_does_not_count(cell)


def _say_that_it_does_not_count(cell: Any) -> None:
    """Once, where the search mode is set for a training step, and the parallel mode is one without a search."""
    from mindspore import context

    from ms_symtensor.bridge.plugin.training_network import trains
    from ms_symtensor.streams import notice

    if not request.said and trains(cell):
        request.said = True
        mode = context.get_auto_parallel_context("parallel_mode")
        notice(
            f'nothing is planned in parallel_mode="{mode}": search_mode="{NAME}" counts in parallel_mode="auto_parallel"'
        )


def _is_automatic() -> bool:
    """Whether the mode is one in which a search mode counts, or the one that follows a search."""
    from mindspore import context

    return context.get_auto_parallel_context("parallel_mode") in ("auto_parallel", "semi_auto_parallel")
