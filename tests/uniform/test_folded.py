"""A stage's middle block stands for many: the bill is that of the whole network."""

import pytest

from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.flops import model_flops
from ms_symtensor.cost.plan_price import plan_bill, priced
from ms_symtensor.cost.runtime import load as runtime
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.uniform.folded import folded_bill
from ms_symtensor.uniform.layout import (
    FULL_RECOMPUTATION,
    NO_RECOMPUTATION,
    Degrees,
    Recomputation,
    Stages,
    UniformLayout,
)
from ms_symtensor.uniform.plan import uniform_plan

NETWORK = TransformerConfig(
    "small", 256, 11, 8, 8, 512, 1024, 64, "rms_norm", 1e-5, "swiglu", "rotary", False, False, True, seq_length=64, batch_size=4
)  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (UniformLayout(Degrees(2, 2, True), Stages(2, 4), NO_RECOMPUTATION), "megatron"),
        (UniformLayout(Degrees(4), Stages(2, 4, layers=(7, 4)), FULL_RECOMPUTATION, OptimizerLevel.NONE), "nanotron"),
        (UniformLayout(Degrees(2, 2), Stages(1, 2), Recomputation(blocks=(2,))), "mindformers_graph"),
        (UniformLayout(Degrees(4), Stages(1, 1)), "megatron"),
    ],
)
def test_few_blocks_are_priced_as_all_of_them(layout: UniformLayout, name: str) -> None:
    run, cluster = runtime(name), load("a100_80g")
    plan = uniform_plan(NETWORK, layout)
    whole = priced(plan_bill(plan.graph, plan.stages, plan.pipeline, plan.known, fuses=run.fuses), cluster, run)
    bill, flops = folded_bill(NETWORK, layout, run.fuses)
    found = priced(bill, cluster, run)
    assert found.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert found.memory_B == whole.memory_B
    assert flops == pytest.approx(model_flops(plan.graph, plan.known), rel=1e-12)
