"""One way of reading rows: what tables call degrees, batches and measurements, and what their words stand for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.uniform.layout import FULL_RECOMPUTATION, NO_RECOMPUTATION, SELECTIVE_RECOMPUTATION
from ms_symtensor.validation.configuration import Configuration
from ms_symtensor.validation.dataset import Measurement, UnusableRowError
from ms_symtensor.validation.table import Row

DEGREES = {
    "data_parallel": "dp", "model_parallel": "tp", "pipeline_stages": "pp", "context_parallel": "cp", "expert_parallel": "ep",
    "interleave": "vpp",
}  # fmt: skip
"""Columns of degrees, which are 1 where a table has no such column, or nothing in it."""
DEVICES = ("dp", "tp", "pp", "cp")
"""Whose product the devices are."""
MIB, GIB = 1 << 20, 1 << 30
TIME, RATE, MEMORY, SHARE = "step_time_s", "tokens_per_s", "peak_memory_B", "mfu"
MEASURED = {
    "step_ms": (TIME, 1e3), "step_s": (TIME, 1.0), "tok_s_dev": (RATE, 1.0), "tok_s_gpu": (RATE, 1.0), "mfu_pct": (SHARE, 100.0),
    "mfu": (SHARE, 100.0), "peak_mem_MB": (MEMORY, 1 / MIB), "max_alloc_MB": (MEMORY, 1 / MIB),
    "dryrun_peak_MB": (MEMORY, 1 / MIB), "peak_mem_GB": (MEMORY, 1 / GIB), "mem_gb": (MEMORY, 1 / GIB),
}  # fmt: skip
"""Columns of what was measured, and how many of their units are a second, the whole or a byte; rates are those of a device."""

LEVELS = {
    "^ZeRO-?3|^FSDP": OptimizerLevel.LEVEL3,
    "^ZeRO-?2": OptimizerLevel.LEVEL2,
    "^ZeRO(-?1|$)|^dist-opt": OptimizerLevel.LEVEL1,
    "^(none|$)": OptimizerLevel.NONE,
}
"""Patterns of what tables say of the optimizer's sharding."""
RECOMPUTATION = {
    "": NO_RECOMPUTATION, "none": NO_RECOMPUTATION, "disabled": NO_RECOMPUTATION, "full": FULL_RECOMPUTATION,
    "every_layer": FULL_RECOMPUTATION, "selective": SELECTIVE_RECOMPUTATION,
}  # fmt: skip
"""What tables say of recomputation in one word."""

_Meaning = TypeVar("_Meaning")


@dataclass(frozen=True)
class Names:
    """What a table calls what others call otherwise; `micro_batches` "": they follow from the batch."""

    micro_batch: str = "micro_batch"
    batch: str = "global_batch"
    seq_length: str = "seq_len"
    micro_batches: str = ""


NAMES = Names()


def must_be_given(row: Row, *columns: str) -> None:
    """UnusableRowError if one of `columns` is empty, in tables whose sources leave things out."""
    for column in columns:
        if not row.text(column):
            raise UnusableRowError(f"{column} is not given")


def known(row: Row, column: str, words: Mapping[str, _Meaning], patterns: bool = False) -> _Meaning:
    """What the cell stands for: the first that it is, or that occurs in it, of `words`. UnusableRowError where none is."""
    text = row.text(column)
    for word, meaning in words.items():
        if re.search(word, text, re.IGNORECASE) if patterns else word == text:
            return meaning
    raise UnusableRowError(f"unknown {column} {text!r}")


def number_in(words: str, pattern: str) -> int | None:
    """The number that the group of `pattern` finds in `words`, which may have commas; None where it finds none."""
    found = re.search(pattern, words)
    return int(found[1].replace(",", "")) if found else None


def is_timed(row: Row) -> bool:
    """Whether the row ran, and not out of memory. UnusableRowError for another status."""
    status = row.text("status")
    if status != "ok" and not re.search(r"(^|[^a-z])oom", status, re.IGNORECASE):
        raise UnusableRowError(f"status {status!r}: neither timed nor out of memory")
    return status == "ok"


def configuration(
    row: Row, model: TransformerConfig, names: Names = NAMES, copies: int = 1, **more: Any
) -> Configuration:
    """The step of a row: its degrees, whose product the devices must be, its sequence and its batch, of which `copies` parts run
    side by side; `more`: what else the configuration has.
    """
    found = {name: row.count(column) for name, column in DEGREES.items() if row.cells.get(column)}
    columns = [column for column in DEVICES if column in row.cells]
    if row.count("n_devices") != prod(row.count(c) if c != "cp" else row.optional_count(c) or 1 for c in columns):
        raise UnusableRowError(f"{' x '.join(columns)} is not n_devices")
    size = row.count(names.micro_batch) * copies
    if names.micro_batches:
        number = row.count(names.micro_batches)
    else:
        number, rest = divmod(row.count(names.batch), row.count("dp") * size)
        if rest or not number:
            raise UnusableRowError(f"{names.batch} is no multiple of dp x micro-batch")
    return Configuration(
        model, row.count(names.seq_length), **{"micro_batch_size": size, "micro_batch_num": number} | found | more
    )


def measured(row: Row, step: Configuration, *columns: str, timed: bool = True, **more: Any) -> Measurement:
    """What `columns` say of a step; of several that say the same the first that is filled. A step that ran has a time where one
    column alone is for it; UnusableRowError where it has nothing of all that.
    """
    found: dict[str, Any] = {}
    times = [column for column in columns if MEASURED[column][0] in (TIME, RATE)]
    for column in columns:
        what, unit = MEASURED[column]
        name = TIME if column in times else what
        is_optional = column not in times or len(times) > 1
        if name in found or (name == TIME and not timed) or (is_optional and not row.text(column)):
            continue
        if number := row.positive(column) if name == TIME else row.number(column):
            found[name] = step.tokens / (number * step.device_num) if what == RATE else number / unit
    if timed and not found:
        raise UnusableRowError("neither step time nor memory was measured")
    return Measurement(**{"fits": timed, **found, **more})
