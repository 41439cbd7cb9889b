import pytest

from ms_symtensor.cost.runtime import Stored
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.validation.configuration import ALL, AttentionKernel, Part
from ms_symtensor.validation.dataset import UnusableRowError
from ms_symtensor.validation.readers import megatron


def test_options_are_words_with_or_without_value() -> None:
    assert megatron.options_of("bf16 num-layer-list=1,2", "", "fp16=| use-flash-attn") == {
        "bf16": "",
        "num-layer-list": "1,2",
        "fp16": "",
        "use-flash-attn": "",
    }


@pytest.mark.parametrize(
    "text, blocks, parts, part_blocks",
    [
        ("", (0,), set(), ALL),
        ("recompute-granularity=full recompute-method=uniform recompute-num-layers=1", (ALL,), set(), ALL),
        ("recompute-granularity=full recompute-method=block recompute-num-layers=3", (6,), set(), ALL),
        ("recompute-method=block recompute-num-layers=3 enable-recompute-layers-per-pp-rank", (3,), set(), ALL),
        ("recompute-granularity=selective", (0,), {Part.ATTENTION_CORE}, ALL),
        ("recompute-activation-function", (0,), {Part.ACTIVATION_FUNCTION}, ALL),
        ("recompute-activation-function recompute-activation-function-num-layers=1", (0,), {Part.ACTIVATION_FUNCTION}, 1),
        ("recompute-activation-function recompute-norm", (0,), {Part.ACTIVATION_FUNCTION, Part.NORM}, ALL),
        ("checkpoint-activations", (ALL,), set(), ALL),
    ],
)  # fmt: skip
def test_recomputation(text, blocks, parts, part_blocks) -> None:
    found = megatron.recomputation(megatron.options_of(text), interleave=2)
    assert (found.blocks, dict(found.parts)) == (blocks, dict.fromkeys(parts, (part_blocks,)))


def test_other_options() -> None:
    options = megatron.options_of(
        "use-distributed-optimizer reuse-fp32-param num-layer-list=1,2,2,1 bf16 use-flash-attn"
    )
    assert megatron.optimizer_level(options) is OptimizerLevel.LEVEL1
    assert megatron.bytes_per_parameter(options) == Stored(weight=2, master=2)
    assert megatron.layers_on_stage(options) == (1, 2, 2, 1)
    assert megatron.precision(options) == "bfloat16"
    assert megatron.attention(options) is AttentionKernel.FLASH
    half = megatron.options_of("fp16")
    assert megatron.precision(half) == "float16"
    assert megatron.bytes_per_parameter(half) == Stored(weight=2, master=8, gradient=2, states=8)
    assert megatron.imbalance(megatron.options_of("moe-expert-capacity-factor=0.5")) == 0.5
    plain = megatron.options_of("bf16")
    assert megatron.optimizer_level(plain) is OptimizerLevel.NONE
    assert megatron.attention(plain) is AttentionKernel.FUSED_SOFTMAX
    assert megatron.layers_on_stage(plain) == ()


@pytest.mark.parametrize(
    "text", ["lora-target-modules=q", "swap-attention", "tp-2d tp-x=2", "stage=dpo", "variable-seq-lengths"]
)
def test_what_no_term_describes_is_refused(text) -> None:
    with pytest.raises(UnusableRowError):
        megatron.must_be_usable(megatron.options_of(text))


def test_numbers_that_are_none() -> None:
    with pytest.raises(UnusableRowError, match="num-layer-list"):
        megatron.layers_on_stage(megatron.options_of("num-layer-list"))
    with pytest.raises(UnusableRowError, match="custom"):
        megatron.recomputation(megatron.options_of("recompute-method=custom checkpoint-activations"))
