"""How users write that an operator is cut so."""

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.operator_pins import OperatorPin, operator_pin


@pytest.mark.parametrize("text", ("(8,1)(1,1)", "(8, 1) (1, 1)", "(8,1),(1,1)", "((8, 1), (1, 1))"))
def test_a_strategy_as_shard_takes_it(text):
    assert operator_pin("*.query.matmul", text).inputs == ((8, 1), (1, 1))


def test_a_strategy_of_the_output_and_of_one_tensor():
    found = operator_pin("a.b", "(1,8)(1,8)->(8,1)")
    assert (found.inputs, found.outputs) == (((1, 8), (1, 8)), ((8, 1),))
    assert operator_pin("a.b", "((8,),)").inputs == ((8,),)


def test_slices_by_dim():
    assert operator_pin("a.b", "m/4, n/2") == OperatorPin("a.b", "m/4, n/2", dims={"m": 4, "n": 2})
    assert operator_pin("a.b", "d0/8,*") == OperatorPin("a.b", "d0/8,*", dims={"d0": 8}, rest_free=True)
    assert operator_pin("a.b", "whole").dims == {}


def test_degrees_by_name():
    found = operator_pin("a.b", "dp*tp,2")
    assert found.slices == (("dp", "tp"), ("2",)) and found.symbols == {"data_parallel", "model_parallel"}
    assert operator_pin("a.b", "dp").slices == (("dp",), ("1",))


@pytest.mark.parametrize("text", ("m/8,m/2", "m/8,n/2,m/8", "m/8,m/2,*"))
def test_a_dim_is_cut_once(text):
    with pytest.raises(InputError, match="says m more than once"):
        operator_pin("a.b", text)


@pytest.mark.parametrize("text", ("", "foo", "(8,1", "(8,1)x(1,1)", "m/0", "m/8,dp", "dp,tp,1", "dp+tp"))
def test_what_is_none_of_these(text):
    with pytest.raises(InputError, match="give a strategy such as"):
        operator_pin("a.b", text)
