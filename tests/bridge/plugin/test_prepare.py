"""What happens before a compile in the search mode: here nothing is compiled."""

import mindspore as ms
import pytest
from mindspore import nn
from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell
from planned import network
from plans import data_times_tensor, plan_of, small_graph

from model_zoo.network import optimizer
from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.plugin.planning import plan_on, put
from ms_symtensor.bridge.plugin.prepare import prepare, prepare_function
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel


@pytest.fixture
def context():
    """The parallel context of a program on eight devices."""
    with ascend_compiler(8), stand_alone_context():
        ms.set_auto_parallel_context(parallel_mode="auto_parallel", device_num=8, global_rank=0, full_batch=True)
        yield


@pytest.fixture
def cell(context):
    """A planned network, whose optimizer is sharded."""
    cell, _ = network()
    graph = small_graph("llama2_7b", attention="self")
    put(cell, graph, plan_of(graph, data_times_tensor(graph, 2, 4), 8, optimizer_level=OptimizerLevel.LEVEL1))
    return cell


def step(cell):
    return nn.TrainOneStepCell(cell, optimizer(cell.trainable_params()))


def test_a_planned_network_is_compiled_by_its_plan(cell):
    prepare(step(cell), (), None)
    assert ms.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"


def test_what_evaluates_a_part_of_a_planned_network_goes_on_with_its_plan(cell):
    around = nn.WithEvalCell(cell.norm, nn.MSELoss())
    assert plan_on(around) is None
    prepare(around, (), None)
    assert ms.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"


def test_weights_of_no_plan_beside_planned_ones_are_told(cell):
    around = nn.WithEvalCell(nn.SequentialCell(cell.norm, nn.Dense(4, 4)), nn.MSELoss())
    with pytest.raises(InputError, match="no training step is found in WithEvalCell"):
        prepare(around, (), None)


def test_a_network_that_was_changed_after_it_was_planned_is_told(cell):
    cell.layers.append(nn.Dense(4, 4))
    with pytest.raises(InputError, match=r"RotaryDecoder is not the network that was planned \(layers\.2 is new"):
        prepare(step(cell), (), None)


def test_a_network_that_is_planned_for_other_devices_is_told(cell):
    ms.set_auto_parallel_context(device_num=4)
    with pytest.raises(InputError, match="planned for 8 devices, and 4 are there: plan it again for 4"):
        prepare(step(cell), (), None)


def test_a_step_that_does_not_add_up_micro_batches_is_told(cell):
    with pytest.raises(InputError, match="TrainOneStepCell does not add up the gradients of 2 micro-batches"):
        prepare(step(nn.GradAccumulationCell(cell, 2)), (), None)


def test_a_step_that_adds_micro_batches_up_is_told_that_the_optimizer_is_sharded(cell):
    accumulating = _TrainGradAccuStepCell(nn.GradAccumulationCell(cell, 2), optimizer(cell.trainable_params()))
    assert not accumulating.opt_shard  # there was no plan yet
    prepare(accumulating, (), None)
    assert accumulating.opt_shard


def test_so_is_what_adds_them_up_in_a_function(cell):
    micro, update = nn.PipelineCell(cell, 2), optimizer(cell.trainable_params())
    gradients, reducer = ms.value_and_grad(micro, None, update.parameters), nn.PipelineGradReducer(update.parameters)

    def function(*inputs):
        loss, grads = gradients(*inputs)
        update(reducer(grads))
        return loss

    prepare_function(function)
    assert reducer.opt_shard


def test_one_device_is_told_how_there_are_several(capfd):
    """Once: a script that forgets `init()` has one device on every rank."""
    net = step(nn.Dense(4, 4))
    prepare(net, (), None)
    prepare(net, (), None)
    assert capfd.readouterr().err.count("call mindspore.communication.init() before the first step") == 1
