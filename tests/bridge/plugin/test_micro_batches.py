"""Networks that do not fit as a whole batch, planned by the search mode."""

import pytest
from planned import network

from ms_symtensor.bridge.plugin.planning import plan_network, plan_on
from ms_symtensor.errors import InfeasibleError


@pytest.mark.parametrize(
    ("limit_GiB", "fits"),
    (
        (1.0, r"in micro-batches it fits: nn.GradAccumulationCell\(network, \d+\) around the forward network"),
        pytest.param(0.4, "no change that was tried fits$", marks=pytest.mark.matrix),
        (0.1, "^nothing fits 102.4 MiB on 4 devices: whatever the plan"),
    ),
)
def test_where_the_whole_batch_does_not_fit_micro_batches_that_do_are_told(limit_GiB, fits):
    cell, inputs = network(num_layers=4, seq_length=1024, batch_size=32)
    with pytest.raises(InfeasibleError, match=fits):
        plan_network(cell, *inputs, device_num=4, memory_limit_B=int(limit_GiB * (1 << 30)))
    assert plan_on(cell) is None
