"""Cells of a training step. They import mindspore at once: reached through `training.training_cell` only."""

import mindspore
from mindspore import nn, ops

from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED


class _Step(nn.Cell):
    """A network, the parameters that it is differentiated by, and its gradient."""

    def __init__(self, network, weights):
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.weights = weights
        self.gradient = ops.GradOperation(get_by_list=True, sens_param=True)


class GradientStep(_Step):
    """Loss and gradients of all trainable parameters."""

    def __init__(self, network):
        super().__init__(network, mindspore.ParameterTuple(network.trainable_params()))

    def construct(self, *inputs):
        return self.network(*inputs[:-1]), self.gradient(self.network, self.weights)(*inputs)


class OptimizerStep(_Step):
    """Loss, after the optimizer has applied the gradients."""

    def __init__(self, network, optimizer):
        super().__init__(network, optimizer.parameters)
        self.optimizer = optimizer

    def construct(self, *inputs):
        loss = self.network(*inputs[:-1])
        gradients = self.gradient(self.network, self.weights)(*inputs)
        return ops.functional.depend(loss, self.optimizer(gradients))


class AccumulationStep(_Step):
    """Loss, gradients and their sums over micro-batches: the parallel compiler writes the sums into `accu_grads`."""

    def __init__(self, network):
        super().__init__(network, mindspore.ParameterTuple(network.trainable_params()))
        self.accu_grads = self.weights.clone(prefix=ACCUMULATED, init="zeros")

    def construct(self, *inputs):
        loss = self.network(*inputs[:-1])
        gradients = self.gradient(self.network, self.weights)(*inputs)
        return loss, gradients, ops.depend(self.accu_grads, gradients)


class AccumulationOptimizerStep(_Step):
    """Loss, after the optimizer has applied what adds up over micro-batches; that is zero again then.

    As in MindSpore's own step (`nn.wrap.cell_wrapper._TrainGradAccuStepCell`): where the optimizer is `sharded`, the compiler
    gives it the sums in place of the gradients of the last micro-batch.
    """

    def __init__(self, network, optimizer, sharded):
        super().__init__(network, optimizer.parameters)
        self.optimizer, self.sharded = optimizer, sharded
        self.accu_grads = self.weights.clone(prefix=ACCUMULATED, init="zeros")
        self.hyper_map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs[:-1])
        gradients = self.gradient(self.network, self.weights)(*inputs)
        sums = ops.depend(self.accu_grads, gradients)
        loss = ops.depend(loss, self.optimizer(gradients if self.sharded else sums))
        return ops.depend(loss, self.hyper_map(_cleared, sums, gradients))


def _cleared(total, gradient):
    total = ops.depend(total, gradient)
    return ops.assign(total, ops.zeros_like(total))
