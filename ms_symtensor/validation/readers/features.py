"""feature_ab.csv: what one feature of MindSpeed gains on Ascend, of which the sign is judged."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import FULL_RECOMPUTATION, Configuration, Recomputation
from ms_symtensor.validation.dataset import Form, Pair, UnusableRowError
from ms_symtensor.validation.readers.published import published_model
from ms_symtensor.validation.table import Row

COLUMNS = ("feature", "model", "config", "baseline", "with_feature", "gain", "source")

OVERLAPS = {"overlap-param-gather": "overlap_weights", "async DDP (overlap-grad-reduce)": "overlap_gradients"}
RECOMPUTES = {"full recompute": FULL_RECOMPUTATION, "partial recompute": Recomputation(blocks=(16,))}
"""Partial: half of the 32 blocks of Llama-2 7B."""


def pair(row: Row) -> Pair:
    """The feature on and off: communication that is hidden, on two copies of the model in tensor-parallel stages, as scripts of
    MindSpeed-LLM have large networks; recomputation of Llama-2 7B, where the row says "general", on 8 devices.
    """
    feature, gain = row.text("feature"), row.text("gain")
    sign = re.search(r"throughput ([-+])", gain) or re.match(r"([-+])", gain)
    changes: Mapping[str, Any]
    if feature in OVERLAPS and sign:
        off, changes = _large(row.text("model")), {OVERLAPS[feature]: True}
    elif feature in RECOMPUTES and sign:
        off, changes = _small(), {"recomputation": RECOMPUTES[feature]}
    else:
        raise UnusableRowError(f"not modelled: {feature}")
    on = replace(off, **changes)
    better, worse = (on, off) if sign[1] == "+" else (off, on)
    return Pair(row.line, "sign", better, worse)


def _large(model: str) -> Configuration:
    return Configuration(
        published_model(model), 4096, data_parallel=2, model_parallel=8, sequence_parallel=True, pipeline_stages=4,
        micro_batch_num=32, optimizer_level=OptimizerLevel.LEVEL1, framework="mindspeed", overlap_gradients=False,
        overlap_weights=False, overlap_tensors=True,
    )  # fmt: skip


def _small() -> Configuration:
    return Configuration(
        published_model("Llama2-7B"), 4096, data_parallel=8, optimizer_level=OptimizerLevel.LEVEL3, framework="fsdp"
    )


FORM = Form("feature_ab", COLUMNS, pair)
