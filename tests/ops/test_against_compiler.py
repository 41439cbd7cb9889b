"""Signatures against MindSpore's compiler: a sample of what benchmarks/operators.py measures."""

import random

import pytest

from benchmarks.operator_cases import CASES
from benchmarks.operators import check

SAMPLE = (
    "MatMul", "BatchMatMul", "Add broadcast", "SiLU", "RmsNorm", "LayerNorm", "Softmax", "ReduceSum", "ReduceMean", "ReduceMax",
    "Transpose", "StridedSlice", "Split", "Concat", "Tile", "Gather rows", "OneHot", "FlashAttentionScore BNSD GQA",
    "FlashAttentionScore causal", "SoftmaxCrossEntropyWithLogits",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_prediction_equals_program(name, tmp_path):
    tally, messages = check(CASES[name], [8], 2, random.Random(name), str(tmp_path))
    assert not messages
    assert tally.allowed > 0 and tally.forbidden > 0
