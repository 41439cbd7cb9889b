"""A uniform layout in the keys of MindFormers' training files (names as of 1.9.0 and 2.1.0)."""

from typing import Any

from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.targets.mindformers.recompute import Lists, Rows, lists_of, patterns_of
from ms_symtensor.targets.mindformers.rules import refusal
from ms_symtensor.uniform.layout import UniformLayout

Path = tuple[str, ...]
"""The keys on the way to a value of a file."""

Settings = dict[Path, Any]

PARALLEL, CONTEXT, RECOMPUTE = ("parallel_config",), ("parallel",), ("recompute_config",)
OPTIMIZER = ("parallel", "parallel_optimizer_config")
PIPELINE = ("parallel", "pipeline_config")
MODEL = ("model", "model_config")


def settings_of(config: TransformerConfig, layout: UniformLayout) -> Settings:
    """What a file says of `layout`, by path; the batch of `config` is that of a step.

    Raises:
        CannotSayError: for what MindFormers cannot run or be told.
    """
    if reason := refusal(config, layout):
        raise CannotSayError(reason.removeprefix("MindFormers: "))
    lists, stages = lists_of(config, layout), layout.stages
    return {
        **_batch(config, layout),
        **_degrees(layout),
        **_context(layout),
        **_recompute(lists, config.experts is not None),
        (*MODEL, "pp_interleave_num"): stages.interleave,
        (*MODEL, "offset"): _offset(lists.held),
        **({("optimizer", "swap"): True} if layout.swap_optimizer else {}),
    }


def _batch(config: TransformerConfig, layout: UniformLayout) -> Settings:
    """MindFormers' global batch is batch_size x data_parallel, times micro_batch_num where there are stages, and times
    gradient_accumulation_steps where there are none (base_trainer.py, `_check_global_batch_size_for_auto_parallel`).
    """
    number = layout.stages.micro_batch_num
    staged = layout.stages.number > 1
    return {
        ("runner_config", "batch_size"): config.batch_size // (layout.degrees.data_parallel * number),
        ("runner_config", "gradient_accumulation_steps"): 1 if staged else number,
        (*PARALLEL, "micro_batch_num"): number if staged else 1,
        (*PARALLEL, "seq_split_num"): 1,
        ("micro_batch_interleave_num",): 1,
    }


def _degrees(layout: UniformLayout) -> Settings:
    of = layout.degrees
    exchanges = of.context_parallel > 1 and of.exchanges_heads
    return {
        (*PARALLEL, "data_parallel"): of.data_parallel,
        (*PARALLEL, "model_parallel"): of.model_parallel,
        (*PARALLEL, "context_parallel"): of.context_parallel,
        (*PARALLEL, "context_parallel_algo"): "ulysses_cp" if exchanges else "colossalai_cp",
        (*PARALLEL, "ulysses_degree_in_cp"): of.context_parallel if exchanges else 1,
        (*PARALLEL, "expert_parallel"): of.expert_parallel or 1,
        (*PARALLEL, "pipeline_stage"): layout.stages.number,
        (*PARALLEL, "use_seq_parallel"): of.sequence_parallel,
        (*PARALLEL, "vocab_emb_dp"): False,
    }


def _context(layout: UniformLayout) -> Settings:
    found: Settings = {
        (*CONTEXT, "parallel_mode"): 1,
        (*CONTEXT, "enable_alltoall"): True,
        (*CONTEXT, "enable_parallel_optimizer"): layout.optimizer_level is not OptimizerLevel.NONE,
        (*PIPELINE, "pipeline_interleave"): layout.stages.interleave > 1,
        (*PIPELINE, "pipeline_scheduler"): layout.stages.scheduler,
    }
    if layout.optimizer_level is not OptimizerLevel.NONE:
        found |= {
            (*OPTIMIZER, "gradient_accumulation_shard"): layout.optimizer_level is OptimizerLevel.LEVEL2,
            (*OPTIMIZER, "parallel_optimizer_threshold"): layout.parallel_optimizer_threshold_KB,
            (*OPTIMIZER, "optimizer_weight_shard_size"): layout.optimizer_weight_shard_size,
        }
    return found


def _recompute(lists: Lists, has_experts: bool) -> Settings:
    selected = {
        pattern: _list(rows) for part, rows in lists.parts.items() for pattern in patterns_of(part, has_experts)
    }
    recompute: Any = _list(lists.whole)
    if lists.whole == lists.held or not any(map(any, lists.whole)):
        recompute = lists.whole == lists.held
    return {
        (*RECOMPUTE, "recompute"): recompute,
        (*RECOMPUTE, "select_recompute"): selected or False,
        (*RECOMPUTE, "select_comm_recompute"): False,
        (*RECOMPUTE, "select_recompute_exclude"): False,
        (*RECOMPUTE, "select_comm_recompute_exclude"): False,
        (*RECOMPUTE, "mp_comm_recompute"): True,
        (*RECOMPUTE, "parallel_optimizer_comm_recompute"): False,
        (*RECOMPUTE, "recompute_slice_activation"): False,
    }


def _offset(held: Rows) -> Any:
    """How many blocks more than their even share, rounded down, the chunks hold; 0 where all hold as many."""
    numbers = [number for row in held for number in row]
    even = sum(numbers) // len(numbers)
    if all(number == even for number in numbers):
        return 0
    return _list(tuple(tuple(number - even for number in row) for row in held))


def _list(rows: Rows) -> Any:
    """One list of stages, or one for every chunk of a stage."""
    return list(rows[0]) if len(rows) == 1 else [list(row) for row in rows]
