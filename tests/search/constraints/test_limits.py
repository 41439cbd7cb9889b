"""What users pin: read from words, contradictions told, and sequence parallelism split into cases."""

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.limits import ALL, FREE, Limits, limits_of


def test_words_and_numbers():
    found = limits_of([("recompute", "full"), ("sequence_parallel", "yes")], [("model_parallel", 8)])
    fixed = {"recompute": ALL, "sequence_parallel": 1}
    assert found == Limits(fixed, {**fixed, "model_parallel": 8})
    assert str(found) == "model_parallel <= 8, sequence_parallel = yes, recompute = full"
    assert limits_of([("sequence_parallel", False)]) == limits_of([("sequence_parallel", "no")])


def test_what_is_sharded_over_all_copies_has_a_level():
    assert limits_of([("optimizer_weight_shard_size", "-1")]) == Limits({"optimizer_level": 1})
    assert limits_of([("optimizer_weight_shard_size", 1)]) == Limits({}, {"optimizer_level": 0})
    assert limits_of([("optimizer_level", "level1")]) == limits_of([("optimizer_level", "1")])


def test_how_many_blocks_are_recomputed():
    assert FREE.recomputed(32) == (0, 32)
    assert limits_of([("recompute", "full")]).recomputed(32) == (32, 32)
    assert limits_of([("recompute", "none")]).recomputed(32) == (0, 0)
    assert limits_of([], [("recompute", "40")]).recomputed(32) == (0, 32)
    with pytest.raises(InputError, match="recompute=40: the network has 32 repeated blocks"):
        limits_of([("recompute", 40)]).recomputed(32)


@pytest.mark.parametrize(
    "fixed, most, message",
    (
        ([("tp", "2")], [], "tp cannot be pinned: known are pipeline_stages, .*; tp is model_parallel"),
        ([("data_parallel", "0")], [], "data_parallel=0: give a number from 1"),
        ([("data_parallel", "many")], [], "data_parallel=many: give a number from 1"),
        ([("sequence_parallel", "maybe")], [], "sequence_parallel=maybe: give 0 to 1 or no or yes"),
        ([("optimizer_level", "4")], [], "optimizer_level=4: give 0 to 3"),
        ([("optimizer_weight_shard_size", "4")], [], "MindSpore can sum gradients over the wrong ranks"),
        ([("model_parallel", "4")], [("model_parallel", "2")], "at least 4 and at most 2 leave nothing"),
        ([("model_parallel", "4"), ("model_parallel", "2")], [], "at least 4 and at most 2 leave nothing"),
        (
            [("optimizer_level", "level3"), ("optimizer_weight_shard_size", "1")],
            [],
            "leave nothing .*size = 1 is level 0",
        ),
        (
            [],
            [("optimizer_weight_shard_size", "-1")],
            "optimizer_weight_shard_size=-1 bounds nothing from above: pin it",
        ),
        ([], [("optimizer_weight_shard_size", -1)], "optimizer_weight_shard_size=-1 bounds nothing"),
        ([], [("recompute", "select")], "recompute=select bounds nothing from above: pin it"),
        ([("*.matmul", "m/8"), ("*.matmul", "n/2")], [], r"\*.matmul is pinned twice, m/8 and n/2"),
        ([("optimizer_level", "2"), ("optimizer_weight_shard_size", "1")], [], "at least 2 and at most 0"),
    ),
)
def test_wrong_ones(fixed, most, message):
    with pytest.raises(InputError, match=message):
        limits_of(fixed, most)
