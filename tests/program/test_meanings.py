"""What MindSpore does with operators that are given no strategy, as `benchmarks.operators` measures it."""

import pytest

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.registry import signature
from ms_symtensor.program.meanings import default_strategy
from tests.ops.views import make


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        (make("MatMul", "float16[32, 16], float16[64, 32] -> float16[16, 64]", True, True), ((1, 8), (1, 1))),
        (make("MatMul", "float16[12, 16], float16[16, 8] -> float16[12, 8]", False, False), ((4, 1), (1, 1))),
        (make("MatMulExt", "float32[8, 16, 64], float32[1, 64, 32] -> float32[8, 16, 32]"), ((1, 1, 1), (1, 1, 1))),
        (make("BatchMatMul", "float32[8, 16, 64], float32[64, 32] -> float32[8, 16, 32]"), ((8, 1, 1), (1, 1))),
        (make("RmsNorm", "float32[8, 32], float32[32] -> float32[8, 32], float32[8, 1]", 1e-6), ((8, 1), (1,))),
        (make("Add", "float32[16, 32], float32[8, 16, 32] -> float32[8, 16, 32]"), ((1, 1), (8, 1, 1))),
        (make("MaskedFill", "float32[8, 32], bool[1, 32], float32[] -> float32[8, 32]"), ((8, 1), (1, 1), ())),
        (make("Select", "bool[1, 32], float32[8, 32], float32[8, 32] -> float32[8, 32]"), ((1, 1), (1, 1), (1, 1))),
        (make("Gather", "float32[64, 32], int32[16, 4] -> float32[16, 4, 32]", 0), ((1, 1), (8, 1))),
        (make("Embedding", "int32[16, 4], float32[64, 32] -> float32[16, 4, 32]", None, None, 2.0, False), ((1, 1), (8, 1))),
        (make("OneHot", "int32[16], float32[], float32[] -> float32[16, 32]", 32, -1), ((8, 1), (), ())),
        (make("OneHotExt", "int64[4, 2], int64[], int64[] -> int64[4, 2, 32]", 32, axis=-1), ((1, 1, 1), (), ())),
        (make("OneHot", "int32[4], float32[], float32[] -> float32[32, 4]", 32, 0), ((1, 1), (), ())),
        (make("Concat", "float32[8, 4], float32[8, 4] -> float32[16, 4]", 0), ((1, 1), (1, 1))),
        (make("Tile", "float32[1, 4] -> float32[16, 4]", (16, 1)), ((8, 1),)),
        (make("GatherD", "float32[8, 64], int32[8, 8] -> float32[8, 8]", 1), ((8, 1), (8, 1))),
        (make("GatherD", "float32[8, 64], int32[8, 64] -> float32[8, 64]", 0), ((1, 1), (1, 1))),
    ],
    ids=lambda value: value.type if hasattr(value, "type") else "",
)  # fmt: skip
def test_the_leading_dim_is_cut_by_all_devices_that_divide_it(op, inputs):
    strategy = default_strategy(op, signature(op), 8)
    assert strategy.inputs == inputs and strategy.outputs is None


@pytest.mark.parametrize(
    "op",
    [
        make("Softmax", "float32[8, 32] -> float32[8, 32]", (0,)),
        make("Sort", "float32[8] -> float32[8], int32[8]", axis=0),
        make("Tile", "float32[8, 4] -> float32[32, 4]", (4, 1)),
    ],
    ids=lambda op: op.type,
)
def test_one_that_mindspore_rejects_without_a_strategy_is_named(op):
    with pytest.raises(InvalidStrategyError, match=f"{op.type}-op0.*without a strategy.*self.{op.type.lower()} = ops"):
        default_strategy(op, signature(op), 8)
    assert set(default_strategy(op, signature(op), 1).inputs[0]) == {1}


def test_the_remedy_names_what_mindspore_has():
    table = make("Embedding", "int32[9, 4], float32[64, 32] -> float32[9, 4, 32]", None, None, 2.0, False)
    with pytest.raises(
        InvalidStrategyError, match="rejects for some batches and computes .*: use nn.Embedding instead"
    ):
        default_strategy(table, signature(table), 8)
    values = make("SortExt", "float32[8] -> float32[8], int64[8]", 0)
    with pytest.raises(InvalidStrategyError, match=r"self.sortext = ops.Sort\("):
        default_strategy(values, signature(values), 8)
