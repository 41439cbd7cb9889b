"""What a search finds is no slower than what it finds where it is pinned how many stages and micro-batches there are."""

from dataclasses import replace

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.cost.bill import Part
from ms_symtensor.cost.runtime import load as load_runtime
from ms_symtensor.models import planned, resolve
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request

A2 = load("atlas_800t_a2")


@pytest.mark.matrix
@pytest.mark.parametrize(
    "name, lora, device_num, batch, seq_length, pins",
    [
        ("llama3_70b", None, 256, 1024, 4096, (1, 1)),  # it fits where nearly all blocks are recomputed as a whole
        ("qwen1_5_72b", 16, 128, 512, 2048, (4, 16)),  # every micro-batch of model chunks copies frozen weights
    ],
)
def test_pins_of_stages_and_micro_batches_gain_nothing(name, lora, device_num, batch, seq_length, pins):
    model = resolve(name, batch, seq_length, {} if lora is None else {"lora": lora})
    fixed = dict(zip(("pipeline_stages", "micro_batch_num"), pins, strict=True))

    def step_s(limits):
        request = Request(A2, device_num, batch, seq_length, int(A2.device.hbm_usable_B), limits=limits)
        plan, _ = planned(model, request)
        assert plan.prediction.fits
        return plan.prediction.step_time_s

    assert step_s(Limits()) <= 1.01 * step_s(Limits(fixed, fixed))


def test_a_pin_of_the_optimizer_gains_nothing_where_communication_is_hidden():
    model, cluster = resolve("gpt2_xl", 64, 1024), load("atlas_800t_a3")
    runtime = load_runtime("mindspore_graph").hiding({Part.GRADIENTS: True, Part.WEIGHTS: True})
    request = Request(cluster, 32, 64, 1024, int(cluster.device.hbm_usable_B), runtime=runtime)
    sharded = {"optimizer_level": OptimizerLevel.LEVEL3}
    free, pinned = (
        planned(model, replace(request, limits=limits))[0].prediction for limits in (Limits(), Limits(sharded, sharded))
    )
    assert free.step_time_s <= 1.001 * pinned.step_time_s
