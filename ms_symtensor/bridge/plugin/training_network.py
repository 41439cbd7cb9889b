"""In a training cell: the forward network with its loss, and the global shapes of its inputs."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from ms_symtensor.bridge.capture.given import MICRO_BATCHES
from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED
from ms_symtensor.bridge.plugin.auto_parallel import is_auto_parallel
from ms_symtensor.errors import InputError

REMEDY = (
    "plan the forward network (with its loss) before the first step: ms_symtensor.plan_network(net, *inputs), inputs of"
    " global shape"
)


def forward_network(cell: Any) -> Any:
    """The forward network in `cell`: what the cell in it that owns an optimizer or a gradient differentiates.

    None if `cell` has no trainable parameter, so that there is nothing to plan. InputError, with what to do, if there
    is a parameter but no training step, or if a training cell has several networks.
    """
    step = cell
    while not _differentiates(step):
        children = _networks(step)
        inner = getattr(step, "network", None)
        if _is_cell(inner):
            step = inner
        elif len(children) == 1:
            step = children[0]
        elif not any(True for p in cell.get_parameters() if p.requires_grad):
            return None
        else:
            raise InputError(
                f"no training step is found in {type(cell).__name__} (no optimizer, no gradient): {REMEDY}"
            )
    named = getattr(step, "network", None)
    candidates: list[Any] = [named] if _is_cell(named) else _networks(step)
    if len(candidates) != 1:
        raise InputError(
            f"{type(step).__name__} trains, but it has {len(candidates)} networks and none is called 'network':"
            f" {REMEDY}"
        )
    network = candidates[0]
    while is_auto_parallel(network):
        network = network.network
    return network


def trains(cell: Any) -> bool:
    """Whether a cell in `cell` owns an optimizer or a gradient."""
    return any(_differentiates(part) for _, part in cell.cells_and_names())


def in_micro_batches(network: Any) -> tuple[Any, int]:
    """The network inside of a cell of MindSpore's that cuts a batch (`PipelineCell`, `GradAccumulationCell`), and its
    micro-batches; itself and 1 without one.
    """
    if type(network).__name__ in MICRO_BATCHES:
        return network.network, network.micro_size
    return network, 1


def set_sharded(cell: Any, sharded: bool) -> None:
    """Tell MindSpore's cells in `cell` that add gradients of micro-batches up whether the optimizer is `sharded`: they asked the
    context when they were built, before there was a plan.
    """
    for _, part in cell.cells_and_names():
        if "opt_shard" in part.__dict__:
            part.opt_shard = sharded


def require_sums(cell: Any) -> None:
    """InputError if `cell` trains in micro-batches, but has no parameters in which MindSpore adds their gradients up."""
    number = max((in_micro_batches(part)[1] for _, part in cell.cells_and_names()), default=1)
    if number > 1 and trains(cell) and not any(p.name.startswith(f"{ACCUMULATED}.") for p in cell.get_parameters()):
        raise InputError(
            f"{type(cell).__name__} does not add up the gradients of {number} micro-batches: train with"
            " mindspore.train.Model(network, optimizer=…), whose step does"
        )


def forward_inputs(network: Any, cell: Any, arguments: Sequence[Any], device_num: int) -> tuple[Any, ...]:
    """What `network` gets in one step of all devices together, as tensors without values, when `cell` is given
    `arguments`.

    Training cells hand their first arguments on. Unless the context says "full_batch", arguments are one device's
    slices. InputError if there are fewer arguments than the network needs.
    """
    feeder = next((owner for _, owner in cell.cells_and_names() if type(owner).__name__ == "_DataWrapper"), None)
    if feeder is not None:  # data sinking: the shapes are global already
        types, shapes = feeder.info
        tensors = tuple(_shape_only(tuple(shape), kind) for shape, kind in zip(shapes, types, strict=True))
        return tensors[: _taken(network, len(tensors), cell)]
    taken = tuple(arguments)[: _taken(network, len(arguments), cell)]
    return global_inputs(taken, device_num)


def global_inputs(arguments: Sequence[Any], device_num: int) -> tuple[Any, ...]:
    """`arguments` of one of `device_num` devices at the shapes that they have on all together, without values."""
    cuts = _input_cuts(len(arguments), device_num)
    return tuple(_global(argument, degrees) for argument, degrees in zip(arguments, cuts, strict=True))


def _differentiates(cell: Any) -> bool:
    from mindspore.nn import Optimizer
    from mindspore.ops import GradOperation

    return any(isinstance(value, Optimizer | GradOperation) for value in {**cell.__dict__, **cell._cells}.values())


def _networks(cell: Any) -> list[Any]:
    from mindspore.nn import Optimizer

    return [child for child in cell.cells() if not isinstance(child, Optimizer) and child.trainable_params()]


def _is_cell(value: Any) -> bool:
    from mindspore.nn import Cell

    return isinstance(value, Cell)


def _taken(network: Any, given: int, cell: Any) -> int:
    """How many of `given` arguments `network` takes."""
    parameters = inspect.signature(network.construct).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return given
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    if given < needed:
        raise InputError(
            f"{type(network).__name__} needs {needed} inputs, but {type(cell).__name__} is called with {given}:"
            f" {REMEDY}"
        )
    return min(given, len(positional))


def _input_cuts(number: int, device_num: int) -> Iterator[tuple[int, ...] | int]:
    """Per input: into how many slices each dim is cut (a tuple), or dim 0 alone (a number)."""
    from mindspore import context

    strategy = context.get_auto_parallel_context("dataset_strategy")
    if isinstance(strategy, str):
        yield from [1 if strategy == "full_batch" else device_num] * number
    elif len(strategy) >= number and all(isinstance(degrees, tuple | list) for degrees in strategy):
        yield from (tuple(degrees) for degrees in strategy[:number])
    else:
        raise InputError(f"the dataset_strategy {strategy} is not one tuple of numbers per input: {REMEDY}")


def _global(argument: Any, cuts: tuple[int, ...] | int) -> Any:
    from mindspore import Tensor

    if not isinstance(argument, Tensor):
        return argument
    local = tuple(argument.shape)
    degrees = cuts if isinstance(cuts, tuple) else (cuts, *(1 for _ in local))[: len(local)]
    if len(degrees) != len(local):
        raise InputError(f"the dataset_strategy {degrees} does not fit an input of shape {list(local)}: {REMEDY}")
    return _shape_only(tuple(size * degree for size, degree in zip(local, degrees, strict=True)), argument.dtype)


def _shape_only(shape: tuple[int, ...], dtype: Any) -> Any:
    from mindspore import Tensor
    from mindspore.common.initializer import Zero

    return Tensor(shape=shape, dtype=dtype, init=Zero()) if shape else Tensor(0, dtype)
