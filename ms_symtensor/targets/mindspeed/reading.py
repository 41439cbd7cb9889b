"""What the options of a launch script say: a uniform layout of a network of the zoo."""

import re
from collections.abc import Mapping
from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.mindspeed.dimensions import dimensions
from ms_symtensor.uniform.layout import (
    SELECTIVE_RECOMPUTATION,
    Degrees,
    Recomputation,
    Selection,
    Stages,
    UniformLayout,
    first_blocks,
)

UNMODELLED = (
    "schedules-method", "moe-fb-overlap", "noop-layers", "swap-attention", "smart-swap", "tp-2d", "use-mc2", "use-ascend-coc",
    "recompute-norm", "recompute-in-advance", "recompute-in-bubble", "enable-recompute-layers-per-pp-rank",
    "recompute-activation-function-num-layers", "moe-zero-memory", "lora-target-modules", "use-torch-fsdp2",
    "variable-seq-lengths", "distribute-saved-activations", "recompute-modules", "decoder-first-pipeline-num-layers",
    "decoder-last-pipeline-num-layers", "pipeline-model-parallel-layout", "num-virtual-stages-per-pipeline-rank",
    "reuse-fp32-param", "moe-alltoall-overlap-comm", "moe-allgather-overlap-comm",
)  # fmt: skip
"""Options that change a step, and for which the price has no term."""

_DIMS = (
    "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups", "num-experts", "moe-router-topk",
    "moe-ffn-hidden-size", "kv-channels", "mtp-num-layers",
)  # fmt: skip


def described(
    config: TransformerConfig, options: Mapping[str, str], device_num: int
) -> tuple[TransformerConfig, UniformLayout, str]:
    """`config` with the batch and the length that `options` say, their layout on so many devices, and what they hide.

    Raises:
        InputError: for options of another network, of other devices, or that are not modelled.
    """
    for name in UNMODELLED:
        if name in options and options[name] != "disable":
            raise InputError(f"--{name} is not modelled: leave it out, or price the rest without it")
    seq_length = _number(options, "seq-length", config.seq_length)
    config = replace(config, seq_length=seq_length)
    own = dimensions(config)
    for name in _DIMS:
        if name in options and name in own and options[name] != own[name]:
            raise InputError(
                f"--{name} is {options[name]}, but {config.name} has {own[name]}: give the network of the script"
            )
    tensor, stages = (
        _number(options, "tensor-model-parallel-size", 1),
        _number(options, "pipeline-model-parallel-size", 1),
    )
    context = _number(options, "context-parallel-size", 1)
    inner = tensor * stages * context
    if device_num % inner:
        raise InputError(
            f"tensor-, pipeline- and context-parallel sizes make {inner} ranks, which do not divide {device_num} devices"
        )
    data = device_num // inner
    each = _number(options, "micro-batch-size")
    batch = _number(options, "global-batch-size", each * data)
    if batch % (each * data):
        raise InputError(
            f"global-batch-size {batch} does not divide by micro-batch-size {each} x {data} data-parallel ranks"
        )
    config = replace(config, batch_size=batch)
    placed = _stages(config, options, stages, batch // (each * data))
    layout = UniformLayout(
        _degrees(config, options, data),
        placed,
        _recomputation(config, options, placed),
        OptimizerLevel.LEVEL1 if "use-distributed-optimizer" in options else OptimizerLevel.NONE,
        swap_optimizer="swap-optimizer" in options,
    )
    hidden = {"overlap-grad-reduce": "gradients", "overlap-param-gather": "weights"}
    return config, layout, ",".join(part for name, part in hidden.items() if name in options)


def _degrees(config: TransformerConfig, options: Mapping[str, str], data: int) -> Degrees:
    tensor = _number(options, "tensor-model-parallel-size", 1)
    parallel, width = 0, 0
    if config.experts is not None:
        parallel, width = (
            _number(options, "expert-model-parallel-size", 1),
            _number(options, "expert-tensor-parallel-size", tensor),
        )
        if "moe-tp-extend-ep" in options:
            parallel, width = parallel * tensor, 1
    algorithm = options.get("context-parallel-algo", "ulysses_cp_algo")
    if algorithm not in ("ulysses_cp_algo", "megatron_cp_algo"):
        raise InputError(
            f"--context-parallel-algo {algorithm} is not modelled: known are ulysses_cp_algo and megatron_cp_algo"
        )
    return Degrees(
        data,
        tensor,
        "sequence-parallel" in options and tensor > 1,
        _number(options, "context-parallel-size", 1),
        parallel,
        width,
        algorithm == "ulysses_cp_algo",
    )


def _stages(config: TransformerConfig, options: Mapping[str, str], number: int, micro_batches: int) -> Stages:
    if "num-layer-list" in options:
        text = options["num-layer-list"]
        if not re.fullmatch(r"\d+(,\d+)*", text):
            raise InputError(f"--num-layer-list is {text!r}: give the blocks of every stage, such as 4,4,4,3")
        return Stages(number, micro_batches, layers=tuple(map(int, text.split(","))))
    if "num-layers-per-virtual-pipeline-stage" not in options:
        return Stages(number, micro_batches)
    each = _number(options, "num-layers-per-virtual-pipeline-stage")
    if config.num_layers % (number * each):
        raise InputError(
            f"{config.num_layers} layers do not divide by {number} stages x {each} layers of a virtual stage"
        )
    return Stages(number, micro_batches, config.num_layers // (number * each))


def _recomputation(config: TransformerConfig, options: Mapping[str, str], stages: Stages) -> Recomputation:
    granularity, method = options.get("recompute-granularity", ""), options.get("recompute-method", "")
    if granularity == "selective" or "recompute-activations" in options:
        return SELECTIVE_RECOMPUTATION
    parts = frozenset({Selection.ACTIVATION} if "recompute-activation-function" in options else ())
    if granularity != "full":
        return first_blocks(stages, config.num_layers, 0, parts)
    number = _number(options, "recompute-num-layers", 1)
    if method == "uniform" and number == 1:
        number = config.num_layers
    elif method != "block":
        raise InputError(
            f"--recompute-method {method} of {number} layers is not modelled: block, or uniform with 1 layer"
        )
    return first_blocks(stages, config.num_layers, number, parts)


def _number(options: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = options.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"[1-9]\d*", text):
        raise InputError(f"--{name} is {text!r}: give a whole number above 0")
    return int(text)
