"""How the loss of a whole batch follows from those of its micro-batches."""

from fractions import Fraction

import pytest

from model_zoo import PUBLISHED, dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.program.micro_loss import factor_of_loss, terms_of_loss
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

X, MASK, LABELS, WEIGHT = InputRef("x"), InputRef("mask"), InputRef("labels"), ParameterRef("w")
ALL, SCALAR = Constant((0, 1)), TensorType((), "float32")


def pair(*ops):
    """The graph of `ops`, (name, type, inputs, shape), at 4 samples and at 8; "b" is the batch, and so is a constant "b"."""

    def at(batch):
        def sized(value):
            return tuple(map(sized, value)) if isinstance(value, tuple) else batch if value == "b" else value

        def kind(shape, dtype="float32"):
            return TensorType(sized(shape), dtype)

        inputs = (("x", kind(("b", 4))), ("mask", kind(("b", 4))), ("labels", kind(("b", 4), "int32")))
        made = tuple(
            Op(
                name,
                type_,
                tuple(Constant(sized(s.value)) if s == Constant("b") else s for s in sources),
                (kind(shape, "bool" if type_ == "NotEqual" else "float32"),),
            )
            for name, type_, sources, shape in ops
        )
        return Graph("Net", inputs, (Parameter("w", kind((4,))),), made, OpOutput(ops[-1][0]))

    return at(4), at(8)


def reduced(name, source, kind="ReduceSum"):
    return name, kind, (OpOutput(source) if isinstance(source, str) else source, ALL, Constant(False)), ()


LOSS = ("l", "Mul", (X, WEIGHT), ("b", 4))
MASKED = (LOSS, ("m", "Mul", (OpOutput("l"), MASK), ("b", 4)), reduced("total", "m"), reduced("count", MASK))
TOTAL, COUNT = OpOutput("total"), OpOutput("count")


def divided(by=COUNT, name="loss", kind="RealDiv"):
    return name, kind, (TOTAL, by), ()


def test_a_mean_over_the_samples_is_that_of_one_batch():
    factor = factor_of_loss(*pair(LOSS, reduced("loss", "l", "ReduceMean")))
    assert factor is not None and factor.is_one


def test_a_sum_over_a_number_that_goes_with_the_batch_is_a_mean():
    factor = factor_of_loss(*pair(LOSS, reduced("total", "l"), ("loss", "Divs", (TOTAL, Constant("b")), ())))
    assert factor is not None and factor.is_one


@pytest.mark.parametrize("after", [(), (("loss", "Divs", (TOTAL, Constant(512.0)), ()),)])
def test_a_sum_is_one_of_all_micro_batches(after):
    factor = factor_of_loss(*pair(LOSS, reduced("total", "l"), *after))
    assert factor is not None and (factor.scale, factor.count) == (2, None)


@pytest.mark.parametrize("kind", ["RealDiv", "InplaceDiv"])
def test_a_count_of_the_inputs(kind):
    factor = factor_of_loss(*pair(*MASKED, divided(kind=kind)))
    assert factor is not None and factor.count is not None
    assert factor.scale == 2
    assert [op.type for op in factor.count.micro.ops] == ["ReduceSum"]
    assert (factor.some, factor.none) == ({"mask": 1.0}, {"mask": 0.0})


def test_a_count_that_is_never_zero_is_one_too():
    some = ("some", "Maximum", (COUNT, Constant(tensor=SCALAR, elements=(1.0,))), ())
    factor = factor_of_loss(*pair(*MASKED, some, divided(OpOutput("some"))))
    assert factor is not None and factor.none == {}


def test_a_mean_over_a_mean():
    ops = (*MASKED[:2], reduced("total", "m", "ReduceMean"), reduced("count", MASK, "ReduceMean"), divided())
    factor = factor_of_loss(*pair(*ops))
    assert factor is not None and factor.scale == Fraction(1) and factor.count is not None


def test_labels_that_are_left_out():
    """The number that a comparison names is found; a label that counts is a valid one."""
    left_out = Constant(tensor=TensorType((), "int32"), elements=(-100,))
    counted = ("counted", "NotEqual", (LABELS, left_out), ("b", 4))
    mask = ("mask1", "Cast", (OpOutput("counted"), Constant(43)), ("b", 4))
    ops = (LOSS, counted, mask, ("m", "Mul", (OpOutput("l"), OpOutput("mask1")), ("b", 4)), reduced("total", "m"))
    factor = factor_of_loss(*pair(*ops, reduced("count", "mask1"), divided()))
    assert factor is not None
    assert factor.some == {"labels": 1.0} and factor.none == {"labels": -100}


def test_two_losses_over_one_count_have_one_factor():
    more = ("more", "RealDiv", (OpOutput("other"), OpOutput("count2")), ())
    ops = (*MASKED, divided(name="first"), reduced("other", "m"), reduced("count2", MASK), more)
    added = ("loss", "Add", (OpOutput("first"), OpOutput("more")), ())
    assert factor_of_loss(*pair(*ops, added)) is not None


def test_a_mean_beside_it_has_another_factor():
    beside = reduced("beside", "l", "ReduceMean")
    graphs = pair(*MASKED, divided(name="first"), beside, ("loss", "Add", (OpOutput("first"), OpOutput("beside")), ()))
    terms = terms_of_loss(*graphs)
    assert terms is not None and len(terms) == 2
    assert factor_of_loss(*graphs) is None


@pytest.mark.parametrize(
    ("ops", "known"),
    [
        ((*MASKED, divided(name="first")), True),
        ((LOSS, reduced("first", "l", "ReduceMean")), True),
        ((LOSS, reduced("first", "l")), False),  # the sum of micro-batches has the penalty so many times
        ((*MASKED, ("some", "Adds", (COUNT, Constant(1.0)), ()), divided(OpOutput("some"), "first")), False),
    ],
)
def test_a_penalty_of_weights_may_have_its_factors_where_their_mean_is_one(ops, known):
    square = ("square", "Square", (WEIGHT,), (4,))
    penalty = ("penalty", "ReduceSum", (OpOutput("square"), Constant((0,)), Constant(False)), ())
    loss = ("loss", "Add", (OpOutput("first"), OpOutput("penalty")), ())
    assert (factor_of_loss(*pair(*ops, square, penalty, loss)) is not None) == known


@pytest.mark.parametrize(
    "last",
    [
        (("loss", "Sqrt", (TOTAL,), ()),),
        (reduced("weights", "l"), divided(OpOutput("weights"))),  # a count that weights change
        (("unknown", "Erf", (COUNT,), ()), divided(OpOutput("unknown"))),  # an operator without a definition
        (("unknown", "Maximum", (COUNT, Constant(tensor=SCALAR)), ()), divided(OpOutput("unknown"))),
    ],
)
def test_other_forms_are_not_known(last):
    assert factor_of_loss(*pair(*MASKED, *last)) is None


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_of_the_zoo_count_by_their_masks(name):
    config = [dimensions_of(name, num_layers=4, seq_length=64, batch_size=batch) for batch in (2, 8)]
    terms = terms_of_loss(*map(build_graph, config))
    assert terms is not None and {term.scale for term in terms} == {4}
    masks = {next(name for name, _ in t.count.micro.inputs if name.endswith("loss_mask")) for t in terms if t.count}
    assert len(terms) == (2 if config[0].second_token_weight else 1) and masks
