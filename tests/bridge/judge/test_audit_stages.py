"""Pipeline stages and micro-batches that users write themselves, audited."""

import mindspore as ms
import pytest
from mindspore import Parameter, Tensor, lazy_inline, nn, ops
from mindspore.common.initializer import Zero
from mindspore.nn.utils import no_init_parameters

from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.judge.audit import audit
from ms_symtensor.errors import InputError

SMALL = {"parallel_optimizer_config": {"parallel_optimizer_threshold": 0}}
"""Weights below MindSpore's threshold are sharded, too."""


def tensor(*shape, dtype=ms.float32):
    return Tensor(shape=shape, dtype=dtype, init=Zero())


class Block(nn.Cell):
    """x + relu(x @ up^T) @ down^T on data x tensor parallelism."""

    def __init__(self, kind, data=2, tensors=2):
        super().__init__()
        self.up, self.down = Parameter(tensor(128, 64), name="up"), Parameter(tensor(64, 128), name="down")
        self.first, self.second = ops.MatMul(transpose_b=True), ops.MatMul(transpose_b=True)
        self.relu, self.add, self.cast, self.kind = ops.ReLU(), ops.Add(), ops.Cast(), kind
        self.first.shard(((data, 1), (tensors, 1)))
        self.relu.shard(((data, tensors),))
        self.second.shard(((data, tensors), (1, tensors)))
        self.add.shard(((data, 1), (data, 1)))

    def construct(self, x):
        up, down = self.cast(self.up, self.kind), self.cast(self.down, self.kind)
        return self.add(x, self.second(self.relu(self.first(x, up)), down))


class Network(nn.Cell):
    """Blocks on stages, and a product before the sum."""

    kind = ms.float32

    def __init__(self, stages, data=2, tensors=2):
        super().__init__()
        self.layers = nn.CellList([Block(self.kind, data, tensors) for _ in stages])
        for layer, stage in zip(self.layers, stages, strict=True):
            if stage is not None:
                layer.pipeline_stage = stage
        self.head, self.weight = ops.MatMul(), Parameter(tensor(64, 64), name="head")
        self.head.shard(((data, 1), (1, tensors)))
        self.sum = ops.ReduceSum().shard(((data, tensors),))

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.sum(ops.cast(self.head(x, ops.cast(self.weight, self.kind)), ms.float32), (0, 1))


class Product(nn.Cell):
    """x @ weight on `stage`."""

    def __init__(self, stage):
        super().__init__()
        self.product, self.pipeline_stage = ops.MatMul().shard(((2, 1), (1, 1))), stage

    def construct(self, x, weight):
        return self.product(x, weight)


class LazyNetwork(Network):
    """The same, compiled once for all micro-batches; the weight of the first product is also that of the last."""

    @lazy_inline
    def __init__(self, stages):
        super().__init__(stages)
        self.first, self.head = Product(0), Product(1)
        self.first.weight = Parameter(tensor(64, 64), name="first")

    def construct(self, x):
        x = self.first(x, self.first.weight)
        for layer in self.layers:
            x = layer(x)
        return self.sum(self.head(x, self.first.weight), (0, 1))


def audited(stages, stage_num, wrap, rank, recompute=False, make=Network, **settings):
    with stand_alone_context(), no_init_parameters():
        network = make(stages)
        if recompute:
            for layer in network.layers:
                layer.recompute()
        ms.set_auto_parallel_context(
            parallel_mode="semi_auto_parallel", device_num=8, full_batch=True, pipeline_stages=stage_num, **settings
        )
        return audit(wrap(network), tensor(64, 64, dtype=make.kind), device_num=4 * stage_num, rank=rank)


@pytest.mark.parametrize(
    ("wrap", "rank", "settings"),
    [
        (lambda network: nn.PipelineCell(network, 4), 6, {"enable_parallel_optimizer": True}),
        (lambda network: network, 1, {"recompute": True}),
        (lambda network: network, 5, {"enable_parallel_optimizer": True, "make": LazyNetwork, **SMALL}),
    ],
)
def test_stages_of_cells_are_compiled_as_predicted(wrap, rank, settings):
    found = audited([0, 0, 1, 1], 2, wrap, rank, **settings)
    assert found.verdict.passed, found.verdict
    assert {"Send", "Receive"} <= {cost.kind for cost in found.costs}
    assert all(rank in cost.ranks for cost in found.costs)


def test_gradients_that_add_up_on_one_stage_are_compiled_as_predicted():
    found = audited([None, None], 1, lambda network: nn.GradAccumulationCell(network, 2), 3)
    assert found.verdict.passed, found.verdict


@pytest.mark.parametrize(
    ("stages", "told"),
    [([0, None], "layers.1 has no pipeline_stage"), ([1, 0], r"pipeline stages \[1, 0\] in this order")],
)
def test_stages_that_are_no_pipeline_are_refused(stages, told):
    with pytest.raises(InputError, match=told):
        audited(stages, 2, lambda network: network, 0)
