"""Placement of parameters: optimizer sharding and gradient groups, as compiled programs show them."""

from dataclasses import replace

import pytest

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.parameters import is_summed, is_synchronised, place_parameter, require_synchronised
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.tensor.graph import Parameter, TensorType
from ms_symtensor.tensor.layout import Layout

SHAPE = (1024, 512)
WEIGHT = Parameter("w", TensorType(SHAPE, "float32"))


def place(matrix, tensor_map, wanted=-1, parameter=WEIGHT, summed=True, unsummed=False, **settings):
    layout = Layout(matrix, tensor_map, parameter.type.shape)
    chosen = {"optimizer_level": OptimizerLevel.LEVEL1, "optimizer_weight_shard_size": wanted} | settings
    return place_parameter(parameter, layout, Settings(layout.device_num, **chosen), summed, unsummed)


def test_all_copies_share_by_default():
    found = place((2, 4), (-1, 0))
    assert (found.shard, found.slice_shape) == (2, (512, 128))
    assert found.gather.ranks(5) == (1, 5) and found.mirror is None
    assert is_synchronised(found, 5)


def test_a_part_of_the_copies_shares():
    found = place((8,), (-1, -1), wanted=2)
    assert found.gather.ranks(5) == (4, 5)
    assert found.mirror.ranks(5) == (1, 3, 5, 7)
    assert is_synchronised(found, 5)


def test_more_than_the_copies_is_all_of_them():
    assert place((2, 4), (-1, 0), wanted=8).shard == 2


def test_axes_of_size_one_do_not_matter():
    assert place((4, 1, 1), (-1, -1), wanted=2).gather.ranks(2) == (2, 3)


def test_small_and_undividable_parameters_stay_whole():
    gamma = Parameter("gamma", TensorType((512,), "float32"))
    assert place((8,), (-1,), parameter=gamma).shard == 1
    assert place((8,), (-1,), parameter=gamma, parallel_optimizer_threshold_KB=2).shard == 8
    assert place((8,), (-1, -1), parameter=Parameter("w", TensorType((1023, 512), "float32"))).shard == 1


def test_mindspores_stride_rule_can_name_other_slices():
    """Copies 0, 1, 4, 5 in pairs: MindSpore sums over ranks 4 apart, which is right; for copies 0, 1, 2, 3 it is wrong."""
    assert is_synchronised(place((2, 2, 2), (-1, 1), wanted=2))
    wrong = place((2, 4), (1, -1), wanted=2)
    assert wrong.mirror.ranks(0) == (0, 4) and not is_synchronised(wrong)
    with pytest.raises(InvalidStrategyError, match="parameter w: .*use -1"):
        require_synchronised({"w": wrong}, 8)


def test_operators_that_never_sum():
    assert is_summed("MatMul", 1) and is_summed("Embedding", 0)
    assert not is_summed("Transpose", 0) and not is_summed("Embedding", 1) and not is_summed("FlashAttentionScore", 2)


def test_a_weight_without_a_sum_is_refused_unless_sharded_over_all_copies():
    none = {"optimizer_level": OptimizerLevel.NONE}
    alone = place((8,), (-1, -1), summed=False, unsummed=True, **none)
    both = place((8,), (-1, -1), summed=True, unsummed=True, **none)
    sharded = place((8,), (-1, -1), summed=False, unsummed=True)
    partly = place((8,), (-1, -1), wanted=2, summed=False, unsummed=True)
    assert [is_synchronised(p) for p in (alone, both, sharded, partly)] == [False, False, True, False]
    with pytest.raises(InvalidStrategyError, match="parameter w: .*transpose_b=True"):
        require_synchronised({"w": alone}, 8)
    require_synchronised({"w": sharded}, 8)


def test_a_frozen_parameter_is_shared_like_others_but_never_summed():
    frozen = Parameter("w", WEIGHT.type, requires_grad=False)
    found = place((8,), (-1, -1), wanted=2, parameter=frozen)
    assert (found.shard, found.mirror) == (2, None)
    assert place((8,), (-1, -1), parameter=frozen, optimizer_level=OptimizerLevel.NONE).mirror is None


def test_a_parameter_that_is_never_shared_stays_whole():
    found = place((8,), (-1, -1), parameter=replace(WEIGHT, optimizer_shards=False))
    assert (found.shard, found.gather) == (1, None) and found.mirror.size == 8
