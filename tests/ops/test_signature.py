"""Signature lines, named dims, and the view of an operator."""

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.ops.rule import bind
from ms_symtensor.ops.signature import named, positive, view
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, Parameter, ParameterRef, TensorType, TupleInput
from tests.ops.views import make, tensors


def test_a_line_names_dims_and_roles():
    sig = bind("m k, n k -> m n", tensors("float16[8, 4], float16[16, 4]"), tensors("float16[8, 16]"), "op")
    assert sig.inputs == (("m", "k"), ("n", "k"))
    assert sig.sizes == {"m": 8, "k": 4, "n": 16}
    assert sig.reduced == ("k",)
    assert sig.cuttable == ("m", "k", "n")


def test_marks_hold_dims_whole_and_dots_stand_for_any_rank():
    sig = bind("... d!, d! -> ... d!", tensors("float32[2, 3, 8], float32[8]"), tensors("float32[2, 3, 8]"), "op")
    assert sig.inputs[0] == ("d0", "d1", "d")
    assert sig.cuttable == ("d0", "d1")


@pytest.mark.parametrize(
    ("line", "inputs", "message"),
    [
        ("m k -> m k -> m", "float16[8, 4]", "exactly one '->'"),
        ("m k n -> m", "float16[8, 4]", "reads"),
        ("m m -> m", "float16[8, 4]", "'m' is 8 .*and 4"),
        ("m k, n -> m", "float16[8, 4]", "1 tensor inputs"),
        ("m & -> m", "float16[8, 4]", "'&' is no dim and no mark"),
        ("[m k]t -> m k", "float16[8, 4]", "the word 't' of a bracket is not explained"),
        ("... ... -> ...", "float16[8, 4]", "need a word between them"),
        ("m k -> m | a = axis 0", "float16[8, 4]", "'a' must stand between two"),
        ("[m k -> m", "float16[8, 4]", "a bracket is closed"),
        ("... a! ... -> ... 1 ... | a", "float16[8, 4]", "write 'word = attribute number default'"),
        ("i... j... -> 1", "float16[8, 4]", r"how many dims i\.\.\. has"),
    ],
)
def test_a_line_that_does_not_fit_is_explained(line, inputs, message):
    with pytest.raises(InputError, match=message):
        bind(line, tensors(inputs), tensors("float16[8]"), "Default/x")


def test_nothing_on_the_left_is_no_input_or_a_scalar():
    made = tensors("float16[8, 4]")
    assert bind(" -> 1 1", (), made, "op").inputs == ()
    assert bind(" -> 1 1", tensors("float16[]"), made, "op").inputs == ((),)


def test_a_shared_name_of_two_sizes_is_cut_by_what_divides_both():
    sig = named(make("X", "float16[12, 1], float16[8, 5] -> float16[12, 5]"), [("n", "d"), ("n", "d")], [("n", "d")])
    assert sig.sizes == {"n": 4, "d": 5}
    assert sig.inputs == (("n", None), ("n", "d"))


def test_named_dims_must_fit_the_rank():
    with pytest.raises(InputError, match="expects 1 dims"):
        named(make("X", "float16[12, 1] -> float16[12]"), [("n",)], [("n",)])


@pytest.mark.parametrize(("axis", "found"), [(-1, (2,)), ((0, -2), (0, 1)), ((), (0, 1, 2)), (None, (0, 1, 2))])
def test_axes_are_counted_from_the_left(axis, found):
    assert positive(axis, 3) == found


def test_an_axis_that_is_none_is_refused():
    with pytest.raises(InputError, match="axis"):
        positive("x", 3)


def test_view_opens_tuples_and_keeps_positions_of_tensors():
    x, w, y = TensorType((2, 4), "float16"), TensorType((4,), "float16"), TensorType((2, 4), "float16")
    scale = Constant(tensor=TensorType((), "float16"))
    op = Op(
        "op",
        "X",
        (TupleInput((InputRef("x"), ParameterRef("w"))), Constant(None), scale, Constant(3)),
        (y,),
        (("a", 1),),
    )
    graph = Graph("g", (("x", x),), (Parameter("w", w),), (op,), InputRef("x"))
    seen = view(graph, op)
    assert seen.inputs == (x, w, TensorType((), "float16"))
    assert seen.positions == (0, 0, 2)
    assert seen.arguments == (None, 3)
    assert seen.argument(1, "n") == 3 and seen.argument(9, "a") == 1 and seen.argument(9, "b", 7) == 7
