import pytest
import sympy

from ms_symtensor.algebra.text import formula_text
from ms_symtensor.cluster.hccl import Collective
from ms_symtensor.cluster.hierarchy import formula
from ms_symtensor.cluster.load import load

A2, A3 = load("atlas_800t_a2"), load("atlas_800t_a3")


def text(cluster, kind, sizes):
    return formula_text("T", formula(cluster, kind, sizes).expression, "s", legend=False)


def test_all_reduce_over_two_nodes_of_a2():
    assert text(A2, Collective.ALL_REDUCE, (8, 2)) == (
        "T [s] =\n"
        "  if n < 1048576·p_node·p_roce: 2·alpha_node + 2·alpha_roce·(p_roce - 1)\n"
        "      + gamma·n·(p_node - 1)/p_node + gamma·n·(p_roce - 1)/(p_node·p_roce)\n"
        "      + 2·n·(p_roce - 1)/(B_roce·p_node·p_roce) + 2·n/(B_node·p_node)\n"
        "  otherwise: max(\n"
        "      2·alpha_node + gamma·n·(p_node·p_roce - 1)/(p_node·p_roce)\n"
        "      + 2·(alpha_node + n/(B_node·p_node·p_roce))·(p_roce - 1) + 2·n/(B_node·p_node·p_roce),\n"
        "      2·alpha_node + gamma·n·(p_node·p_roce - 1)/(p_node·p_roce)\n"
        "      + 2·(alpha_roce + n/(B_roce·p_node·p_roce))·(p_roce - 1) + 2·n/(B_node·p_node·p_roce)\n"
        "    )"
    )


@pytest.mark.parametrize(
    "cluster, kind, sizes, expected",
    [
        (A2, Collective.ALL_REDUCE, (8, 1), "2·alpha_node + gamma·n·(p_node - 1)/p_node + 2·n/(B_node·p_node)"),
        (
            A2,
            Collective.ALL_GATHER,
            (1, 8),
            "alpha_roce·⌈log2(p_roce)⌉ + n·(p_roce - 1)/(B_roce·p_roce)",
        ),
        (
            A2,
            Collective.ALL_TO_ALL,
            (8, 2),
            "alpha_node + alpha_roce·(p_roce - 1) + n·(p_roce - 1)/(B_roce·p_roce) + n/(B_node·p_node)",
        ),
        (A2, Collective.SEND, (1, 2), "alpha_roce + n/B_roce"),
        (A2, Collective.SEND, (2, 1), "alpha_node + n/B_node"),
        (A2, Collective.ALL_REDUCE, (1, 1), "0"),
        (
            A3,
            Collective.ALL_GATHER,  # the outer level first, on shares: the inner one carries the whole tensor
            (2, 8, 1),
            "alpha_package + alpha_superpod·⌈log2(p_superpod)⌉\n"
            "        + n·(p_superpod - 1)/(B_superpod·p_package·p_superpod) + n/(B_package·p_package)",
        ),
    ],
)
def test_formulas_in_full(cluster, kind, sizes, expected):
    assert text(cluster, kind, sizes) == f"T [s] = {expected}"


def test_algorithms_are_named():
    assert formula(A2, Collective.ALL_REDUCE, (8, 8)).algorithm == "Mesh + NHR, Pipeline for large messages"
    assert formula(A2, Collective.BROADCAST, (8, 2)).algorithm == "Mesh + Ring"
    assert formula(A3, Collective.ALL_TO_ALL, (2, 4, 2)).algorithm == "Mesh + Pairwise + Pairwise"


def test_groups_of_one_shape_share_a_formula():
    assert formula(A2, Collective.ALL_GATHER, (8, 4)) is formula(A2, Collective.ALL_GATHER, (2, 16))
    assert formula(A2, Collective.ALL_GATHER, (8, 4)).expression.free_symbols >= {sympy.Symbol("n", positive=True)}
