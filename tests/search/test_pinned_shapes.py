"""What a search finds is no slower than what it finds where it is pinned how many stages and micro-batches there are."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request

A2 = load("atlas_800t_a2")


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

    assert step_s(Limits()) <= 1.01 * step_s(Limits({}, fixed))
