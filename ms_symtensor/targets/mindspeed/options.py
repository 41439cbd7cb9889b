"""A uniform layout in the options of MindSpeed-LLM's launch scripts."""

import math

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.runtime import hidden_parts
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.targets.exporter import CannotSayError
from ms_symtensor.targets.mindspeed.dimensions import Options
from ms_symtensor.targets.mindspeed.recompute import counted
from ms_symtensor.targets.mindspeed.rules import refusal
from ms_symtensor.uniform.layout import Selection, UniformLayout

FUSED = ("use-flash-attn", "use-fused-rmsnorm", "use-fused-swiglu", "use-fused-rotary-pos-emb")
"""What `--runtime mindspeed` takes for fused, beside the loss."""


def layout_options(config: TransformerConfig, layout: UniformLayout, hide: str = "") -> Options:
    """What says `layout`, by the names of options; the batch of `config` is that of a step, and `hide` what the user says is
    hidden (`--hide`).

    Raises:
        CannotSayError: for what MindSpeed-LLM cannot run or be told.
    """
    if reason := refusal(config, layout):
        raise CannotSayError(reason.removeprefix("MindSpeed: "))
    of, stages = layout.degrees, layout.stages
    found = {
        "use-mcore-models": "",
        "tensor-model-parallel-size": str(of.model_parallel),
        "pipeline-model-parallel-size": str(stages.number),
        "micro-batch-size": str(config.batch_size // (of.data_parallel * stages.micro_batch_num)),
        "global-batch-size": str(config.batch_size),
        **({"sequence-parallel": ""} if of.sequence_parallel else {}),
        **_context(layout),
        **_blocks(config, layout),
        **_experts(config, layout),
        **_optimizer(layout),
        **_recompute(config, layout),
        **_fused(config),
        **_overlap(layout, hide),
    }
    return found


def _context(layout: UniformLayout) -> Options:
    of = layout.degrees
    if of.context_parallel == 1:
        return {}
    algorithm = "ulysses_cp_algo" if of.exchanges_heads else "megatron_cp_algo"
    return {"context-parallel-size": str(of.context_parallel), "context-parallel-algo": algorithm}


def _blocks(config: TransformerConfig, layout: UniformLayout) -> Options:
    stages = layout.stages
    held = stages.in_order(config.num_layers)
    if stages.interleave > 1:
        return {"num-layers-per-virtual-pipeline-stage": str(held[0])}
    return {"num-layer-list": ",".join(map(str, held))} if len(set(held)) > 1 else {}


def _experts(config: TransformerConfig, layout: UniformLayout) -> Options:
    if config.experts is None:
        return {}
    of = layout.degrees
    parallel = of.expert_parallel or math.gcd(of.data_parallel, config.experts.number)
    width = of.expert_model_parallel or of.model_parallel
    return {"expert-model-parallel-size": str(parallel), "expert-tensor-parallel-size": str(width)}


def _optimizer(layout: UniformLayout) -> Options:
    found = {} if layout.optimizer_level is OptimizerLevel.NONE else {"use-distributed-optimizer": ""}
    return {**found, "swap-optimizer": ""} if layout.swap_optimizer else found


def _recompute(config: TransformerConfig, layout: UniformLayout) -> Options:
    recomputation = counted(config, layout)
    found: Options = {}
    if recomputation.whole:
        found = {
            "recompute-granularity": "full",
            "recompute-method": "block",
            "recompute-num-layers": str(recomputation.whole),
        }
    if recomputation.part is Selection.ACTIVATION:
        found["recompute-activation-function"] = ""
    if recomputation.part is Selection.ATTENTION_CORE:
        found["recompute-granularity"] = "selective"
    return found


def _fused(config: TransformerConfig) -> Options:
    is_there = {
        "use-fused-rmsnorm": config.norm == "rms_norm",
        "use-fused-swiglu": config.activation == "swiglu",
        "use-fused-rotary-pos-emb": config.position == "rotary",
    }
    return {
        **{name: "" for name in FUSED if is_there.get(name, True)},
        "no-gradient-accumulation-fusion": "",
    }


def _overlap(layout: UniformLayout, hide: str) -> Options:
    """Sums of gradients, and gathers of weights, beside computation; MindSpeed's linear layers hide collectives unasked."""
    parts = hidden_parts(hide)
    hides_gradients, hides_weights = parts.get(Part.GRADIENTS, False), parts.get(Part.WEIGHTS, False)
    others = [part.value for part, wanted in parts.items() if wanted and part not in (Part.GRADIENTS, Part.WEIGHTS)]
    if others:
        raise CannotSayError(f"--hide {others[0]} has no option")
    if parts.get(Part.TENSOR) is False:
        raise CannotSayError("--hide none: its linear layers hide collectives of tensor parallelism")
    if hides_weights and not (hides_gradients and layout.optimizer_level is OptimizerLevel.LEVEL1):
        raise CannotSayError(
            "overlap-param-gather needs overlap-grad-reduce and use-distributed-optimizer (--hide gradients,weights)"
        )
    return {
        **({"overlap-grad-reduce": ""} if hides_gradients else {}),
        **({"overlap-param-gather": ""} if hides_weights else {}),
    }
