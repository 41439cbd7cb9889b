"""The uniform layout that a training file of MindFormers says, as its own code reads the keys."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import runs_of
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER, SCHEDULERS
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.mindformers.defaults import said
from ms_symtensor.uniform.layout import Degrees, Mark, Recomputation, Selection, Stages, UniformLayout

Data = dict[str, Any]
Counts = list[list[int]]
"""A number for every stage, in a row for every model chunk of a stage."""

PARTS = (
    (r"core_attention|flash_attention|softmax", Selection.ATTENTION_CORE),
    (r"norm", Selection.NORM),
    (r"silu|gelu|activation|(mlp|feed_forward|shared_experts)\\?\.mul$", Selection.ACTIVATION),
)
"""What patterns of select_recompute stand for; the first that occurs counts."""

DEFAULT_PATTERN = r"mlp\.mul"
"""What is recomputed where select_recompute is true without a pattern: the activation."""


def layout_of(data: Data, num_layers: int, has_experts: bool, is_legacy: bool) -> UniformLayout:
    """What `data` says of a network of so many blocks.

    Raises:
        InputError: for what MindFormers refuses, and for recomputation and context parallelism that are not modelled.
    """
    if not is_legacy and said(data, "recompute_config", "recompute_slice_activation"):
        raise InputError("recompute_config.recompute_slice_activation: MindFormers refuses it for mcore's networks")
    stages = _stages(data, num_layers)
    levels = {True: OptimizerLevel.LEVEL2, False: OptimizerLevel.LEVEL1}
    level = OptimizerLevel.NONE
    if said(data, "parallel", "enable_parallel_optimizer"):
        level = levels[bool(said(data, "parallel", "parallel_optimizer_config", "gradient_accumulation_shard"))]
        named = said(data, "parallel", "parallel_optimizer_config", "optimizer_level")
        if named is not None:
            if named not in ("level1", "level2", "level3"):
                raise InputError(
                    f"parallel_optimizer_config.optimizer_level is {named!r}: give level1, level2 or level3"
                )
            level = OptimizerLevel(int(named[-1]))
    degrees = _degrees(data, has_experts, is_legacy)
    return UniformLayout(
        degrees,
        stages,
        Recomputation(marks=_marks(data, stages, num_layers)),
        level,
        _shard_size(data, degrees),
        bool(said(data, "optimizer", "swap")),
        _number(data, "parallel", "parallel_optimizer_config", "parallel_optimizer_threshold"),
    )


def samples_of(data: Data) -> tuple[int, int]:
    """Samples of a step, and how many micro-batches they come in (base_trainer.py, the check of the global batch)."""
    copies = _number(data, "micro_batch_interleave_num")
    number = _number(data, "parallel_config", "micro_batch_num")
    if _number(data, "parallel_config", "pipeline_stage") == 1:
        number = _number(data, "runner_config", "gradient_accumulation_steps")
    each = _number(data, "runner_config", "batch_size") * copies
    return each * number * _number(data, "parallel_config", "data_parallel"), number


def devices_of(data: Data) -> int:
    """The devices that the file is for."""
    degrees = ("data_parallel", "model_parallel", "context_parallel", "pipeline_stage")
    return math.prod(_number(data, "parallel_config", key) for key in degrees)


def _degrees(data: Data, has_experts: bool, is_legacy: bool) -> Degrees:
    context = _number(data, "parallel_config", "context_parallel")
    exchanged = _exchanged(data, context, is_legacy)
    if exchanged not in (1, context):
        raise InputError(f"context_parallel {context} with ulysses_degree_in_cp {exchanged}: hybrid_cp is not modelled")
    tensor = _number(data, "parallel_config", "model_parallel")
    return Degrees(
        _number(data, "parallel_config", "data_parallel"),
        tensor,
        bool(said(data, "parallel_config", "use_seq_parallel")) and (tensor > 1 or not is_legacy),
        context,
        _number(data, "parallel_config", "expert_parallel") if has_experts else 0,
        1 if has_experts else 0,
        context == 1 or exchanged == context,
        not (is_legacy and said(data, "parallel_config", "vocab_emb_dp") is not False),
    )


def _exchanged(data: Data, context: int, is_legacy: bool) -> int:
    """Over how many of the ranks that share a sequence heads are exchanged: in mcore ulysses_degree_in_cp alone says it."""
    degree = _number(data, "parallel_config", "ulysses_degree_in_cp")
    if context == 1:
        return 1
    if not is_legacy:
        return degree
    algo = said(data, "parallel_config", "context_parallel_algo")
    return {"colossalai_cp": 1, "ulysses_cp": context}.get(algo, degree)


def _shard_size(data: Data, degrees: Degrees) -> int:
    size = said(data, "parallel", "parallel_optimizer_config", "optimizer_weight_shard_size")
    return -1 if not isinstance(size, int) or size <= 1 or size >= degrees.devices else size


def _stages(data: Data, num_layers: int) -> Stages:
    """Blocks of every model chunk as LayerSetting counts them: an even share and the offset."""
    number = _number(data, "parallel_config", "pipeline_stage")
    chunks = _chunks(data)
    micro_batches = samples_of(data)[1]
    even, rest = divmod(num_layers, number * chunks)
    if number * chunks == 1:
        return Stages(1, micro_batches)
    offset = said(data, "model", "model_config", "offset")
    rows: Counts = [[0] * number for _ in range(chunks)]
    if isinstance(offset, list) and offset and all(isinstance(row, list) for row in offset):
        rows = offset
    elif isinstance(offset, list):
        rows = [offset] * chunks
    elif offset:
        rows = [[offset] * number for _ in range(chunks)]
    if len(rows) != chunks or any(len(row) != number or not all(map(is_number, row)) for row in rows):
        raise InputError(f"offset {offset!r} is not one number for each of {number} stages of {chunks} chunks: mend it")
    if sum(map(sum, rows)) != rest:
        raise InputError(
            f"offset {offset!r} adds up to {sum(map(sum, rows))}; it must be {rest}, what is left of {num_layers} blocks on"
            f" {number} stages of {chunks} chunks"
        )
    counts = tuple(tuple(even + more for more in row) for row in rows)
    if min(map(min, counts)) < 1:
        raise InputError(f"offset {offset!r} leaves a model chunk without a block: MindSpore wants one in each")
    return Stages(
        number, micro_batches, chunks, chunks=counts, scheduler=_scheduler(data) if chunks > 1 else DEFAULT_SCHEDULER
    )


def _scheduler(data: Data) -> str:
    name = said(data, "parallel", "pipeline_config", "pipeline_scheduler")
    return name if name in SCHEDULERS else DEFAULT_SCHEDULER  # `training_file` notes the others


def _chunks(data: Data) -> int:
    """Without pipeline_interleave LayerSetting takes one chunk, whatever pp_interleave_num says."""
    is_staged = _number(data, "parallel_config", "pipeline_stage") > 1
    if not said(data, "parallel", "pipeline_config", "pipeline_interleave") or not is_staged:
        return 1
    return _number(data, "model", "model_config", "pp_interleave_num")


def _marks(data: Data, stages: Stages, num_layers: int) -> tuple[tuple[Mark, ...], ...]:
    """What is recomputed of every block of every stage: the first ones of each chunk, as LayerSetting counts them."""
    for key in ("select_recompute_exclude", "select_comm_recompute_exclude"):
        if said(data, "recompute_config", key):
            raise InputError(f"recompute_config.{key} is not modelled: name what is recomputed instead")
    runs = runs_of(stages.in_order(num_layers), stages.interleave)
    held = [[len(of_stage[chunk]) for of_stage in runs] for chunk in range(stages.interleave)]
    whole = _counts("recompute", said(data, "recompute_config", "recompute"), held)
    parts: list[tuple[Selection, Counts]] = []
    for pattern, value in patterns_of("select_recompute", said(data, "recompute_config", "select_recompute")).items():
        parts.append((part_of(pattern), _counts("select_recompute", value, held)))
    for _, value in patterns_of(
        "select_comm_recompute", said(data, "recompute_config", "select_comm_recompute")
    ).items():
        parts.append((Selection.COMMUNICATION, _counts("select_comm_recompute", value, held)))
    found = []
    for stage, of_stage in enumerate(runs):
        marks: list[Mark] = []
        for chunk, run in enumerate(of_stage):
            for n in range(len(run)):
                chosen = frozenset(part for part, counts in parts if n < counts[chunk][stage])
                marks.append(None if n < whole[chunk][stage] else chosen)
        found.append(tuple(marks))
    return tuple(found)


def _counts(key: str, value: Any, held: Counts) -> Counts:
    """How many of the first blocks of every model chunk: all, none, a number for every stage, or one for every chunk."""
    if isinstance(value, bool) or value is None:
        return held if value else [[0] * len(row) for row in held]
    if isinstance(value, list) and len(value) == len(held[0]) and all(_is_count(one) for one in value):
        return _dealt(
            [sum(c) if n is True else int(n) for n, c in zip(value, zip(*held, strict=True), strict=True)], held
        )
    if isinstance(value, list) and len(value) == len(held):
        rows: Counts = []
        for row, of_row in zip(value, held, strict=True):
            if isinstance(row, bool):
                row = [row] * len(of_row)
            if not isinstance(row, list) or len(row) != len(of_row) or not all(map(_is_count, row)):
                break
            rows.append([most if one is True else min(int(one), most) for one, most in zip(row, of_row, strict=True)])
        else:
            return rows
    raise InputError(
        f"recompute_config.{key} {value!r} is not one number for every stage, or every model chunk: mend it"
    )


def _dealt(numbers: list[int], held: Counts) -> Counts:
    """LayerSetting gives the blocks of a stage to its chunks one after the other (`_alloc_recompute_layer`)."""
    found = [[0] * len(row) for row in held]
    for stage, number in enumerate(numbers):
        left = min(number, sum(row[stage] for row in held))
        while left:
            for chunk, row in enumerate(held):
                if left and found[chunk][stage] < row[stage]:
                    found[chunk][stage] += 1
                    left -= 1
    return found


def patterns_of(key: str, value: Any) -> Mapping[str, Any]:
    """What the setting `key` says of each pattern of operators. InputError for what says nothing of any."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return dict.fromkeys(value, True)
    if isinstance(value, bool | list) or value is None:
        return {DEFAULT_PATTERN: value} if value else {}
    raise InputError(f"recompute_config.{key} is {value!r}: give true, false, lists of numbers, or patterns with these")


def part_of(pattern: str) -> Selection:
    """What a pattern of select_recompute stands for. InputError where that is not known."""
    found = next((part for known, part in PARTS if re.search(known, pattern)), None)
    if found is None:
        raise InputError(
            f"select_recompute of {pattern!r} is not modelled: known are core attention, norms, activations"
        )
    return found


def require_modelled(data: Data) -> None:
    """InputError for settings that stay in a planned file, and for which the price has no term."""
    mode = said(data, "parallel", "parallel_mode")
    if mode not in (1, "1", "semi_auto", "semi_auto_parallel"):
        raise InputError(f"parallel.parallel_mode is {mode!r}: only 1, semi_auto_parallel, is modelled")
    for path in (("swap_config", "swap"), ("parallel_config", "swap", "swap")):
        if said(data, *path):
            raise InputError(f"{'.'.join(path)}: activations on the host are not modelled: turn it off")
    cut = said(data, "parallel_config", "expert_model_parallel")
    if cut not in (None, 1):
        raise InputError(f"parallel_config.expert_model_parallel {cut} is not modelled: mcore cuts no expert's width")


def _number(data: Data, *path: str) -> int:
    value = said(data, *path)
    if not is_number(value) or value < 1:
        raise InputError(f"{'.'.join(path)} is {value!r}: give a whole number above 0")
    return int(value)


def is_number(value: Any) -> bool:
    """Whether a setting is a number, and not yes or no."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0
