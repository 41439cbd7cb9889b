"""What MindFormers takes where a training file is silent (tools/register/template.py of 1.9.0 and 2.1.0)."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from ms_symtensor.targets.yaml_text import Path, value_at

DEFAULTS: dict[Path, Any] = {
    ("runner_config", "batch_size"): 1,
    ("runner_config", "gradient_accumulation_steps"): 1,
    ("micro_batch_interleave_num",): 1,
    ("parallel_config", "data_parallel"): 1,
    ("parallel_config", "model_parallel"): 1,
    ("parallel_config", "context_parallel"): 1,
    ("parallel_config", "context_parallel_algo"): "colossalai_cp",
    ("parallel_config", "ulysses_degree_in_cp"): 1,
    ("parallel_config", "expert_parallel"): 1,
    ("parallel_config", "pipeline_stage"): 1,
    ("parallel_config", "micro_batch_num"): 1,
    ("parallel_config", "seq_split_num"): 1,
    ("parallel_config", "use_seq_parallel"): False,
    ("parallel", "parallel_mode"): 1,
    ("parallel", "enable_alltoall"): False,
    ("parallel", "full_batch"): True,
    ("parallel", "enable_parallel_optimizer"): False,
    ("parallel", "parallel_optimizer_config", "gradient_accumulation_shard"): False,
    ("parallel", "parallel_optimizer_config", "parallel_optimizer_threshold"): 64,
    ("parallel", "parallel_optimizer_config", "optimizer_weight_shard_size"): -1,
    ("parallel", "pipeline_config", "pipeline_interleave"): False,
    ("parallel", "pipeline_config", "pipeline_scheduler"): "1f1b",
    ("recompute_config", "recompute"): False,
    ("recompute_config", "select_recompute"): False,
    ("recompute_config", "select_comm_recompute"): False,
    ("recompute_config", "select_recompute_exclude"): False,
    ("recompute_config", "select_comm_recompute_exclude"): False,
    ("recompute_config", "recompute_slice_activation"): False,
    ("model", "model_config", "pp_interleave_num"): 1,
    ("model", "model_config", "offset"): 0,
    ("optimizer", "swap"): False,
}


def said(data: dict[str, Any], *path: str) -> Any:
    """What the file says, or MindFormers takes, at `path`."""
    found = value_at(data, path)
    return DEFAULTS.get(path) if found is None else found


LIKENESS = 0.9
"""Keys so alike are one, misspelt (empirical: expert_model_parallel and expert_parallel, which are two, are 0.83 alike)."""


def misspelt(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a file that MindFormers does not know, where one that it would read is not there: each, from the top of the
    file on, with that one.
    """
    known = {tuple(map(str, path[:depth])) for path in DEFAULTS for depth in range(1, len(path) + 1)}
    for *section, key in sorted(known):
        there = value_at(data, tuple(section)) if section else data
        if isinstance(there, dict) and key not in there:
            others = [other for other in there if isinstance(other, str) and (*section, other) not in known]
            for other in get_close_matches(key, others, 1, LIKENESS):
                yield ".".join((*section, other)), key
