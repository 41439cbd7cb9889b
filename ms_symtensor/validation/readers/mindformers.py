"""Settings of MindFormers' YAML files, as tables list them: `key=value;key=value`.

What the lists and patterns of recomputation mean is as MindFormers' LayerSetting reads them.
"""

import ast
import re
from collections.abc import Mapping
from typing import Any, cast

from ms_symtensor.errors import InputError
from ms_symtensor.targets.mindformers.reading import is_number, part_of, patterns_of
from ms_symtensor.validation.configuration import (
    ALL,
    CAPACITY_FACTOR,
    AttentionKernel,
    Blocks,
    Part,
    Precision,
    Recomputation,
    Selection,
)
from ms_symtensor.validation.dataset import UnusableRowError

Settings = Mapping[str, str]

UNUSABLE = {
    ("mp_comm_recompute", "False"): "mp_comm_recompute=False: blocks are recomputed without their collectives",
    ("parallel_optimizer_comm_recompute", "True"): "parallel_optimizer_comm_recompute: weights are gathered again",
}


def settings_of(*texts: str) -> Settings:
    """The settings in `texts`. UnusableRowError for one that the cost model has no terms for."""
    found = {}
    for item in ";".join(texts).split(";"):
        key, equals, value = item.partition("=")
        if equals:
            found[key.strip()] = value.strip()
    for (key, value), reason in UNUSABLE.items():
        if found.get(key) == value:
            raise UnusableRowError(reason)
    return found


def recomputation(settings: Settings, stages: int) -> Recomputation:
    """`recompute`, `select_recompute` and `select_comm_recompute`: the first blocks of every stage, as a whole or in parts."""
    blocks = _blocks("recompute", _value(settings, "recompute"), stages)
    parts: dict[Selection, Blocks] = {}
    for key in ("select_recompute", "select_comm_recompute"):
        try:
            found = patterns_of(key, _value(settings, key)).items()
            named = [(Part.GATHERS if key == "select_comm_recompute" else part_of(one), n) for one, n in found]
        except InputError as error:
            raise UnusableRowError(str(error)) from None
        for part, value in named:
            parts[part] = _more(parts.get(part, (0,)), _blocks(key, value, stages))
    others = {part: _behind(blocks, selected) for part, selected in parts.items()}
    return Recomputation(blocks, tuple((part, others[part]) for part in Selection if any(others.get(part, ()))))


def layers_on_stage(settings: Settings, layers: int, stages: int, interleave: int = 1) -> tuple[int, ...]:
    """`offset`: blocks of each stage, or of each model chunk on it, more or less than even; () where there is no list."""
    offset = _value(settings, "offset")
    if not isinstance(offset, list):
        return ()
    runs = offset if all(isinstance(run, list) for run in offset) else [offset] * interleave
    if len(runs) != interleave or any(len(run) != stages or not all(map(is_number, run)) for run in runs):
        raise UnusableRowError("offset is not a list of one number per stage")
    each = layers // (stages * interleave)
    return tuple(interleave * each + sum(of_stage) for of_stage in zip(*runs, strict=True))


def attention(settings: Settings) -> AttentionKernel:
    """`use_flash_attention`."""
    return AttentionKernel.FLASH if settings.get("FA") == "True" else AttentionKernel.PLAIN


def precision(settings: Settings) -> Precision:
    """`compute_dtype`."""
    return "float16" if settings.get("dtype") == "float16" else "bfloat16"


STORED_IN_16_BIT = r"llama2_70b|glm2_6b|glm3_6b"
"""Models whose files say bfloat16 for param_init_type: configs/llama2/finetune_llama2_70b_bf16_32p.yaml, configs/glm2/
finetune_glm2_6b_fp16.yaml, configs/glm3/finetune_glm3_6b_bf16.yaml.
"""


def stored(settings: Settings, model: str) -> Precision:
    """`param_init_type`; where it is not given, float16 in the files that compute in float16 (baichuan2, glm32k, qwen), and
    float32 in those that compute in bfloat16 (deepseek, glm4, llama3, qwen1_5, qwen2, telechat, yi), but for STORED_IN_16_BIT.
    """
    if (given := settings.get("param_init_type", "")) in ("float32", "float16", "bfloat16"):
        return cast(Precision, given)
    computed = precision(settings)
    return computed if computed == "float16" or re.search(STORED_IN_16_BIT, model) else "float32"


def capacity(settings: Settings) -> float:
    """`capacity_factor`: what an expert has room for; 1.1 where it is not given (mindformers/modules/transformer/moe.py)."""
    return float(settings.get("capacity_factor") or CAPACITY_FACTOR)


GIB = 1 << 30


def memory_limit_B(settings: Settings) -> float:
    """`max_device_memory`, in words such as 59GB, which MindSpore counts in GiB; 0: none."""
    found = re.match(r"([\d.]+) ?GB", settings.get("max_mem", ""))
    return float(found[1]) * GIB if found else 0.0


def whole_embedding(settings: Settings) -> bool:
    """`vocab_emb_dp`: the table is not cut by tensor parallelism."""
    return settings.get("vocab_emb_dp") == "True"


def copies(settings: Settings) -> int:
    """`micro_batch_interleave_num`: parts of the batch that run side by side in one graph."""
    number = _value(settings, "micro_batch_interleave_num", default=1)
    if not is_number(number) or number < 1:
        raise UnusableRowError("micro_batch_interleave_num is no number")
    return int(number)


def _value(settings: Settings, key: str, default: Any = False) -> Any:
    """The value of a setting, as Python writes it."""
    text = settings.get(key, "").replace("\\", "")  # of patterns, which are read for their words
    try:
        return ast.literal_eval(text) if text else default
    except (ValueError, SyntaxError):
        raise UnusableRowError(f"{key} is neither yes, no nor a list: {text!r}") from None


def _blocks(key: str, value: Any, stages: int) -> Blocks:
    """Yes, no, or how many blocks of each stage, in one list or in one for each model chunk on a stage."""
    if isinstance(value, bool):
        return (ALL,) if value else (0,)
    runs = value if isinstance(value, list) and value and all(isinstance(run, list) for run in value) else [value]
    if not all(isinstance(run, list) and len(run) == stages and all(map(is_number, run)) for run in runs):
        raise UnusableRowError(f"{key} is not a list of one number per stage")
    return tuple(map(sum, zip(*runs, strict=True)))


def _more(one: Blocks, other: Blocks) -> Blocks:
    """The larger number of every stage."""
    if (ALL,) in (one, other):
        return (ALL,)
    return tuple(max(pair) for pair in _paired(one, other))


def _behind(whole: Blocks, selected: Blocks) -> Blocks:
    """What is left of the first `selected` blocks of every stage behind those that are recomputed as a whole."""
    if selected == (ALL,) or whole == (ALL,):
        return selected
    return tuple(max(0, more - first) for first, more in _paired(whole, selected))


def _paired(one: Blocks, other: Blocks) -> zip:
    stages = max(len(one), len(other))
    return zip(*(blocks * stages if len(blocks) == 1 else blocks for blocks in (one, other)), strict=True)
