"""Before MindSpore compiles in the search mode: what it compiles is planned, alike on all ranks, and the plan's settings are in
force.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ms_symtensor.bridge.compiler.executor import explain
from ms_symtensor.bridge.compiler.search_mode import kept
from ms_symtensor.bridge.compiler.speed_up import speed_up
from ms_symtensor.bridge.plugin.auto_parallel import set_on_auto_parallel
from ms_symtensor.bridge.plugin.facts import facts_of_request, plan_facts
from ms_symtensor.bridge.plugin.functions import cells_of, networks_of
from ms_symtensor.bridge.plugin.planning import (
    carry_out,
    forget,
    plan_of_parts,
    plan_on,
    planned_shapes,
    require_as_planned,
    shapes,
    task_of,
)
from ms_symtensor.bridge.plugin.ranks import Comparison, comparing, say_once
from ms_symtensor.bridge.plugin.training_network import (
    REMEDY,
    forward_inputs,
    forward_network,
    global_inputs,
    in_micro_batches,
    require_sums,
    set_sharded,
    trains,
)
from ms_symtensor.errors import InputError
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import context_settings


def prepare(cell: Any, arguments: Sequence[Any], wrapper: Any) -> None:
    """Plan the network in `cell` unless it is planned, see to it that all ranks have this plan, and put its settings in force."""
    from mindspore.parallel._utils import _get_device_num, _init_auto_parallel_context

    if wrapper is not None:
        _init_auto_parallel_context(wrapper)
    device_num = _get_device_num()
    if device_num == 1:
        _say_that_it_is_alone()
        return
    plan = plan_on(cell)
    if plan is None and not trains(cell):
        plan = plan_of_parts(cell)
    with comparing(not _is_compared(plan)) as ranks:
        require_sums(cell)
        if plan is not None:
            require_as_planned(cell, plan, device_num)
            _compare(plan, ranks)
        elif (network := forward_network(cell)) is not None:
            plan = _planned(network, cell, arguments, device_num, ranks)
    if plan is None:
        prepare_function(cell, wrapper)
    else:
        _put_in_force(plan, wrapper, [cell])


def _planned(network: Any, cell: Any, arguments: Sequence[Any], device_num: int, ranks: Comparison) -> Plan:
    """The plan of the forward `network` in the training `cell`, for which all ranks ask alike, and which they all find."""
    from mindspore import context

    network, micro_batch_num = in_micro_batches(network)
    stages = context.get_auto_parallel_context("pipeline_stages")
    _require_both(stages, micro_batch_num)
    inputs = forward_inputs(network, cell, arguments, device_num // stages)
    with kept():
        task = task_of(network, inputs, device_num, stages, micro_batch_num)
        ranks.require_equal(task.facts, task.origin)
        plan = carry_out(network, task)
    if plan.pipeline is not None and micro_batch_num == 1:
        forget(network)
        raise InputError(
            f"the saved plan takes {plan.micro_batch_num} micro-batches, the network the whole batch: wrap the forward"
            f" network in {plan.pipeline.wrapper}(network, {plan.micro_batch_num})"
        )
    ranks.require_equal(plan_facts(plan), task.origin)
    _compared.append(plan)
    return plan


def prepare_function(function: Any, wrapper: Any = None) -> None:
    """Put the settings of the networks that `function` calls in force; InputError if one of them is not planned."""
    from mindspore.parallel._utils import _get_device_num

    device_num = _get_device_num()
    if device_num == 1:
        _say_that_it_is_alone()
        return
    plan = None
    for network in networks_of(function):
        plan = plan_on(network)
        with comparing(not _is_compared(plan)) as ranks:
            if plan is None:
                raise InputError(
                    f"{type(network).__name__} is called in a function, and it has no plan (only training cells are planned at"
                    f" their first compile): {REMEDY}; or make the training step a cell, such as"
                    " nn.TrainOneStepCell(net, optimizer)"
                )
            require_as_planned(network, plan, device_num)
            _compare(plan, ranks)
    if plan is not None:
        _put_in_force(plan, wrapper, cells_of(function))


def _say_that_it_is_alone() -> None:
    """Once, where other processes are not known yet."""
    from mindspore.communication import GlobalComm

    if not GlobalComm.INITED:
        say_once(
            "nothing is planned on one device: in a job of several, call mindspore.communication.init() before the first step"
        )


def compare_networks(networks: Iterable[Any]) -> None:
    """See to it that all ranks have the plans that `networks` carry, which are compiled without the search mode."""
    for network in networks:
        plan = plan_on(network)
        if plan is not None and plan.device_num > 1:
            with comparing(not _is_compared(plan)) as ranks:
                _compare(plan, ranks)


def require_planned_inputs(cell: Any, arguments: Sequence[Any], error: RuntimeError) -> None:
    """InputError if MindSpore's `error` is of a planned network in `cell` whose inputs have other shapes than were planned.

    Such inputs are no mistake by themselves: the plan's cuts may divide them too.
    """
    plan, expected = plan_on(cell), planned_shapes(cell)
    if plan is None:
        return
    tensors = [one for one in arguments if hasattr(one, "shape")][: len(expected)]
    given = shapes(global_inputs(tensors, plan.device_num // plan.pipeline_stages))
    if any(one != other for one, other in zip(given, expected, strict=False)):
        raise InputError(
            f"inputs of {_listed(given)} do not fit the plan, which was made for {_listed(expected)}: leave out the rest of a"
            " dataset that fills no batch (drop_remainder=True), fill it up, or plan a network of its own for it"
            f" (MindSpore: {explain(error)})"
        ) from error


def _listed(found: Sequence[Sequence[int]]) -> str:
    shown = ", ".join(str(list(shape)) for shape in found[:_SHOWN])
    return shown + (f" and {len(found) - _SHOWN} others" if len(found) > _SHOWN else "")


_SHOWN = 3
_compared: list[Plan] = []
"""Plans that all ranks have."""


def _is_compared(plan: Plan | None) -> bool:
    return any(one is plan for one in _compared)


def _compare(plan: Plan, ranks: Comparison) -> None:
    """InputError unless all ranks have `plan`, which a network carried before the compile; asked once."""
    if not _is_compared(plan):
        ranks.require_equal(facts_of_request(plan), _CARRIED)
        ranks.require_equal(plan_facts(plan), _CARRIED)
        _compared.append(plan)


_CARRIED = "planned before the compile"


def _require_both(stages: int, micro_batch_num: int) -> None:
    """InputError if the user chose pipeline stages without micro-batches."""
    if stages > 1 >= micro_batch_num:
        raise InputError(
            f"{stages} pipeline stages and {micro_batch_num} micro-batches: for a pipeline, set pipeline_stages in the context"
            " (AutoParallel: pipeline(stages=…)) and wrap the forward network in PipelineCell"
        )


def _put_in_force(plan: Plan, wrapper: Any, cells: Iterable[Any]) -> None:
    """Have the settings of `plan` hold for the compile of `cells`."""
    from mindspore import context
    from mindspore.parallel._utils import _init_auto_parallel_context

    settings = context_settings(plan.settings, plan.pipeline)
    del settings["dataset_strategy"]  # how the data arrive is the user's affair
    speed_up(plan.overlap)
    for cell in cells:
        set_sharded(cell, settings["enable_parallel_optimizer"])
    if wrapper is None:
        # device_num again: MindSpore decides along with it whether it may compile without a cluster
        context.set_auto_parallel_context(device_num=plan.device_num, **settings)
        return
    set_on_auto_parallel(wrapper, settings)
    _init_auto_parallel_context(wrapper)
