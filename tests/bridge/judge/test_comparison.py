"""Predicted and compiled programs side by side, where gradients are summed and where MindSpore leaves that out."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from mindspore.nn.utils import no_init_parameters

from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture, primitive_of
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.judge.comparison import compare
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.parameters import require_synchronised
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.strategy.primitives import context_settings
from ms_symtensor.tensor.graph import ParameterRef
from tests.bridge import gradient_networks as networks

DEVICES = 4


def data_parallel(graph):
    """Activations cut along their leading dim, weights whole."""
    found = {}
    for op in graph.ops:
        sources = graph.tensor_inputs(op)
        ranks = [len(graph.type_of(s).shape) for s in sources]
        if op.type in ("Cast", "Reshape"):
            continue
        if op.type == "MatMul":
            found[op.name] = OpStrategy(((DEVICES, 1), (1, 1)))
        elif op.type == "Gather":
            found[op.name] = OpStrategy(((1, 1), (DEVICES,)))
        elif isinstance(sources[0], ParameterRef):
            found[op.name] = OpStrategy(((1, 1),))
        else:
            found[op.name] = OpStrategy(tuple((DEVICES, 1) if r == 2 else (1,) * r for r in ranks))
    return found


def compared(network, **settings):
    with no_init_parameters():
        net = getattr(networks, network)()
    net.set_train()
    x = ms.Tensor(shape=(networks.ROWS, networks.IN), dtype=ms.float32, init=ms.common.initializer.Zero())
    graph = capture(net, x)
    plan = StagePlan(data_parallel(graph), Settings(DEVICES, parallel_optimizer_threshold_KB=0, **settings))
    for op in graph.ops:
        if op.name in plan.strategies:
            primitive_of(net, op).shard(plan.strategies[op.name].inputs)
    context = context_settings(plan.settings)
    parallel = ParallelConfig(**context.pop("parallel_optimizer_config", {}), **context)
    compiled = compile_rank(training_cell(net), x, ms.Tensor(np.float32(1)), device_num=DEVICES, parallel=parallel)
    predicted = partition(graph, plan)
    return predicted, compiled, compare(graph, predicted, compiled)


@pytest.mark.parametrize("network", ["Direct", "Transposed", "Both", "ThroughAnOperator", "Twice", "Reshaped", "Tied"])
@pytest.mark.parametrize("level", [0, 1])
def test_prediction_equals_program(network, level):
    predicted, _, found = compared(network, optimizer_level=OptimizerLevel(level))
    assert found.differences == ()
    assert found.predicted_parameters_B == found.compiled_parameters_B
    left_out = ("w",) if level == 0 and network in ("Transposed", "Both") else ()
    assert found.unsynchronised == left_out
    if left_out:
        with pytest.raises(InvalidStrategyError, match="parameter w"):
            require_synchronised(predicted.parameters, DEVICES)
    else:
        require_synchronised(predicted.parameters, DEVICES)


@pytest.mark.parametrize("shard", [-1, 2])
@pytest.mark.parametrize("exact", [True, False])
def test_a_tied_weight_under_level3(shard, exact):
    settings = {"optimizer_weight_shard_size": shard, "gradient_fp32_sync": exact}
    _, _, found = compared("Tied", optimizer_level=OptimizerLevel.LEVEL3, **settings)
    assert found.differences == () and found.unsynchronised == ()


def test_differences_are_named():
    predicted, compiled, _ = compared("Direct")
    without = replace(predicted, nodes=tuple(n for n in predicted.nodes if n.parameter != "w"))
    with no_init_parameters():
        graph = capture(
            networks.Direct(), ms.Tensor(shape=(32, 128), dtype=ms.float32, init=ms.common.initializer.Zero())
        )
    found = compare(graph, without, compiled)
    assert found.differences == ("backward AllReduce of 32768 B over ranks [0, 1, 2, 3]: predicted 0, compiled 1",)
    assert not found.equal
