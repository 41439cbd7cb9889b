"""Operators that MindSpore has no distributed form of: how it cuts them all the same, and which results that would spoil."""

import pytest

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.instead import INSTEAD
from ms_symtensor.ops.placement import OpStrategy, place
from ms_symtensor.ops.quirks import UNDISTRIBUTED
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.rule import rule
from ms_symtensor.program.meanings import default_strategy, remedy
from tests.ops.views import make

_OF_CHANNELS = ", ".join(["float32[8]"] * 4)
_NORMALISED = f"float32[16, 8, 32], {_OF_CHANNELS} -> float32[16, 8, 32], {_OF_CHANNELS}"
SPOILT = "no distributed {}.*cuts the first dim of its first input alone"


@pytest.mark.parametrize(
    ("rows", "slices"), [(16, 8), (12, 1), (8, 8), (1, 1)], ids=["divided", "undivided", "one each", "one row"]
)
def test_the_first_dim_is_cut_by_all_devices_or_not_at_all(rows, slices):
    op = make("Divs", f"float32[{rows}, 32] -> float32[{rows}, 32]", 2.0)
    sig = signature(op)
    assert default_strategy(op, sig, 8) == OpStrategy(((slices, 1),))
    assert place(op, sig, OpStrategy(((slices, 1),)), 8).outputs[0].slice_shape == (rows // slices, 32)
    if rows > 1:
        with pytest.raises(InvalidStrategyError, match=f"always cuts the first dim of Divs by {slices}"):
            place(op, sig, OpStrategy(((2, 1),)), 8)


def test_outputs_that_all_devices_do_not_divide_leave_it_whole():
    op = make("LogSumExp", "float32[16, 32] -> float32[1, 32]", (0,), True)
    assert default_strategy(op, signature(op), 8) == OpStrategy(((1, 1),))


@pytest.mark.parametrize(
    "op",
    [
        make("TransposeView", "float32[16, 8] -> float32[8, 16]", (1, 0)),
        make("LogSumExp", "float32[16, 32] -> float32[32]", (0,), False),
        make("TrilExt", "float32[16, 16] -> float32[16, 16]", 0),
        make("Roll", "float32[16, 32] -> float32[16, 32]", (1,), (0,)),
        make("SmoothL1Loss", "float32[16, 32], float32[16, 32] -> float32[16, 32]", 1.0, 0),
        make("MaskedFillScalar", "float32[16, 32], bool[16, 32] -> float32[16, 32]", 0.0),
        make("LogAddExp", "float32[16, 32], float32[16, 32] -> float32[16, 32]"),
    ],
    ids=lambda op: op.type,
)
def test_what_would_give_another_result_is_refused(op):
    """A first dim that ends up elsewhere, is summed, or is another input's too."""
    sig = signature(op)
    for slices in (1, 8):
        with pytest.raises(InvalidStrategyError, match=SPOILT.format(op.type)):
            place(op, sig, OpStrategy(((slices, 1),) * len(op.inputs)), 8)
    assert default_strategy(op, sig, 3).inputs[0] == (1, 1)  # three devices divide nothing here


@pytest.mark.parametrize(
    ("name", "instead"), [("Atan2Ext", "write ops.Atan2"), ("ClampTensor", "write ops.Minimum and ops.Maximum")]
)
def test_what_is_distributed_is_named_in_its_place(name, instead):
    op = make(name, "float32[16, 32], float32[16, 32] -> float32[16, 32]")
    with pytest.raises(InvalidStrategyError, match=instead):
        place(op, signature(op), default_strategy(op, signature(op), 8), 8)


@pytest.mark.parametrize(
    ("op", "made"),
    [
        (make("ReverseV2", "float32[16, 32] -> float32[16, 32]", axis=(0,)), "ops.ReverseV2"),
        (make("Cdist", "float32[8, 16, 32], float32[8, 4, 32] -> float32[8, 16, 4]", p=2.0), "ops.Cdist"),
        (make("SortExt", "float32[16, 32] -> float32[16, 32], int64[16, 32]", 0, False, False), r"ops.Sort\("),
    ],
    ids=lambda value: value.type if hasattr(value, "type") else "",
)
def test_what_mindspore_rejects_without_a_strategy_is_to_be_a_primitive(op, made):
    with pytest.raises(InvalidStrategyError, match=f"without a strategy of its own: make it a primitive .* = {made}"):
        default_strategy(op, signature(op), 8)


@pytest.mark.parametrize("name", ["SumExt", "MeanExt", "Max"])
def test_a_class_that_is_named_is_there(name):
    assert f"ops.{INSTEAD[name][0]}(" in remedy(name)


def test_a_loss_of_every_element_is_told_to_reduce():
    op = make("SmoothL1Loss", "float32[16, 32], float32[16, 32] -> float32[16, 32]", 1.0, 0)
    with pytest.raises(InvalidStrategyError, match=r"let it reduce \(reduction='mean' or 'sum'\)"):
        place(op, signature(op), OpStrategy(((8, 1),) * 2), 8)


def test_a_loss_that_is_one_number_is_computed_by_every_device():
    op = make("MSELossExt", "float32[16, 32], float32[16, 32] -> float32[]", 1)
    strategy = default_strategy(op, signature(op), 8)
    placed = place(op, signature(op), strategy, 8)
    assert strategy == OpStrategy(((1, 1), (1, 1))) and placed.partial is None


@pytest.mark.parametrize(
    ("op", "instead"),
    [
        (make("LayerNormExt", "float32[16, 8], float32[8] -> float32[16, 8], float32[16, 1], float32[16, 1]", (8,), 1e-5),
         "use nn.LayerNorm"),
        (make("Einsum", "float32[16, 4], float32[4, 8] -> float32[16, 8]", equation="ij,jk->ik"), "and Transpose$"),
        (make("TransposeView", "float32[1, 64, 128] -> float32[1, 128, 64]", (0, 2, 1)), "for mint.einsum MatMul"),
        (make("ReduceMean", "float64[16, 8] -> float64[]", keep_dims=False), "combines no float64 of several devices"),
        (make("Select", "bool[16, 8], float32[16, 8], float32[] -> float32[16, 8]"), "ops.masked_fill"),
        (make("Transpose", "float32[16, 4, 8] -> float32[16, 8, 4]", (0, -1, 1)), r"write \(0, 2, 1\) for \(0, -1, 1\)"),
        (make("PowScalarTensor", "float32[16, 8] -> float32[16, 8]", 2.0), "ops.pow"),
        (make("BatchNorm", _NORMALISED), "use mint.nn.BatchNorm1d"),
        (make("SparseGatherV2", "float32[64, 32], int32[16] -> float32[16, 32]", 0), "use nn.Embedding for nn.EmbeddingLookup"),
        (make("Embedding", "int32[16], float32[64, 32] -> float32[16, 32]", 0, None, 2.0, False), "with padding_idx"),
        (make("PadV3", "float32[16, 8] -> float32[16, 10]", (1, 1), mode="reflect"), "use mint.nn.functional.pad"),
        (make("SparseSoftmaxCrossEntropyWithLogits", "float32[16, 8], int32[16] -> float32[]"), "use nn.CrossEntropyLoss"),
    ],
    ids=lambda value: value.type if hasattr(value, "type") else "",
)  # fmt: skip
def test_what_mindspore_cannot_partition_runs_on_one_device_alone(op, instead):
    sig = signature(op)
    assert place(op, sig, default_strategy(op, sig, 1), 1).partial is None
    with pytest.raises(InvalidStrategyError, match=instead):
        place(op, sig, default_strategy(op, sig, 8), 8)


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"), [("CeLU", (0,), (0,)), ("SeLUExt", (), (0,)), ("HSwish", (0,), ())]
)
def test_a_gradient_reads_what_mindspore_gives_it(name, inputs, outputs):
    """As `Grad_CeLU` and the like are compiled."""
    found = signature(make(name, "float32[16, 32] -> float32[16, 32]"))
    assert (found.keeps_inputs, found.keeps_outputs) == (inputs, outputs)


def test_it_keeps_what_the_rule_says():
    op = make("Any", "float32[16, 32] -> float32[16, 32]")
    assert rule("@... -> ...", UNDISTRIBUTED)(op).keeps_inputs == (0,)
