"""A copy of a training file that says another layout: only keys of parallelism, recomputation, offsets and batches change."""

import copy
from dataclasses import dataclass
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers.defaults import DEFAULTS
from ms_symtensor.targets.mindformers.settings import PIPELINE, settings_of
from ms_symtensor.targets.mindformers.training_file import TrainingFile
from ms_symtensor.targets.yaml_text import Path, data_of, differences, value_at, with_value
from ms_symtensor.uniform.layout import UniformLayout

STRATEGY = ("parallel", "dataset_strategy")
FOLLOWERS = ("micro_batch_num", "batch_size")
"""Keys elsewhere in a file that may be aliases of a changed one: callbacks that count micro-batches, a batch for inference."""

_WITHOUT_EFFECT = (("recompute_config", "mp_comm_recompute"), ("recompute_config", "parallel_optimizer_comm_recompute"))
"""mcore's LayerSetting reads these and does nothing with them (parallel_core/training_graph/transformer/utils.py)."""


@dataclass(frozen=True)
class Change:
    """The value at `path`, as it was and as it is."""

    path: Path
    old: Any
    new: Any

    @property
    def key(self) -> str:
        return ".".join(map(str, self.path))


def with_layout(file: TrainingFile, layout: UniformLayout) -> tuple[str, tuple[Change, ...]]:
    """The text of `file` with `layout`, and what changed.

    Raises:
        InputError: for a layout that it cannot say (CannotSayError), and for a text in which the keys cannot be changed alone.
    """
    text, wanted, changed = file.text, copy.deepcopy(file.data), []
    for path, value in _wanted(file, layout).items():
        is_unsaid = path[:-1] == PIPELINE and value_at(wanted, path) is None and _has_pipeline(wanted, layout)
        if is_unsaid or not _is_same(value_at(file.data, path, DEFAULTS.get(path)), value):
            text = with_value(text, path, value)
            _put(wanted, path, value)
            changed.append(path)
    text = _with_strategy(file, text, wanted, layout.degrees.data_parallel)
    text = _apart(file, text, wanted)
    if value_at(wanted, STRATEGY) != value_at(file.data, STRATEGY):
        changed.append(STRATEGY)
    others = (path for path in differences(file.data, wanted) if not any(_is_below(path, one) for one in changed))
    return text, tuple(Change(path, value_at(file.data, path), value_at(wanted, path)) for path in (*changed, *others))


def _wanted(file: TrainingFile, layout: UniformLayout) -> dict[tuple[str, ...], Any]:
    """What the file has to say, but for keys that mean nothing there."""
    found = settings_of(file.config, layout)
    silent = {("parallel_config", "vocab_emb_dp"), *(() if file.is_legacy else _WITHOUT_EFFECT)}
    if layout.degrees.context_parallel == 1:
        silent |= {("parallel_config", "context_parallel_algo"), ("parallel_config", "ulysses_degree_in_cp")}
    found = {path: value for path, value in found.items() if path not in silent}
    if file.is_legacy:
        found["parallel_config", "vocab_emb_dp"] = False
        if layout.degrees.model_parallel == 1:
            found.pop(("parallel_config", "use_seq_parallel"))
        if found["recompute_config", "recompute"] is not True:
            found.pop(("recompute_config", "recompute_slice_activation"))
    return found


def _with_strategy(file: TrainingFile, text: str, wanted: dict[str, Any], data_parallel: int) -> str:
    """Where the file cuts its data by hand, the samples are cut as often as the model is copied."""
    rows = value_at(file.data, STRATEGY)
    for number in range(len(rows) if isinstance(rows, list) else 0):
        if isinstance(rows[number], list) and rows[number]:
            path = (*STRATEGY, number, 0)
            if value_at(data_of(text, file.name), path) != data_parallel:
                text = with_value(text, path, data_parallel)
            _put(wanted, path, data_parallel)
    return text


def _apart(file: TrainingFile, text: str, wanted: dict[str, Any]) -> str:
    """`text`, in which aliases of what changed keep their old value, but for those that mean the same."""
    for path in list(differences(wanted, data_of(text, file.name))):
        old = value_at(wanted, path)
        if path[-1] in FOLLOWERS and path[0] in ("callbacks", "model"):
            _put(wanted, path, value_at(data_of(text, file.name), path))
        else:
            text = with_value(text, path, old)
    left = [".".join(map(str, path)) for path in differences(wanted, data_of(text, file.name))]
    if left:
        raise InputError(f"{file.name}: {', '.join(left[:3])} would change too: write its aliases and merges out")
    return text


def _has_pipeline(data: dict[str, Any], layout: UniformLayout) -> bool:
    """Whether there is a pipeline_config: MindSpore wants all its keys or none (set_auto_parallel_context)."""
    return layout.stages.interleave > 1 or value_at(data, PIPELINE) is not None


def _is_below(path: Path, other: Path) -> bool:
    """Whether one of both leads to a value within that of the other."""
    few = min(len(path), len(other))
    return path[:few] == other[:few]


def _is_same(old: Any, new: Any) -> bool:
    """Whether MindFormers takes both for the same."""
    if isinstance(old, bool) or isinstance(new, bool):
        return bool(old) == new if old is None or isinstance(old, bool) else _all_zero(old) and new is False
    if new == 0 and isinstance(old, list):
        return _all_zero(old)
    return bool(old == new)


def _all_zero(value: Any) -> bool:
    return all(map(_all_zero, value)) if isinstance(value, list) else value in (0, False, None)


def _put(data: Any, path: Path, value: Any) -> None:
    for key in path[:-1]:
        if isinstance(data, dict):
            if not isinstance(data.get(key), dict | list):
                data[key] = {}
            data = data[key]
        else:
            data = data[key]
    data[path[-1]] = value
