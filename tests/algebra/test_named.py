"""Named functions: printed by name, explained in the legend, computed as defined."""

import numpy as np

from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.algebra.named import Named, expanded
from ms_symtensor.algebra.symbols import L2, g_L2, n
from ms_symtensor.algebra.text import formula_text


class doubled(Named):
    title = "Q"

    @classmethod
    def definition(cls, size):
        return 2 * size / g_L2


def test_a_named_function_is_printed_by_name_and_computed_as_defined():
    formula = L2 + doubled(n + 1)
    assert formula_text("T", formula) == (
        "T = L2 + doubled(n + 1)\n"
        "where\n"
        "  doubled(Q) = 2·Q/g_L2\n"
        "  g_L2  [1]  how many times as fast as device memory the level-2 cache is\n"
        "  L2    [B]  size of the level-2 cache\n"
        "  n     [B]  bytes of the whole tensor of a collective"
    )
    assert expanded(formula) == L2 + 2 * (n + 1) / g_L2
    found = compile_expression(formula, [n, L2, g_L2])(n=np.array([1.0, 3.0]), L2=10.0, g_L2=4.0)
    assert found.tolist() == [11.0, 12.0]
