import sympy
from sympy.codegen.cfunctions import log2

from ms_symtensor.algebra.symbols import bandwidth, group_size, latency, n
from ms_symtensor.algebra.text import formula_latex, formula_text, plain

p, alpha, B = group_size("node"), latency("node"), bandwidth("node")
ring = alpha * (p - 1) + n * (p - 1) / (p * B)


def test_a_short_formula_with_its_legend():
    assert formula_text("T", ring, "s") == (
        "T [s] = alpha_node·(p_node - 1) + n·(p_node - 1)/(B_node·p_node)\n"
        "where\n"
        "  alpha_node  [s]    latency of one step at level 'node'\n"
        "  B_node      [B/s]  effective one-way bandwidth of a link (mesh) or port (switch, ring) at level 'node'\n"
        "  n           [B]    bytes of the whole tensor of a collective\n"
        "  p_node      [1]    members of the group at level 'node'"
    )


def test_long_sums_break_before_a_sign():
    text = formula_text("T", ring + alpha**3 - 7 * n * alpha / B, "s", width=48, legend=False)
    assert text == (
        "T [s] = alpha_node^3 + alpha_node·(p_node - 1)\n"
        "        - 7·alpha_node·n/B_node\n"
        "        + n·(p_node - 1)/(B_node·p_node)"
    )
    assert max(map(len, text.splitlines())) <= 48


def test_cases_and_maxima():
    cases = sympy.Piecewise((alpha * sympy.ceiling(log2(p)), n < 1024), (sympy.Max(n / B, alpha), True))
    assert formula_text("T", cases, "s", legend=False) == (
        "T [s] =\n  if n < 1024: alpha_node·⌈log2(p_node)⌉\n  otherwise: max(alpha_node, n/B_node)"
    )
    assert plain(cases) == "{alpha_node·⌈log2(p_node)⌉ if n < 1024; max(alpha_node, n/B_node) otherwise}"


def test_a_number_needs_no_legend():
    assert formula_text("T", sympy.Integer(0), "s") == "T [s] = 0"


def test_latex_uses_the_symbols_own_names():
    assert formula_latex(r"T_\mathrm{AG}", alpha + n / (p * B)) == (
        r"T_\mathrm{AG} = \alpha_\mathrm{node} + \frac{n}{B_\mathrm{node} p_\mathrm{node}}"
    )
