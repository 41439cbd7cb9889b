"""Command-line options of Megatron-LM and MindSpeed, as tables list them: words, some with a value behind `=`."""

import re
from collections.abc import Mapping
from typing import Any

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.runtime import Stored
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import (
    ALL,
    CAPACITY_FACTOR,
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    AttentionKernel,
    Configuration,
    Loss,
    Part,
    Precision,
    Recomputation,
    in_parts,
)
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers import common
from ms_symtensor.validation.readers.common import NAMES, Names
from ms_symtensor.validation.table import Row

Options = Mapping[str, str]

# What changes a step so much that the row says nothing about the configuration alone.
UNUSABLE = {
    "lora-target-modules": "LoRA: most weights are frozen",
    "swap-attention": "swap-attention: activations move to the host",
    "tp-2d": "tensor parallelism in two dimensions",
    "variable-seq-lengths": "variable-seq-lengths: the tokens of a step are not known",
    "dsa": "sparse attention",
}
STAGES = {"dpo": "stage=dpo: two models in one step"}


def options_of(*texts: str) -> Options:
    """The options in `texts`; what has no value maps to ""."""
    found = {}
    for word in " ".join(texts).replace("|", " ").replace("\\", " ").split():
        name, _, value = word.partition("=")
        found[name] = value
    return found


def must_be_usable(options: Options, packed: bool = False) -> None:
    """UnusableRowError, with the reason, for options that the cost model has no terms for.

    `packed`: samples are known to fill their sequences.
    """
    for name, reason in UNUSABLE.items():
        if name in options:
            raise UnusableRowError(reason)
    if options.get("stage") in STAGES:
        raise UnusableRowError(STAGES[options["stage"]])
    if options.get("stage") == "sft" and not packed:
        raise UnusableRowError("stage=sft: samples of unknown length, unless packed")


def configuration(
    row: Row, options: Options, model: TransformerConfig, names: Names = NAMES, **more: Any
) -> Configuration:
    """What MindSpeed runs under `options`, with the degrees of `row`; the optimizer and sequence parallelism as the options say,
    unless `more` does.
    """
    # With MindSpeed's --moe-tp-extend-ep tensor ranks too have experts of their own, whole ones (transformer/moe/moe_layer.py).
    extends = "moe-tp-extend-ep" in options
    own = {
        "sequence_parallel": "sequence-parallel" in options and row.count("tp") > 1,
        "optimizer_level": optimizer_level(options),
    }
    return common.configuration(
        row,
        model,
        names,
        **own | more,
        expert_parallel=(row.optional_count("ep") or 1) * (row.count("tp") if extends else 1),
        expert_model_parallel=1 if extends else _number(options.get("expert-tensor-parallel-size") or "0"),
        layers_on_stage=layers_on_stage(options),
        recomputation=recomputation(options, row.optional_count("vpp") or 1),
        attention=attention(options),
        fused_norm="use-fused-rmsnorm" in options,
        precision=precision(options),
        bytes_per_parameter=bytes_per_parameter(options),
        framework="mindspeed",
        exchanged_heads=options.get("context-parallel-algo") == "ulysses_cp_algo",
        loss=loss(row.date("date")),
        overlap_gradients="overlap-grad-reduce" in options,
        overlap_weights="overlap-param-gather" in options,
        # else these collectives run under products of the backward pass (megatron/core/tensor_parallel/layers.py)
        overlap_tensors="no-async-tensor-model-parallel-allreduce" not in options,
        # else a product and the addition of its weight's gradient are one kernel (MindSpeed, docs/features/npu_matmul_add.md)
        fused_gradient_sums="no-gradient-accumulation-fusion" not in options,
    )


def recomputation(options: Options, interleave: int = 1) -> Recomputation:
    """--recompute-*: whole blocks of each virtual stage (or of each stage, with enable-recompute-layers-per-pp-rank)."""
    if "recompute-activation-function" in options:
        blocks = options.get("recompute-activation-function-num-layers") or str(ALL)
        parts = (Part.ACTIVATION_FUNCTION, *((Part.NORM,) if "recompute-norm" in options else ()))
        return Recomputation(parts=in_parts(*parts, blocks=(_number(blocks),)))
    if options.get("recompute-granularity") == "selective" or "recompute-activations" in options:
        return SELECTIVE_RECOMPUTATION
    method = options.get("recompute-method", "")
    if method == "block" and "recompute-num-layers" in options:
        chunks = 1 if "enable-recompute-layers-per-pp-rank" in options else interleave
        return Recomputation(blocks=(_number(options["recompute-num-layers"]) * chunks,))
    if method == "custom" or options.get("checkpoint-policy") == "custom":
        raise UnusableRowError("a custom policy of recomputation")
    if method or "checkpoint-activations" in options or options.get("recompute-granularity") == "full":
        return FULL_RECOMPUTATION
    return NO_RECOMPUTATION


WORDS = {
    "": "",
    "none": "",
    "full": "recompute-granularity=full recompute-method=uniform",
    "selective": "recompute-granularity=selective",
}
"""What tables say about recomputation that is none of Megatron's options."""


def recomputing(text: str) -> str:
    """What a table says about recomputation, in Megatron's options. UnusableRowError for other words."""
    if text in WORDS:
        return WORDS[text]
    if not re.match(r"(recompute|checkpoint|swap)-", text):
        raise UnusableRowError("recomputation in words")
    return text


def layers_on_stage(options: Options) -> tuple[int, ...]:
    """--num-layer-list=1,2,2,1."""
    if "num-layer-list" not in options:
        return ()
    if not re.fullmatch(r"\d+(,\d+)*", options["num-layer-list"]):
        raise UnusableRowError("num-layer-list without its numbers")
    return tuple(map(int, options["num-layer-list"].split(",")))


def optimizer_level(options: Options) -> OptimizerLevel:
    """--use-distributed-optimizer: master weights and states are shared, weights and gradients are not."""
    return OptimizerLevel.LEVEL1 if "use-distributed-optimizer" in options else OptimizerLevel.NONE


def attention(options: Options) -> AttentionKernel:
    """--use-flash-attn, or Megatron's fused softmax."""
    return AttentionKernel.FLASH if "use-flash-attn" in options else AttentionKernel.FUSED_SOFTMAX


def precision(options: Options) -> Precision:
    """--bf16 or --fp16; bfloat16 if neither is there."""
    return "float16" if "fp16" in options else "bfloat16"


FLOAT16 = Stored(weight=2, master=8, gradient=2, states=8)
"""Under --fp16 gradients are summed as they are, and cast beside the master weights: 20 bytes of a parameter, 4 + 16/d where the
optimizer is distributed (Megatron-LM, docs, dist_optimizer.md; under --bf16 18, or 6 + 12/d).
"""


def bytes_per_parameter(options: Options) -> Stored:
    """--reuse-fp32-param: the upper half of the master weight is the weight, so both take four bytes together."""
    if precision(options) == "float16":
        return FLOAT16
    return Stored(weight=2, master=2) if "reuse-fp32-param" in options else Stored()


IN_PLACE_LOSS = "2025-07"
"""The month after MindSpeed 2.1.0, the last one for Megatron-LM's core 0.8 (release notes, hiascend.com). The loss of later
cores writes over the logits (megatron/core/tensor_parallel/cross_entropy.py); that core 0.8 copies them is empirical: the
peaks of rows before that month say so.
"""


def loss(date: str) -> Loss:
    """The loss of MindSpeed on `date` (year-month-day); "" is today."""
    return "copied" if date and date < IN_PLACE_LOSS else "in_place"


def imbalance(options: Options) -> float:
    """Tokens of the fullest expert over the mean: CAPACITY_FACTOR, but no more than --moe-expert-capacity-factor."""
    return min(CAPACITY_FACTOR, float(options.get("moe-expert-capacity-factor", CAPACITY_FACTOR)))


def _number(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise UnusableRowError(f"a number of layers that is none: {text!r}")
    return int(text)
