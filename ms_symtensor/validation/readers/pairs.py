"""ascend_pairs.csv: which of two configurations was faster, or fitted, on Ascend; the configurations are words."""

import re
from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import (
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    Configuration,
    Part,
    Recomputation,
    in_parts,
)
from ms_symtensor.validation.dataset import Form, Pair, UnusableRowError
from ms_symtensor.validation.readers.common import known, number_in
from ms_symtensor.validation.readers.published import published_model
from ms_symtensor.validation.readers.slide import DEVICES as SLIDE_DEVICES
from ms_symtensor.validation.readers.slide import slide_configuration
from ms_symtensor.validation.table import Row

COLUMNS = ("model", "n_devices", "seq_len", "better_config", "better_value", "worse_config", "worse_value", "unit",
           "confidence", "comment", "source")  # fmt: skip
SEQ_LENGTH = 4096  # where a row gives none: that of most of the models
MICRO_BATCHES_OF_A_STAGE = 8  # where a row gives no batch: enough for a bubble of an eighth
UNITS = dict.fromkeys(("MFU%", "tok/s/p", "ms", "TFLOP/s", "bubble", "rel"), False) | {"fit": True}
"""Whether they compare memory."""


def pair(row: Row) -> Pair:
    """Words such as `DP4 PP2 dist-opt, no recompute, gbs256`.

    What only one side (or the comment) says of the batch holds for both; where nobody says anything, both take the same
    batch, of MICRO_BATCHES_OF_A_STAGE or more. MindFormers has one micro-batch in a step where there is no pipeline.
    """
    by_memory = known(row, "unit", UNITS)
    sides = row.text("better_config"), row.text("worse_config")
    if row.text("model") == "DeepSeek-V3" and row.text("n_devices") == str(SLIDE_DEVICES):
        better, worse = (slide_configuration(_degree(words, "DP") or 1, _degree(words, "TP") or 1) for words in sides)
        return Pair(row.line, row.text("confidence"), better, worse, by_memory)
    model, seq_length = published_model(row.text("model")), number_in(row.text("seq_len"), r"(\d+)") or SEQ_LENGTH
    mindspore = row.text("source").startswith(("MS|", "MindFormers"))
    devices = number_in(row.text("n_devices"), r"(\d+)")
    first, second = (_spread(words, devices, row.text("comment"), mindspore) for words in sides)
    batch = first.batch or second.batch
    if batch is None and not (first.micro_batch_num and second.micro_batch_num):
        batch = MICRO_BATCHES_OF_A_STAGE * max(s.data * s.micro_batch_size * s.stages for s in (first, second))
    better, worse = (
        _configuration(words, spread, model, seq_length, spread.batch or batch, mindspore)
        for words, spread in zip(sides, (first, second), strict=True)
    )
    return Pair(row.line, row.text("confidence"), better, worse, by_memory)


@dataclass(frozen=True)
class _Spread:
    """Degrees and batch of one side; None where its words do not say."""

    data: int
    tensor: int
    context: int
    stages: int
    micro_batch_size: int
    micro_batch_num: int | None
    batch: int | None


def _spread(words: str, device_num: int | None, comment: str, mindspore: bool) -> _Spread:
    tensor, context, stages = (_degree(words, name) or 1 for name in ("TP", "CP", "PP"))
    devices = number_in(words, r"\b(\d+)p\b") or device_num
    inner = tensor * context * stages
    data = _degree(words, "DP") or (max(1, devices // inner) if devices else _degree(words, "EP") or 1)
    return _Spread(
        data,
        tensor,
        context,
        stages,
        number_in(words, r"\bmbs ?(\d+)") or number_in(comment, r"\bmbs ?(\d+)") or 1,
        number_in(words, r"\bmb(\d+)") or (1 if mindspore and stages == 1 else None),
        number_in(words, r"\bgbs ?(\d+)") or number_in(comment, r"\bgbs ?(\d+)"),
    )


def _configuration(
    words: str, spread: _Spread, model: TransformerConfig, seq_length: int, batch: int | None, mindspore: bool
) -> Configuration:
    experts = number_in(words, r"(\d+) experts")
    if experts and (model.experts is None or model.experts.number != experts):
        raise UnusableRowError(f"{experts} experts, which the published model has not")
    # Megatron's distributed optimizer, as MindSpeed's scripts have it with copies
    level = number_in(words, r"ZeRO-?(\d)") or int(spread.data > 1 or mindspore)
    samples, expert_parallel = spread.data * spread.micro_batch_size, _degree(words, "EP") or 1
    return Configuration(
        model,
        seq_length,
        data_parallel=spread.data,
        model_parallel=spread.tensor,
        sequence_parallel=spread.tensor > 1,
        context_parallel=spread.context,
        expert_parallel=expert_parallel,
        expert_model_parallel=1 if mindspore and model.latent_attention else 0,
        pipeline_stages=spread.stages,
        interleave=_degree(words, "VPP") or 1,
        micro_batch_size=spread.micro_batch_size,
        micro_batch_num=spread.micro_batch_num or max(1, (batch or samples) // samples),
        optimizer_level=OptimizerLevel(level),
        recomputation=_recomputation(words, model, spread.stages),
        framework="mindspore" if mindspore else "mindspeed",
        overlap_gradients=False,
        overlap_weights=not mindspore,
        overlap_tensors=not mindspore,  # Megatron's default
    )


def _recomputation(words: str, model: TransformerConfig, stages: int) -> Recomputation:
    """ "partial" and "block" without a number: half of the blocks of each stage."""
    selected = in_parts(Part.ACTIVATION_FUNCTION) if re.search(r"select SiLU", words) else ()
    if "no recompute" in words or "recompute" not in words:
        return NO_RECOMPUTATION
    listed = re.search(r"\[([\d, ]+)\]", words)
    if listed:
        blocks = tuple(int(n) for n in listed[1].split(","))
        if len(blocks) != stages:
            raise UnusableRowError("recomputation is not a list of one number per stage")
        return Recomputation(blocks=blocks, parts=selected)
    if "select recompute" in words:
        return Recomputation(parts=in_parts(Part.ATTENTION_CORE, Part.ACTIVATION_FUNCTION))
    if "block" in words or "partial" in words:
        return Recomputation(blocks=(max(1, model.num_layers // stages // 2),), parts=selected)
    return FULL_RECOMPUTATION


def _degree(words: str, name: str) -> int | None:
    return number_in(words, rf"\b{name}(\d+)")


FORM = Form("ascend_pairs", COLUMNS, pair)
