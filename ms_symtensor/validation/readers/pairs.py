"""ascend_pairs.csv: which of two configurations was faster, or fitted, on Ascend; the configurations are words."""

import re
from dataclasses import replace

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
    comment, mindspore = row.text("comment"), row.text("source").startswith(("MS|", "MindFormers"))
    model, seq_length = published_model(row.text("model")), number_in(row.text("seq_len"), r"(\d+)") or SEQ_LENGTH
    devices, size = number_in(row.text("n_devices"), r"(\d+)"), number_in(comment, r"\bmbs ?(\d+)") or 1
    steps = [_of_one_micro_batch(words, model, seq_length, devices, size, mindspore) for words in sides]
    batches = [number_in(words, r"\bgbs ?(\d+)") or number_in(comment, r"\bgbs ?(\d+)") for words in sides]
    numbers = [
        number_in(words, r"\bmb(\d+)") or (1 if mindspore and step.pipeline_stages == 1 else None)
        for words, step in zip(sides, steps, strict=True)
    ]
    batch = batches[0] or batches[1]
    if batch is None and not all(numbers):
        batch = MICRO_BATCHES_OF_A_STAGE * max(step.global_batch_size * step.pipeline_stages for step in steps)
    better, worse = (
        replace(step, micro_batch_num=number or max(1, (own or batch or 0) // step.global_batch_size))
        for step, number, own in zip(steps, numbers, batches, strict=True)
    )
    return Pair(row.line, row.text("confidence"), better, worse, by_memory)


def _of_one_micro_batch(
    words: str, model: TransformerConfig, seq_length: int, device_num: int | None, size: int, mindspore: bool
) -> Configuration:
    """What the words of one side say, with one micro-batch of `size` samples of a copy where they say no other."""
    experts = number_in(words, r"(\d+) experts")
    if experts and (model.experts is None or model.experts.number != experts):
        raise UnusableRowError(f"{experts} experts, which the published model has not")
    tensor, context, stages = (_degree(words, name) or 1 for name in ("TP", "CP", "PP"))
    devices, expert_parallel = number_in(words, r"\b(\d+)p\b") or device_num, _degree(words, "EP") or 1
    data = _degree(words, "DP") or (max(1, devices // (tensor * context * stages)) if devices else expert_parallel)
    # Megatron's distributed optimizer, as MindSpeed's scripts have it with copies
    level = number_in(words, r"ZeRO-?(\d)") or int(data > 1 or mindspore)
    return Configuration(
        model,
        seq_length,
        data_parallel=data,
        model_parallel=tensor,
        sequence_parallel=tensor > 1,
        context_parallel=context,
        expert_parallel=expert_parallel,
        expert_model_parallel=1 if mindspore and model.latent_attention else 0,
        pipeline_stages=stages,
        interleave=_degree(words, "VPP") or 1,
        micro_batch_size=number_in(words, r"\bmbs ?(\d+)") or size,
        optimizer_level=OptimizerLevel(level),
        recomputation=_recomputation(words, model, stages),
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
