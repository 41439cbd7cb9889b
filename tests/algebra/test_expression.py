import math

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from sympy.codegen.cfunctions import log2

from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.algebra.symbols import symbol

x = symbol("test_x", "1", "first variable of the tests")
y = symbol("test_y", "1", "second variable of the tests")


def test_arrays_broadcast():
    f = compile_expression(x**2 + y, [x, y])
    result = f(test_x=np.array([[1.0], [2.0]]), test_y=np.array([10.0, 20.0]))
    np.testing.assert_array_equal(result, [[11, 21], [14, 24]])


def test_several_expressions_at_once():
    f = compile_expression({"sum": x + y, "five": sympy.Integer(5)}, [x, y])
    assert f(test_x=1, test_y=2) == {"sum": 3, "five": 5}


positive = st.floats(1e-3, 1e6)


@given(st.lists(positive, min_size=1, max_size=5), positive)
def test_max_min_piecewise_and_rounding_mix_numbers_and_arrays(xs, number):
    expressions = {
        "max": sympy.Max(x, y, 3),
        "min": sympy.Min(x, y),
        "cases": sympy.Piecewise((x, x < y), (sympy.Max(y, 2), x < 2 * y), (7, True)),
        "steps": sympy.ceiling(x / y) + sympy.floor(y),
    }
    result = compile_expression(expressions, [x, y])(test_x=np.array(xs), test_y=number)
    for index, value in enumerate(xs):
        assert result["max"][index] == max(value, number, 3)
        assert result["min"][index] == min(value, number)
        expected = value if value < number else max(number, 2) if value < 2 * number else 7
        assert result["cases"][index] == expected
        assert result["steps"][index] == math.ceil(value / number) + math.floor(number)


def test_plain_numbers_give_plain_numbers():
    f = compile_expression(sympy.Piecewise((x, x < y), (sympy.log(y), True)), [x, y])
    assert f(test_x=1.0, test_y=2.0) == 1.0
    assert f(test_x=3.0, test_y=2.0) == pytest.approx(math.log(2))


def test_log2_is_exact_for_powers_of_two():
    f = compile_expression(sympy.ceiling(log2(x)), [x])
    powers = np.arange(31)
    np.testing.assert_array_equal(f(test_x=2.0**powers), powers)


def test_compiling_again_is_a_look_up():
    assert compile_expression({"a": x + 1}, [x]) is compile_expression({"a": 1 + x}, (x,))


def test_a_missing_symbol_is_named():
    with pytest.raises(ValueError, match="expression 'area' contains test_y, not among the arguments"):
        compile_expression({"area": x * y}, [x])
    with pytest.raises(TypeError):
        compile_expression(x * y, [x, y])(test_x=1)
