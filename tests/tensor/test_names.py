"""What operators are called."""

import pytest

from ms_symtensor.tensor.graph import Op
from ms_symtensor.tensor.names import is_called, short_name

OP = Op(
    "Default/layers-CellList/3-Block/attention-Attention/query-Linear/MatMul-op0", "MatMul", (), (),
    cell=("layers", "3", "attention", "query"), primitive="matmul", block="layers.3",
)  # fmt: skip


def test_the_name_without_its_block():
    assert short_name(OP) == "attention.query.matmul"


def test_operators_of_blocks_that_are_alike_are_called_alike():
    """MindSpore numbers what no cell owns, and may put it under another block."""
    alike = [
        Op(f"Default/layers-CellList/0-Block/act-GELU/GeLU-op{i}", "GeLU", (), (), block=f"layers.{i}") for i in (0, 7)
    ]
    assert [short_name(op) for op in alike] == ["act.GeLU", "act.GeLU"]
    assert short_name(Op("Default/loss-Loss/Add-op3", "Add", (), ())) == "loss.Add"


@pytest.mark.parametrize(
    "pattern",
    (
        "attention.query.matmul", "query.matmul", "*.query.*", "*/attention/*", "*/attn/*", "layers.3.attention.query.matmul",
        "layers.*.matmul", "*.matmul", "matmul", "Default/*/query-Linear/MatMul-op0",
    ),
)  # fmt: skip
def test_patterns_that_name_it(pattern):
    assert is_called(OP, pattern)


@pytest.mark.parametrize("pattern", ("uery.matmul", "layers.2.*", "attention", "*.key.matmul", "*MATMUL"))
def test_patterns_that_do_not(pattern):
    assert not is_called(OP, pattern)
