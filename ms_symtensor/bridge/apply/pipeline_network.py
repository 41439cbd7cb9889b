"""Pipeline stages onto a network and off again, its micro-batches, and the training step around it."""

from collections.abc import Sequence
from typing import Any

from ms_symtensor.bridge.apply.lazy_inline import move_to_network
from ms_symtensor.bridge.apply.whole_count import count_over_whole_batches
from ms_symtensor.bridge.compiler.executor import CELL_MARK
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.strategy.stage_cells import parameters_of_several_stages, stage_cells
from ms_symtensor.tensor.graph import Graph

HOW_TO_REPLACE = "plan --replace-shard; apply(…, replace_shard=True); ms_symtensor.configure(replace_shard=True)"
_UNDO = "_symtensor_before_stages"  # on a network whose stages were set here
_STATE = ("_pipeline_stage", "_pipeline_segment", CELL_MARK)


def set_stages(cell: Any, graph: Graph, pipeline: Pipeline) -> None:
    """Give the cells of `cell`, from which `graph` was captured, their `pipeline_stage`.

    MindSpore interleaves networks of `@lazy_inline` only, and takes micro-batches of none in which cells inside are of it: the
    decorator goes to the network as a whole then.

    InputError if cells have stages that were written by hand.
    """
    require_unstaged(cell)
    cells = dict(cell.cells_and_names())
    before = [
        (owner, {name: owner.__dict__[name] for name in _STATE if name in owner.__dict__}) for owner in cells.values()
    ]
    flags = [(p, p.parallel_optimizer) for p in cell.get_parameters()]
    cell.__dict__[_UNDO] = before, flags
    for path, place in stage_cells(graph, pipeline).items():
        owner = cells[".".join(path)]
        owner.pipeline_stage = place.stage
        if pipeline.needs_config:
            owner.pipeline_segment = place.segment
    move_to_network(cell, pipeline.needs_config)
    several = parameters_of_several_stages(graph, pipeline)
    for parameter in cell.get_parameters():
        if parameter.name in several:
            parameter.parallel_optimizer = False


def require_unstaged(cell: Any) -> None:
    """InputError if cells have a `pipeline_stage` written by hand."""
    by_hand = [name for name, owner in cell.cells_and_names() if owner.__dict__.get("_pipeline_stage", -1) != -1]
    if by_hand:
        raise InputError(
            f"{by_hand[0]} already has a pipeline_stage written by hand, but the plan lays out the stages: remove it, or have it"
            f" replaced ({HOW_TO_REPLACE}), or plan one stage (--fix pipeline_stages=1)"
        )


def unset_stages(cell: Any, by_hand: bool = False) -> None:
    """Take back what `set_stages` did; with `by_hand`, the stages that the user wrote too."""
    before, flags = cell.__dict__.pop(_UNDO, ((), ()))
    for owner, state in before:
        for name in _STATE:
            owner.__dict__.pop(name, None)
        owner.__dict__.update(state)
    for parameter, sharded in flags:
        parameter.parallel_optimizer = sharded
    if by_hand:
        for _, owner in cell.cells_and_names():
            owner.__dict__.pop("_pipeline_stage", None)
            owner.__dict__.pop("_pipeline_segment", None)


def micro_batch(inputs: Sequence[Any], micro_batch_num: int) -> tuple[Any, ...]:
    """The inputs of one micro-batch, without values: as MindSpore's PipelineCell cuts them, along their first dim.

    InputError if an input cannot be cut into so many.
    """
    told = f"cannot be cut into {micro_batch_num} micro-batches along its first dim: give a batch that they divide"
    return _resized(inputs, 1, micro_batch_num, told)


def whole_batch(inputs: Sequence[Any], micro_batch_num: int) -> tuple[Any, ...]:
    """The inputs of a step, without values, from those of one of its micro-batches."""
    return _resized(inputs, micro_batch_num, 1, "has no first dim for the samples")


def batch_of(inputs: Sequence[Any]) -> int:
    """The samples in `inputs`: the first dim of the first one, 1 where there is none."""
    return next((one.shape[0] for one in inputs[:1] if getattr(one, "shape", ())), 1)


def at_batch(inputs: Sequence[Any], batch: int) -> tuple[Any, ...]:
    """`inputs` for another number of samples, without values. InputError if the first dim of one does not go with the samples."""
    there = batch_of(inputs)
    if batch == there:
        return tuple(inputs)
    return _resized(
        inputs, batch, there, f"is not one for {batch} samples in place of {there}: its first dim must go with them"
    )


def _resized(inputs: Sequence[Any], times: int, parts: int, told: str) -> tuple[Any, ...]:
    """`inputs` so many times, cut into so many parts; where one cannot be, the user is `told`."""
    import_mindspore()
    from mindspore import Tensor
    from mindspore.common.initializer import Zero

    found = []
    for number, whole in enumerate(inputs):
        shape = tuple(getattr(whole, "shape", ()))
        if not shape or times * shape[0] % parts:
            raise InputError(f"input {number} of shape {list(shape)} {told}")
        found.append(Tensor(shape=(times * shape[0] // parts, *shape[1:]), dtype=whole.dtype, init=Zero()))
    return tuple(found)


def wrapped(network: Any, pipeline: Pipeline) -> Any:
    """`network` in the cell of MindSpore that runs it on one micro-batch after the other, and counts over all of them."""
    import_mindspore()
    from mindspore import nn

    cell = getattr(nn, pipeline.wrapper)(network, pipeline.micro_batch_num)
    count_over_whole_batches(cell)
    return cell


def pipeline_training_cell(network: Any, pipeline: Pipeline, optimizer: Any = None, sharded: bool = False) -> Any:
    """A training step of `network` over the micro-batches of `pipeline`, as MindSpore's own: gradients add up in parameters.

    It takes the inputs of the whole batch and then the initial gradient, and returns the loss, the gradients of the trainable
    parameters, and what they add up in; or, with an `optimizer` of the parameters of `network`, which the context may have
    MindSpore `sharded`, the loss after the update.
    """
    import_mindspore()
    from mindspore.nn.utils import no_init_parameters

    from ms_symtensor.bridge.apply.training_step import AccumulationOptimizerStep, AccumulationStep

    with no_init_parameters():
        micro = wrapped(network, pipeline)
        cell = AccumulationStep(micro) if optimizer is None else AccumulationOptimizerStep(micro, optimizer, sharded)
    cell.set_train()
    return cell
