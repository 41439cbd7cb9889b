import mindspore as ms
import pytest
from mindspore import nn
from planned import OtherStep
from training_cells import Chained, Several, TwoNetworks

from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.plugin.training_network import forward_inputs, forward_network
from ms_symtensor.errors import InputError


@pytest.fixture
def net():
    return nn.WithLossCell(nn.Dense(4, 4), nn.MSELoss())


def test_it_is_found_in_mindspores_training_cells(net):
    optimizer = nn.SGD(net.trainable_params())
    assert forward_network(nn.TrainOneStepCell(net, optimizer)) is net
    scale = nn.FixedLossScaleUpdateCell(1024)
    assert forward_network(nn.TrainOneStepWithLossScaleCell(net, optimizer, scale)) is net


def test_it_is_found_in_custom_and_in_wrapped_cells(net):
    assert forward_network(OtherStep(net)) is net
    assert forward_network(Chained(OtherStep(net))) is net
    assert forward_network(Several(net)) is net


def test_a_cell_without_weights_has_none():
    assert forward_network(nn.ReLU()) is None


def test_what_is_no_training_step_is_refused(net):
    with pytest.raises(InputError, match="no training step is found in WithLossCell.*plan_network"):
        forward_network(net)
    with pytest.raises(InputError, match="TwoNetworks trains, but it has 2 networks.*plan_network"):
        forward_network(TwoNetworks(net, nn.Dense(4, 4)))


def shapes(cell, network, arguments, **settings):
    with stand_alone_context():
        ms.set_auto_parallel_context(device_num=1, **settings)
        return [tuple(t.shape) for t in forward_inputs(network, cell, arguments, 8)]


def test_inputs_have_global_shapes_and_those_of_the_step_are_left_out(net):
    x, sens = ms.Tensor([[0.0] * 4] * 2), ms.Tensor(1.0)
    step = OtherStep(net)
    assert shapes(step, net, (x, x, sens), full_batch=True) == [(2, 4), (2, 4)]
    assert shapes(step, net, (x, x, sens)) == [(16, 4), (16, 4)]
    assert shapes(step, net, (x, x, sens), dataset_strategy=((2, 1), (2, 4))) == [(4, 4), (4, 16)]


def test_a_sinking_data_set_tells_global_shapes(net):
    from mindspore.train.dataset_helper import _DataWrapper

    cell = _DataWrapper(OtherStep(net), (ms.float32, ms.float32), ((16, 4), (16, 4)), "queue")
    assert forward_network(cell) is net
    assert shapes(cell, net, ()) == [(16, 4), (16, 4)]


def test_too_few_inputs_are_refused(net):
    with pytest.raises(InputError, match="WithLossCell needs 2 inputs, but OtherStep is called with 1"):
        shapes(OtherStep(net), net, (ms.Tensor([[0.0] * 4]),), full_batch=True)
