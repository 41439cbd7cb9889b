"""Moves of a tensor inside and outside of a cell with a Morph: compiled as predicted."""

from dataclasses import replace

import mindspore as ms
from mindspore import Parameter, lazy_inline, nn, ops
from mindspore.parallel.shard import Layout

from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.judge.audit import audit
from ms_symtensor.program.effects import read_from_outside
from tests.bridge.networks import empty


def flat(x):
    return ops.reshape(x, (-1,))


def flat_shape(x):
    return [x[0] * x[1]]


def same(x):
    return x


class Written(nn.Cell):
    """A function on slices."""

    def __init__(self):
        super().__init__()
        lay = Layout((8,), ("data",))
        self.morph = ops.Morph(flat, flat_shape, same).add_prim_attr("self_define_shard", True)
        self.morph.shard((lay("data", "None"),), (lay("data"),))

    def construct(self, x):
        return self.morph(x)


class Scaled(nn.Cell):
    """A product over all devices; a sum of it over half of them."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(empty(8, 64, dtype=ms.float32), name="weight")
        self.mul, self.relu, self.sum = ops.Mul().shard(((8, 1), (8, 1))), ops.ReLU().shard(((4, 1),)), ops.ReduceSum()
        self.written = Written()

    def construct(self, x):
        product = self.mul(x, self.weight)
        return product, self.sum(self.relu(product)) + self.sum(self.written(x))


class Network(nn.Cell):
    """Reads the product twice more, in the layout of the sum."""

    @lazy_inline
    def __init__(self):
        super().__init__()
        self.scaled, self.sum = Scaled(), ops.ReduceSum()
        self.relu, self.square = ops.ReLU().shard(((4, 1),)), ops.Square().shard(((4, 1),))

    def construct(self, x):
        product, total = self.scaled(x)
        return total + self.sum(self.relu(product)) + self.sum(self.square(product))


class Outer(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.neg = inner, ops.Neg()

    def construct(self, x):
        return self.neg(self.inner(x))


def test_gathers_on_both_sides_of_a_cell_with_a_morph():
    with ascend_compiler(8, 0):
        found = audit(Outer(Network()), empty(8, 64, dtype=ms.float32), device_num=8).verdict
    assert found.passed, found


def test_who_reads_from_outside():
    with ascend_compiler(8, 0):
        graph = capture(Outer(Network()), empty(8, 64, dtype=ms.float32))
    outside = read_from_outside(graph)
    product = next(op.name for op in graph.ops if op.type == "Mul")
    readers = [op.name for op in graph.ops if op.type in ("ReLU", "Square")]
    assert sorted(outside(product, name) for name in readers) == [False, True, True]
    assert read_from_outside(replace(graph, attributes=())) is None
