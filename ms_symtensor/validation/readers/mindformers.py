"""Settings of MindFormers' YAML files, as tables list them: `key=value;key=value`."""

import json
import re
from collections.abc import Mapping

from ms_symtensor.cost.configuration import ALL, AttentionKernel, Bytes, Part, Precision, Recomputation
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.dataset import UnusableRowError

Settings = Mapping[str, str]
BYTES = Bytes(
    weight=4, master=0, gradient=4, states=8
)  # weights and AdamWeightDecay's states in float32, cast where used
SELECTED = frozenset({Part.ACTIVATION_FUNCTION})  # MindFormers' select_recompute: feed_forward's SiLU and Mul


def settings_of(*texts: str) -> Settings:
    """The settings in `texts`."""
    found = {}
    for item in ";".join(texts).split(";"):
        key, equals, value = item.partition("=")
        if equals:
            found[key.strip()] = value.strip()
    return found


def recomputation(settings: Settings, stages: int) -> Recomputation:
    """`recompute` True or a list of blocks per stage; `select_recompute` True or a list, of which the parts are kept."""
    blocks = _per_stage(settings.get("recompute", "False"), stages)
    selected = any(_per_stage(settings.get("select_recompute", "False"), stages))
    return Recomputation(
        blocks=blocks,
        parts=SELECTED if selected else frozenset(),
        shard_kept=settings.get("recompute_slice_activation") == "True",
    )


def layers_on_stage(settings: Settings, layers: int, stages: int) -> tuple[int, ...]:
    """`offset`: blocks of each stage more or less than layers / stages; () where there is no list."""
    offset = settings.get("offset", "0")
    if not offset.startswith("["):
        return ()
    change = _list(offset)
    if len(change) != stages:
        raise UnusableRowError("offset is not a list of one number per stage")
    return tuple(layers // stages + more for more in change)


def attention(settings: Settings) -> AttentionKernel:
    """`use_flash_attention`."""
    return AttentionKernel.FLASH if settings.get("FA") == "True" else AttentionKernel.PLAIN


def precision(settings: Settings) -> Precision:
    """`compute_dtype`."""
    return "float16" if settings.get("dtype") == "float16" else "bfloat16"


def optimizer_level(zero: str) -> OptimizerLevel:
    """`enable_parallel_optimizer`, in the words of the tables."""
    return OptimizerLevel.NONE if zero in ("", "none", "none(dp=1)") else OptimizerLevel.LEVEL1


def _per_stage(value: str, stages: int) -> tuple[int, ...]:
    if value == "True":
        return (ALL,)
    if not value.startswith("["):
        return (0,)
    found = _list(value)
    if len(found) != stages:
        raise UnusableRowError("recomputation is not a list of one number per stage")
    return found


def _list(value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\[\s*-?\d+(\s*,\s*-?\d+)*\s*\]", value):
        raise UnusableRowError(f"a list of layers that is none: {value!r}")
    return tuple(json.loads(value))
