"""The plugin: MindSpore accepts `search_mode="symtensor"` and `AutoParallel(net, parallel_mode="symtensor")`.

At the first compile of a training cell its forward network is planned, the strategies are set, and the compile goes on
in semi-automatic mode. A function (`@jit`, `value_and_grad`) goes on with the plan of the networks that it calls, which must
have one (`plan_network`). The plan depends on the network and the options alone, so every rank finds the same one.
`install` does not import MindSpore: it waits for the import, or changes MindSpore at once where it is imported already.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import MethodType, ModuleType
from typing import Any

from ms_symtensor.bridge.compiler.search_mode import NAME, kept, request
from ms_symtensor.bridge.plugin.functions import networks_of
from ms_symtensor.bridge.plugin.planning import forget, plan_network, plan_on
from ms_symtensor.bridge.plugin.training_network import (
    REMEDY,
    forward_inputs,
    forward_network,
    in_micro_batches,
    is_auto_parallel,
)
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import context_settings

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
            _prepare_if_asked(obj, args)
        return original(self, obj, *args, **kwargs)

    return compile_cell


def _compile_function(original: Any) -> Any:
    @functools.wraps(original)
    def compile_function(self: Any, method_name: str, *args: Any, **kwargs: Any) -> Any:
        from mindspore.nn import Cell, Optimizer

        if isinstance(self.obj, Cell) and method_name == "construct":
            if not isinstance(self.obj, Optimizer):
                _prepare_if_asked(self.obj, args)
        elif request.active and _is_automatic():
            _prepare_function(self.fn if self.obj is None else MethodType(self.fn, self.obj))
        return original(self, method_name, *args, **kwargs)

    return compile_function


def _prepare_if_asked(cell: Any, arguments: Sequence[Any]) -> None:
    wrapper = next((c for _, c in cell.cells_and_names() if is_auto_parallel(c) and _OURS in c.__dict__), None)
    if wrapper is not None or (request.active and _is_automatic()):
        _prepare(cell, arguments, wrapper)


def _is_automatic() -> bool:
    """Whether the mode is one in which a search mode counts, or the one that follows a search."""
    from mindspore import context

    return context.get_auto_parallel_context("parallel_mode") in ("auto_parallel", "semi_auto_parallel")


def _prepare(cell: Any, arguments: Sequence[Any], wrapper: Any) -> None:
    """Plan the network in `cell` unless it is planned, and put its settings in force."""
    from mindspore import context
    from mindspore.parallel._utils import _get_device_num, _init_auto_parallel_context

    if wrapper is not None:
        _init_auto_parallel_context(wrapper)
    device_num = _get_device_num()
    if device_num == 1:
        return
    plan = plan_on(cell)
    if plan is None:
        network = forward_network(cell)
        if network is None:
            _prepare_function(cell, wrapper)
            return
        network, micro_batch_num = in_micro_batches(network)
        stages = context.get_auto_parallel_context("pipeline_stages")
        _require_both(stages, micro_batch_num)
        inputs = forward_inputs(network, cell, arguments, device_num // stages)
        with kept():
            plan = plan_network(
                network, *inputs, device_num=device_num, pipeline_stages=stages, micro_batch_num=micro_batch_num
            )
        if plan.pipeline is not None and micro_batch_num == 1:
            forget(network)
            raise InputError(
                f"the saved plan takes {plan.micro_batch_num} micro-batches, the network the whole batch: wrap the forward"
                f" network in {plan.pipeline.wrapper}(network, {plan.micro_batch_num})"
            )
    _put_in_force(plan, wrapper)


def _prepare_function(function: Any, wrapper: Any = None) -> None:
    """Put the settings of the networks that `function` calls in force; InputError if one of them is not planned."""
    from mindspore.parallel._utils import _get_device_num

    if _get_device_num() == 1:
        return
    plan = None
    for network in networks_of(function):
        plan = plan_on(network)
        if plan is None:
            raise InputError(
                f"{type(network).__name__} is called in a function, and it has no plan (only training cells are planned at their"
                f" first compile): {REMEDY}; or make the training step a cell, such as nn.TrainOneStepCell(net, optimizer)"
            )
    if plan is not None:
        _put_in_force(plan, wrapper)


def _require_both(stages: int, micro_batch_num: int) -> None:
    """InputError if the user chose pipeline stages without micro-batches."""
    if stages > 1 >= micro_batch_num:
        raise InputError(
            f"{stages} pipeline stages and {micro_batch_num} micro-batches: for a pipeline, set pipeline_stages in the context"
            " (AutoParallel: pipeline(stages=…)) and wrap the forward network in PipelineCell"
        )


def _put_in_force(plan: Plan, wrapper: Any) -> None:
    from mindspore import context
    from mindspore.parallel._utils import _init_auto_parallel_context

    settings = context_settings(plan.settings, plan.pipeline)
    del settings["dataset_strategy"]  # how the data arrive is the user's affair
    if wrapper is None:
        # device_num again: MindSpore decides along with it whether it may compile without a cluster
        context.set_auto_parallel_context(device_num=plan.device_num, **settings)
        return
    set_on_auto_parallel(wrapper, settings)
    _init_auto_parallel_context(wrapper)


def set_on_auto_parallel(wrapper: Any, settings: dict[str, Any]) -> None:
    """The settings of a plan (`context_settings`) on an `AutoParallel` cell, in place of the user's."""
    wrapper._enable_alltoall = settings["enable_alltoall"]  # there is no interface for these two
    wrapper._gradient_fp32_sync = settings["gradient_fp32_sync"]
    optimizer = settings.get("parallel_optimizer_config")
    if optimizer is None:
        wrapper._enable_parallel_optimizer = False
    else:
        wrapper.hsdp(
            optimizer["optimizer_weight_shard_size"],
            optimizer["parallel_optimizer_threshold"],
            optimizer["optimizer_level"],
        )
