import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.judge.audit import audit
from ms_symtensor.bridge.plugin.planning import plan_network
from ms_symtensor.errors import InputError
from tests.bridge.networks import TOKENS, Net, empty


def step():
    net = Net()
    return nn.TrainOneStepCell(net, nn.SGD(net.trainable_params()))


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (
            step,
            r"TrainOneStepCell computes gradients: give the forward network \(with its loss\), not TrainOneStepCell",
        ),
        (lambda: Net, r"found the class Net in place of a network: give an nn\.Cell"),
        (lambda: step, r"found a function in place of a network: give an nn\.Cell"),
    ],
)
@pytest.mark.parametrize("use", [capture, plan_network, audit])
def test_what_is_no_forward_network_is_refused(cell, told, use):
    options = {} if use is capture else {"device_num": 4}
    with pytest.raises(InputError, match=told):
        use(cell(), empty(TOKENS, dtype=ms.int32), **options)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (
            lambda: nn.PipelineCell(Net(), 4),
            r"PipelineCell cuts the batch into 4 micro-batches: give the network in it.*--fix micro_batch_num=4",
        ),
        (lambda: nn.GradAccumulationCell(Net(), 2), "GradAccumulationCell cuts the batch into 2 micro-batches"),
    ],
)
@pytest.mark.parametrize("use", [capture, plan_network])
def test_micro_batches_are_not_cut_by_the_network(cell, told, use):
    """Only audit takes them as they are written."""
    options = {} if use is capture else {"device_num": 4}
    with pytest.raises(InputError, match=told):
        use(cell(), empty(TOKENS, dtype=ms.int32), **options)


@pytest.mark.parametrize("shape", [(None,), None])
def test_dynamic_shapes_are_refused(shape):
    with pytest.raises(InputError, match="input 0 has a dynamic shape: give one of fixed shape"):
        capture(Net(), ms.Tensor(shape=shape, dtype=ms.int32))


@pytest.mark.parametrize(
    "given", [np.ones((2, 4), np.float32), {"x": ms.Tensor([1])}, "text", nn.ReLU(), 2.0, True, None]
)
def test_what_is_no_tensor_is_named(given):
    with pytest.raises(
        InputError, match=f"input 1 is a {type(given).__name__}: give a mindspore.Tensor for every input"
    ):
        capture(Net(), empty(TOKENS, dtype=ms.int32), given)
