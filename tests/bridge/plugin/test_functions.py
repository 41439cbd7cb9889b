from functools import partial
from types import SimpleNamespace

import mindspore as ms
import pytest
from mindspore import nn, ops
from mindspore.ops import GradOperation
from mindspore.parallel.auto_parallel import AutoParallel

from ms_symtensor.bridge.plugin.functions import networks_of

NET = nn.Dense(4, 4)
OTHER = nn.Dense(4, 4)
LOSS = nn.MSELoss()


class Trainer:
    def __init__(self):
        self.net, self.other = NET, OTHER
        self.gradients = ms.value_and_grad(self.forward, None, NET.trainable_params())

    def forward(self, x):
        return LOSS(self.net(x), x)

    def step(self, x):
        return self.gradients(x)

    def __call__(self, x):
        return self.step(x)


def of_a_global(x):
    return NET(x)


def of_a_closure(net=NET):
    optimizer = nn.SGD(net.trainable_params())
    gradients = ms.value_and_grad(net, None, optimizer.parameters)
    never = None if net is NET else OTHER
    return lambda x: (optimizer(gradients(x)[1]), never)


def of_a_comprehension(layers=(NET,)):
    return lambda x: [(lambda: layer(x))() for layer in layers]


def of_a_grad_operation():
    GradOperation(get_by_list=True)(OTHER, OTHER.trainable_params())
    return GradOperation(get_by_list=True)(NET, NET.trainable_params())


def of_namespaces(modules=SimpleNamespace(net=NET, other=OTHER)):  # noqa: B008
    return lambda x: modules.net(x)


def recursive(x):
    return of_a_global(x) if x.ndim else recursive(x)


FUNCTIONS = [
    of_a_global, of_a_closure(), of_a_comprehension(), of_a_grad_operation(), of_namespaces(), recursive,
    ms.jit(of_a_global), partial(of_a_global), partial(lambda net, x: net(x), NET), Trainer().step, Trainer(),
    AutoParallel(ms.jit(of_a_closure())),
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_a_function_calls_is_found(function):
    assert networks_of(function) == [NET]


def test_optimizers_and_cells_without_weights_are_no_networks():
    optimizer = nn.SGD(NET.trainable_params())
    assert networks_of(lambda x: optimizer(LOSS(ops.relu(x), x))) == []


def test_a_variable_without_a_value_is_passed_over():
    def function(x):
        return later(x)

    assert networks_of(function) == []
    later = NET
    assert networks_of(function) == [NET]
