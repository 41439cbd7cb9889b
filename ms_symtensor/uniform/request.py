"""From what a user pins (`--fix`) to one uniform layout."""

import math
from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.runtime import Runtime
from ms_symtensor.errors import InputError
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints import limits as asked
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.uniform.dispatch import with_safe_tokens
from ms_symtensor.uniform.layout import (
    ALL,
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    Degrees,
    Recomputation,
    Selection,
    Stages,
    UniformLayout,
)
from ms_symtensor.uniform.plan import require_agreement


def pinned_layout(config: TransformerConfig, limits: Limits, device_num: int) -> UniformLayout:
    """The layout that `limits` pin for `config`, whose batch is that of a step.

    What is not pinned is 1, but for data_parallel, which takes the devices that are left; sequence_parallel, which goes with
    model_parallel; micro_batch_num, one sample for each copy of the model where there are stages; and optimizer_level, 1 where
    there are copies.

    Raises:
        InputError: for pins that are bounds, or of operators, and for degrees that do not make so many devices or do not divide
            the batch.
    """
    _require_pins(limits)
    tensor, context = _pin(limits, "model_parallel", 1), _pin(limits, "context_parallel", 1)
    stages = _pin(limits, "pipeline_stages", 1)
    inner = tensor * context * stages
    if device_num % inner:
        raise InputError(
            f"model_parallel {tensor} x context_parallel {context} x pipeline_stages {stages} = {inner} does not divide"
            f" {device_num} devices: give degrees that do"
        )
    if stages == 1 and limits.schedulers[0] != DEFAULT_SCHEDULER:
        raise InputError(
            f"pipeline_scheduler {limits.schedulers[0]} is an order of passes of several stages: give pipeline_stages above 1, or"
            " leave it out"
        )
    data = _pin(limits, "data_parallel", device_num // inner)
    batch = config.batch_size
    if batch % data:
        raise InputError(f"a global batch of {batch} samples does not divide by data_parallel {data}")
    each = batch // data if stages > 1 else 1
    micro_batches = _pin(limits, "micro_batch_num", each)
    if batch % (data * micro_batches):
        raise InputError(
            f"a global batch of {batch} samples does not divide by data_parallel {data} x micro_batch_num {micro_batches}:"
            f" give a micro_batch_num that divides {batch // data}"
        )
    layout = UniformLayout(
        Degrees(
            data_parallel=data,
            model_parallel=tensor,
            sequence_parallel=bool(_pin(limits, "sequence_parallel", tensor > 1)),
            context_parallel=context,
            expert_parallel=_pin(limits, "expert_parallel", 0),
        ),
        Stages(stages, micro_batches, _pin(limits, "pp_interleave_num", 1), scheduler=limits.schedulers[0]),
        recomputation(limits, config.num_layers, stages),
        OptimizerLevel(_pin(limits, "optimizer_level", int(data > 1))),
        swap_optimizer=bool(_pin(limits, asked.SWAP, 0)),
    )
    require_agreement(layout, device_num)
    return layout


def recomputation(limits: Limits, blocks: int, stages: int) -> Recomputation:
    """What `limits` pin of recompute: nothing, everything, the cores of attention (select), or so many blocks of all stages.

    Raises:
        InputError: if there are not so many blocks.
    """
    if limits.selects:
        return SELECTIVE_RECOMPUTATION
    number = _pin(limits, "recompute", 0)
    limits.recomputed(blocks)
    if number >= blocks:
        return Recomputation(blocks=(ALL,))
    if not number:
        return NO_RECOMPUTATION
    return Recomputation(blocks=tuple(number // stages + (stage < number % stages) for stage in range(stages)))


def of_micro_batch(config: TransformerConfig, layout: UniformLayout) -> TransformerConfig:
    """`config`, whose batch is that of a step, at the batch of one micro-batch."""
    return with_safe_tokens(replace(config, batch_size=config.batch_size // layout.stages.micro_batch_num), layout)


def as_run(layout: UniformLayout, runtime: Runtime) -> UniformLayout:
    """`layout` with what `runtime` recomputes unasked."""
    if not (runtime.gathers_again and layout.degrees.sequence_parallel):
        return layout
    recomputation = layout.recompute
    own = Selection.COMMUNICATION
    marks = tuple(
        tuple(None if mark is None else mark | {own} for mark in of_stage) for of_stage in recomputation.marks
    )
    return replace(layout, recompute=replace(recomputation, parts=(*recomputation.parts, (own, (ALL,))), marks=marks))


def _pin(limits: Limits, name: str, default: int) -> int:
    return limits.least.get(name, default)


def _require_pins(limits: Limits) -> None:
    if limits.operators:
        raise InputError(
            "uniform layouts cut all blocks alike: pin degrees, such as model_parallel=8, and no operators by name"
        )
    for name in {**limits.least, **limits.most}:
        least, most = limits.least.get(name), limits.most.get(name, math.inf)
        if name != "recompute" and least != most:
            raise InputError(f"{name} is bounded, not pinned: give --fix {name}=N")
