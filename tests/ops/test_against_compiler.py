"""Signatures against MindSpore's compiler: a sample of what benchmarks/operators.py measures."""

import random

import pytest

from benchmarks.operator_cases import CASES
from benchmarks.operators import check

SAMPLE = (
    "MatMul", "BatchMatMul", "Add broadcast", "SiLU", "RmsNorm", "LayerNorm", "Softmax", "ReduceSum", "ReduceMean", "ReduceMax",
    "Transpose", "StridedSlice", "Split", "Concat", "Tile", "Gather rows", "OneHot", "OneHotExt undivided",
    "FlashAttentionScore BNSD GQA", "FlashAttentionScore causal", "SoftmaxCrossEntropyWithLogits", "MatMulExt batch", "Conv2D",
    "MaxPool", "GroupNorm", "BatchNorm", "PReLU", "KLDivLoss", "Embedding", "RepeatInterleaveInt", "SliceExt", "IndexSelect",
    "Add smaller first", "MatMulExt broadcast", "GatherNd", "UnsortedSegmentSum", "TensorScatterAdd", "PadV3 of a tensor",
    "InplaceAddExt", "InplaceMul", "InplaceDiv", "InplaceMuls", "InplaceCopy", "AddcmulExt", "FmodTensor", "L2Loss", "Any",
    "LayerNormV3", "Convolution", "Convolution undivided", "MaxPool3D", "GridSampler2D", "StandardNormal",
    "StandardNormal undivided", "FillScalar", "FillTensor", "Randn", "FillV2", "LinSpace", "Cdist", "Conv2DBackpropInput",
)  # fmt: skip


UNDISTRIBUTED = (
    "Conv2DExt",
    "Divs",
    "Divs undivided",
    "MaskedFillScalar",
    "LogSumExp to row",
    "FlattenExt",
    "MSELossExt",
    "InplaceReLU",
    "InplaceMaskedFillScalar",
    "Clone",
    "FullLike",
    "Chunk",
    "Repeat",
    "Repeat more dims",
    "Meshgrid",
    "DiagonalView",
    "NewZeros undivided",
    "Addmm undivided",
    "Baddbmm of one row",
    "Mv",
    "DynamicRNN undivided",
    "DynamicGRUV2 undivided",
    "AdaptiveMaxPool2D",
    "BatchNormExt of undivided samples",
    "Dropout2D",
    "ArgSort",
    "KLDiv",
    "MirrorPad",
    "Conv3DTranspose",
)
"""Operators whose strategy MindSpore ignores."""


def half(names):
    """Every other one; the rest belongs to the long matrix."""
    return [pytest.param(name, marks=pytest.mark.matrix) if at % 2 else name for at, name in enumerate(names)]


@pytest.mark.parametrize("name", half(SAMPLE))
def test_prediction_equals_program(name, tmp_path):
    """With strategies that are allowed, that are forbidden, and with none."""
    tally, messages = check(CASES[name], [8], 2, random.Random(name), str(tmp_path))
    assert not messages
    assert tally.allowed > 0 and (tally.forbidden > 0 or CASES[name].accepts_more) and tally.unasked == 1


@pytest.mark.parametrize("name", half(UNDISTRIBUTED))
def test_an_operator_without_a_distributed_form_is_cut_as_mindspore_always_does(name, tmp_path):
    tally, messages = check(CASES[name], [8], 1, random.Random(name), str(tmp_path))
    assert not messages
    assert tally.allowed == tally.unasked == 1
