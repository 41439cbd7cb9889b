import pytest
import sympy

from ms_symtensor.algebra import symbols
from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.cluster.load import load


def test_a_formula_is_evaluated_with_the_devices_numbers():
    device = load("atlas_800t_a2").device
    flops = symbols.symbol("test_flops", "FLOP", "operations of a matrix product")
    time = sympy.Max(flops / (symbols.F_cube * symbols.eta_cube), symbols.t_op)
    arguments = {s.name: v for s, v in device.values.items() if s in time.free_symbols}
    f = compile_expression(time, time.free_symbols)
    assert f(test_flops=1e15, **arguments) == pytest.approx(1e15 / (353.9e12 * device.cube_efficiency))
    assert f(test_flops=1.0, **arguments) == device.op_overhead_s
