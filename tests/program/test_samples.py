"""Which networks train something else in micro-batches than in one batch."""

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.program.samples import where_samples_meet
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

X, MASK, WEIGHT = InputRef("x"), InputRef("mask"), ParameterRef("w")
TIMES_WEIGHT = ("y", "Mul", (X, WEIGHT), ("b", 4))
"""What weights make of every sample."""


def meeting(*ops):
    """What is said of a network of `ops`: (name, type, inputs, shape), the last of them its loss; "b" is the batch."""

    def at(batch):
        def kind(shape):
            return TensorType(tuple(batch if n == "b" else n for n in shape), "float32")

        inputs = (("x", kind(("b", 4))), ("mask", kind(("b", 4))))
        made = tuple(Op(name, type_, sources, (kind(shape),)) for name, type_, sources, shape in ops)
        return Graph("Net", inputs, (Parameter("w", kind((4,))),), made, OpOutput(ops[-1][0]))

    return where_samples_meet(at(8), at(4))


def mean(name, source, shape=(), axis=(0, 1)):
    return name, "ReduceMean", (source, Constant(axis), Constant(len(shape) == 2)), shape


Y = OpOutput("y")
MEAN = mean("mean", Y, (4,), (0,))


@pytest.mark.parametrize("name", PUBLISHED)
def test_they_do_not_in_networks_of_the_zoo(name):
    whole, part = (build_graph(dimensions_of(name, num_layers=5, seq_length=64, batch_size=batch)) for batch in (4, 2))
    assert where_samples_meet(whole, part) == ""


def test_every_sample_beside_every_other_one():
    product = ("product", "MatMul", (Y, Y, Constant(False), Constant(True)), ("b", "b"))
    assert meeting(TIMES_WEIGHT, product, mean("loss", OpOutput("product"))).startswith(
        "at product (MatMul) samples meet"
    )


@pytest.mark.parametrize(("axis", "shape", "meets"), [((1,), ("b", 1), False), ((0,), (1, 4), True)])
def test_what_is_left_beside_a_mean(axis, shape, meets):
    rest = ("rest", "Sub", (Y, OpOutput("m")), ("b", 4))
    found = meeting(TIMES_WEIGHT, mean("m", Y, shape, axis), rest, mean("loss", OpOutput("rest")))
    assert found.startswith("at rest (Sub) samples meet") == meets and bool(found) == meets


def test_a_product_of_two_means_one_of_which_has_no_gradient():
    hot = ("hot", "Greater", (Y, Constant(0.0)), ("b", 4))
    share = mean("share", OpOutput("hot"), (4,), (0,))
    product = ("product", "Mul", (OpOutput("mean"), OpOutput("share")), (4,))
    found = meeting(TIMES_WEIGHT, MEAN, hot, share, product, mean("loss", OpOutput("product"), axis=(0,)))
    assert found.startswith("product (Mul) is not linear in what is summed over the samples")


@pytest.mark.parametrize(
    ("type_", "inputs", "is_linear"),
    [
        ("Muls", (Constant(0.01),), True),
        ("Mul", (WEIGHT,), True),
        ("Add", (WEIGHT,), True),
        ("RealDiv", (WEIGHT,), True),
        ("Neg", (), True),
        ("Reshape", (Constant((4,)),), True),
        ("Mul", (OpOutput("mean"),), False),
        ("RealDiv", (OpOutput("mean"),), False),
        ("Square", (), False),
        ("Exp", (), False),
        ("Maximum", (WEIGHT,), False),
        ("Greater", (WEIGHT,), False),
    ],
)
def test_what_follows_a_mean_is_linear_in_it(type_, inputs, is_linear):
    after = ("after", type_, (OpOutput("mean"), *inputs), (4,))
    found = meeting(TIMES_WEIGHT, MEAN, after, mean("loss", OpOutput("after"), axis=(0,)))
    assert (found == "") == is_linear, found


@pytest.mark.parametrize(("counted", "meets"), [(MASK, False), (Y, True)])
def test_a_mean_of_what_counts_is_divided_by_what_no_weight_changes(counted, meets):
    total = ("total", "ReduceSum", (Y, Constant((0, 1)), Constant(False)), ())
    count = ("count", "ReduceSum", (counted, Constant((0, 1)), Constant(False)), ())
    some = ("some", "Maximum", (OpOutput("count"), Constant(1.0)), ())
    loss = ("loss", "RealDiv", (OpOutput("total"), OpOutput("some")), ())
    found = meeting(TIMES_WEIGHT, total, count, some, loss)
    assert bool(found) == meets, found


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [
        ("ReduceMax", (Constant((0,)), Constant(False))),
        ("LogSumExp", (Constant((0,)), Constant(False))),
        ("Gather", (Constant(tensor=TensorType((), "int32")), Constant(0), Constant(0))),
    ],
)
def test_not_every_reduction_is_a_sum(type_, inputs):
    reduced = ("reduced", type_, (Y, *inputs), (4,))
    found = meeting(TIMES_WEIGHT, reduced, mean("loss", OpOutput("reduced"), axis=(0,)))
    assert found.startswith(f"at reduced ({type_}) samples meet otherwise than in a sum"), found


def test_a_product_that_sums_over_samples_is_a_sum():
    product = ("product", "MatMul", (Y, X, Constant(True), Constant(False)), (4, 4))
    assert meeting(TIMES_WEIGHT, product, mean("loss", OpOutput("product"))) == ""
