"""What gradients of batched products hold in memory, as MindSpore compiles them."""

from functools import partial

import mindspore as ms
import pytest
from mindspore.common.initializer import Zero

from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.judge.audit import audit
from tests.bridge import gradient_networks as networks


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (partial(networks.Experts, "MatMulExt"), (32, 8, 16, 64)),
        (partial(networks.Experts, "BatchMatMul"), (32, 8, 16, 64)),
        (networks.Rows, (32, 4, 64)),
    ],
    ids=["experts", "experts with BatchMatMul", "rows"],
)
def test_peaks_are_those_of_the_compiled_program(make, shape):
    with ascend_compiler(4, 1):
        x = ms.Tensor(shape=shape, dtype=ms.float32, init=Zero())
        found = audit(make(), x, device_num=4, rank=1).verdict
    assert found.passed, found
    compared = found.comparison
    assert compared.predicted_activations_B == pytest.approx(compared.compiled_activations_B, rel=0.08), compared
