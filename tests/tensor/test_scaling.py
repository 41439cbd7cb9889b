"""A network at any batch from its graphs at two, against the network built there."""

from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.errors import InputError
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, TensorType
from ms_symtensor.tensor.scaling import Scaling


@pytest.mark.parametrize("name", ["llama2_7b", "mixtral_8x7b", "bert_large"])
def test_it_is_the_network_built_there(name):
    def at(batch):
        return build_graph(dimensions_of(name, num_layers=2, seq_length=64, batch_size=batch))

    scaling = Scaling(at(16), 16, at(8), 8)
    for batch in (1, 8, 12, 16, 32):
        assert scaling.at(batch) == at(batch)
        assert scaling.at(batch).hash == at(batch).hash


def products(batch):
    """Every sample times every other one, as contrastive losses have them."""
    kind = TensorType((batch, 4), "float32")
    op = Op("Default/MatMul-op0", "MatMul", (InputRef("x"), InputRef("x")), (TensorType((batch, batch), "float32"),))
    square = Op("Default/Reshape-op0", "Reshape", (OpOutput(op.name),), (TensorType((batch * batch,), "float32"),))
    return Graph("Net", (("x", kind),), (), (op, square), OpOutput(square.name))


def test_what_is_not_in_proportion_is_told():
    with pytest.raises(InputError, match=r"at 8 and 4 samples Default/Reshape-op0 has 64 and 16: neither the same"):
        Scaling(products(8), 8, products(4), 4).at(2)


def test_other_operators_are_told():
    less = replace(products(4), ops=products(4).ops[:1])
    with pytest.raises(InputError, match="at 8 and 4 samples it has other operators"):
        Scaling(products(8), 8, less, 4).at(2)


def test_operators_may_have_other_names():
    """MindSpore 2.9 calls what `ops.split` makes by the block of whichever call it saw first."""

    def named(batch, name):
        kind = TensorType((batch, 4), "float32")
        ops = Op(name, "ReLU", (InputRef("x"),), (kind,)), Op("last", "ReLU", (OpOutput(name),), (kind,))
        return Graph("Net", (("x", kind),), (), ops, OpOutput("last"))

    scaling = Scaling(named(8, "Default/ReLU-op0"), 8, named(4, "Default/blocks-CellList/1-Block/ReLU-op0"), 4)
    assert scaling.at(2) == named(2, "Default/ReLU-op0")


def test_what_does_not_divide_is_told():
    half = [Graph("Net", (("x", TensorType((batch // 2,), "float32")),), (), (), InputRef("x")) for batch in (8, 4)]
    assert Scaling(half[0], 8, half[1], 4).at(6).inputs == (("x", TensorType((3,), "float32")),)
    with pytest.raises(InputError, match="inputs has 4 and 2"):
        Scaling(half[0], 8, half[1], 4).at(3)
