"""A price by few blocks is that of all blocks."""

from dataclasses import replace
from pathlib import Path

import pytest

from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cost.flops import model_flops
from ms_symtensor.cost.plan_price import plan_bill, priced
from ms_symtensor.cost.runtime import load as load_runtime
from ms_symtensor.models import resolve
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.uniform.folded import folded_bill, folded_flops
from ms_symtensor.uniform.layout import (
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    Degrees,
    Recomputation,
    Selection,
    Stages,
    UniformLayout,
)
from ms_symtensor.uniform.plan import graph_of, uniform_plan

A2 = load_cluster("atlas_800t_a2")
SOME = Recomputation(blocks=(2,), parts=((Selection.NORM, (-1,)), (Selection.ACTIVATION, (1,))))
CONFIGS = Path(__file__).parents[1] / "data/configs"
GPT_OSS, LLAMA_4 = (str(CONFIGS / name) for name in ("gpt_oss_20b.json", "llama_4_scout_17b_16e.json"))
CASES = {
    "one stage": ("llama2_7b", 9, UniformLayout(Degrees(4, 2, True), recompute=SOME)),
    "accumulation": ("gpt2_xl", 9, UniformLayout(Degrees(4, 2), Stages(1, 2), SELECTIVE_RECOMPUTATION)),
    "stages that differ": ("llama3_8b", 22, UniformLayout(Degrees(2), Stages(5, 8), SOME)),
    "virtual stages": ("llama3_8b", 30, UniformLayout(Degrees(2, 2, True), Stages(4, 8, 2), Recomputation((5,)))),
    "tied tables": ("bert_large", 15, UniformLayout(Degrees(2, 2), Stages(3, 4), FULL_RECOMPUTATION)),
    "adapters": ("qwen_7b_lora", 9, UniformLayout(Degrees(4), Stages(2, 4), NO_RECOMPUTATION)),
    "two kinds of blocks": ("deepseek_v3", 9, UniformLayout(Degrees(4, expert_parallel=4), Stages(2, 4), SOME)),
    "windows in turn": (GPT_OSS, 17, UniformLayout(Degrees(2, 2), recompute=SOME)),
    "windows in turn in stages": (GPT_OSS, 20, UniformLayout(Degrees(2), Stages(2, 4), Recomputation((4,)))),
    "windows in turn in virtual stages": (GPT_OSS, 20, UniformLayout(Degrees(2), Stages(2, 4, 2), SOME)),
    "one block of four without a window": (LLAMA_4, 19, UniformLayout(Degrees(2), Stages(1, 2), NO_RECOMPUTATION)),
    "stages of unlike lengths": (
        "llama3_8b",
        11,
        UniformLayout(Degrees(4), Stages(2, 4, layers=(7, 4)), FULL_RECOMPUTATION, OptimizerLevel.NONE),
    ),
    "the head on a stage of its own": (
        "llama2_7b",
        9,
        UniformLayout(Degrees(2), Stages(4, 2, layers=(4, 5, 0, 0), head_stage=-2), NO_RECOMPUTATION),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("runtime", ["mindspore_graph", "megatron"])
def test_a_price_by_few_blocks_is_that_of_all(name: str, runtime: str) -> None:
    model, blocks, layout = CASES[name]
    network = resolve(model, global_batch_size=8, seq_length=256).config
    assert network is not None
    config = replace(network, num_layers=blocks, kinds=network.kinds[:blocks])
    under = load_runtime(runtime)
    whole = uniform_plan(config, layout, is_lenient=True)
    expected = priced(plan_bill(whole.graph, whole.stages, whole.pipeline, whole.known, fuses=under.fuses), A2, under)
    found = priced(folded_bill(config, layout, under.fuses, is_lenient=True), A2, under)
    assert found.step_time_s == pytest.approx(expected.step_time_s, rel=1e-9)
    assert found.time_s == pytest.approx(expected.time_s, rel=1e-9)
    assert found.memory_B == expected.memory_B


@pytest.mark.parametrize(("model", "blocks"), [("llama2_7b", 7), ("deepseek_v3", 6), ("mixtral_8x7b", 4), (GPT_OSS, 7)])
def test_flops_by_one_block_of_each_kind_are_those_of_all(model: str, blocks: int) -> None:
    network = resolve(model, global_batch_size=8, seq_length=256).config
    assert network is not None
    config = replace(network, num_layers=blocks, kinds=network.kinds[:blocks])
    assert folded_flops(config) == pytest.approx(model_flops(*graph_of(config)), rel=1e-9)
