"""From strategies to layouts and partial sums."""

import pytest

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy, PartialSum, cuts_of, place, strategy_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Combine
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from tests.ops.views import make

MATMUL = make("MatMul", "float16[16, 32], float16[64, 32] -> float16[16, 64]", False, True)


def placed(op, *inputs, outputs=None, device_num=8):
    return place(op, signature(op), OpStrategy(inputs, outputs), device_num)


def test_matmul_lays_its_dims_on_the_device_matrix_as_mindspore_does():
    found = placed(MATMUL, (2, 2), (1, 2))
    assert found.inputs[0] == Layout((2, 2, 1, 2), (3, 2), (16, 32))  # the last axis repeats the work
    assert found.inputs[1] == Layout((2, 2, 1, 2), (1, 2), (64, 32))
    assert found.partial == PartialSum(DeviceGroup((2, 2, 1, 2), (1,)), Combine.SUM)
    assert found.partial.group.ranks(5) == (5, 7)
    assert found.outputs == found.computed == (Layout((2, 2, 1, 2), (3, 1), (16, 64)),)


def test_an_out_strategy_scatters_the_partial_sum():
    found = placed(MATMUL, (2, 2), (1, 2), outputs=((4, 1),))
    assert found.partial is not None and found.partial.dim == 0
    assert found.outputs[0] == Layout((4, 1, 2), (2, 1), (16, 64))
    assert found.outputs[0].slice_shape == (4, 64)
    assert found.computed[0].slice_shape == (8, 64)


def test_strategy_of_is_the_inverse_of_cuts_of():
    sig = signature(MATMUL)
    cuts = {"m": 2, "k": 2, "n": 4}
    strategy = strategy_of(sig, cuts)
    assert strategy == OpStrategy(((2, 2), (4, 2)))
    assert cuts_of(MATMUL, sig, strategy, 16) == cuts
    assert strategy_of(sig, cuts, scatter=True).outputs == ((4, 4),)
    assert strategy_of(sig, {"m": 2}, scatter=True) == OpStrategy(((2, 1), (1, 1)))  # nothing to scatter


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (((2, 2),), None, "1 entries for 2"),
        (((2, 2, 1), (1, 2)), None, "has 2 dims, the strategy 3"),
        (((2, 2), (1, 4)), None, "dim 1 of input 0 is cut by 2, and dim 1 of input 1, which is the same dim .k., by 4"),
        (((3, 1), (1, 1)), None, "3 does not divide 16"),
        (((4, 4), (1, 4)), None, "needs 16 devices"),
        (((2, 1), (1, 1)), ((4, 1),), "no partial sum"),
        (((2, 1), (1, 1)), (), "no partial sum"),
        (((2, 1), (1, 1)), ((2, 1), (1, 1)), "no partial sum"),
        (((2, 2), (1, 2)), ((8, 1),), "offers no output strategy"),
        (((2, 2), (1, 2)), (), "offers no output strategy"),
    ],
)
def test_what_mindspore_rejects_is_rejected_with_the_reason(inputs, outputs, message):
    with pytest.raises(InvalidStrategyError, match=message):
        placed(MATMUL, *inputs, outputs=outputs)


def test_a_partial_sum_that_does_not_divide_cannot_be_scattered():
    op = make("MatMul", "float16[6, 32], float16[64, 32] -> float16[6, 64]", False, True)
    with pytest.raises(InvalidStrategyError, match="does not divide into 4"):
        placed(op, (2, 2), (1, 2), outputs=((4, 1),))


def test_a_vocabulary_cut_scatters_unasked_and_repeats_on_the_left():
    op = make("Gather", "float32[64, 32], int32[16, 4] -> float32[16, 4, 32]", 0, 0)
    found = placed(op, (4, 1), (1, 1))
    assert found.partial is not None and found.partial.dim == 0
    assert found.inputs[0].device_matrix[0] == 2  # two groups of four look up the same
    assert found.partial.group.ranks(6) == (4, 5, 6, 7)
    assert found.outputs[0].slice_shape == (4, 4, 32)
    whole = place(op, signature(op), strategy_of(signature(op), {"t0": 4}), 8)
    assert whole.partial is not None and whole.partial.dim is None
    assert whole.outputs[0].slice_shape == (16, 4, 32)


def test_a_vocabulary_cut_of_rows_that_do_not_divide_is_reduced():
    op = make("Gather", "float32[64, 32], int32[2, 8] -> float32[2, 8, 32]", 0, 0)
    assert placed(op, (8, 1), (1, 1)).partial == PartialSum(DeviceGroup((1, 1, 8, 1), (2,)), Combine.SUM)


def test_rows_and_vocabulary_cut_together_use_all_devices():
    op = make("Gather", "float32[64, 32], int32[16, 4] -> float32[16, 4, 32]", 0, 0)
    assert placed(op, (2, 1), (4, 1)).partial is not None
    with pytest.raises(InvalidStrategyError, match="uses all devices"):
        placed(op, (2, 1), (2, 1))
    with pytest.raises(InvalidStrategyError, match="cannot be scattered"):
        placed(op, (2, 1), (4, 1), outputs=((8, 1, 1),))


def test_the_norm_of_a_cut_vector_sums_its_statistics():
    op = make("RmsNorm", "float32[16, 32], float32[32] -> float32[16, 32], float32[16, 1]", 1e-6)
    found = placed(op, (2, 4), (4,))
    assert found.partial is not None and found.partial.output == 1
    assert found.outputs[0].slice_shape == (8, 8)
    assert signature(op).cuttable == ("d0",)  # a planner does not propose it


def test_one_hot_lists_its_output_and_its_scalars():
    op = make("OneHot", "int32[16], float32[], float32[] -> float32[16, 32]", 32, -1)
    found = placed(op, (2, 4), (), ())
    assert found.inputs[0].slice_shape == (8,)
    assert found.outputs[0].slice_shape == (8, 8)
    assert found.partial is None


@pytest.mark.parametrize(
    ("kind", "types", "arguments", "strategy"),
    [
        ("Gather", "float32[64, 32], {}[16] -> float32[16, 32]", (0,), ((8, 1), (1,))),
        ("GatherD", "float32[16, 32], {}[16, 4] -> float32[16, 4]", (1,), ((1, 8), (1, 1))),
        ("OneHot", "{}[16], float32[], float32[] -> float32[16, 32]", (32, -1), ((1, 8), (), ())),
    ],
)
def test_what_is_looked_up_is_cut_for_32_bit_indices_alone(kind, types, arguments, strategy):
    narrow, wide = (make(kind, types.format(dtype), *arguments) for dtype in ("int32", "int64"))
    assert 8 in cuts_of(narrow, signature(narrow), OpStrategy(strategy), 8).values()
    with pytest.raises(InvalidStrategyError, match="must stay whole is cut by 8"):
        cuts_of(wide, signature(wide), OpStrategy(strategy), 8)


def test_a_strategy_names_dims_of_size_one_too():
    op = make("OneHot", "int32[1], float32[], float32[] -> float32[1, 32]", 32, -1)
    assert cuts_of(op, signature(op), OpStrategy(((1, 4), (), ())), 4) == {"depth": 4}
    with pytest.raises(InvalidStrategyError, match="must stay whole is cut by 4"):
        cuts_of(op, signature(op), OpStrategy(((4, 1), (), ())), 4)
