"""What ranks say of each other, in words."""

import pytest

from ms_symtensor.bridge.plugin.records import RECORD_B, Record, difference, from_bytes


def records(*values, name="memory limit"):
    return [from_bytes(Record({"cluster": "x", name: value, "fix": "a"}).to_bytes()) for value in values]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("58 GiB", "58 GiB", "40 GiB", "58 GiB"), "rank 2 has memory limit 40 GiB, ranks 0, 1, 3 have 58 GiB"),
        (("a", "b"), "rank 0 has memory limit a, rank 1 has b"),
        (("a",) * 3 + ("b",) * 5, "ranks 0 to 2 have memory limit a, ranks 3 to 7 have b"),
        ("abcde", "rank 0 has memory limit a, rank 1 has b, rank 2 has c, others have others (5 in all)"),
        ("ab" * 5, "ranks 0, 2, 4, … 8 have memory limit a, ranks 1, 3, 5, … 9 have b"),
    ],
)
def test_ranks_and_what_they_have_are_named(values, said):
    assert f"the ranks do not have the same plan: {said}: give all ranks" in difference(records(*values))


def test_the_first_field_is_told_with_what_ranks_have_and_others_by_name():
    one = Record({"cluster": "a", "fix": "x"}, origin="searched")
    other = Record({"cluster": "b", "fix": "y"}, origin="saved plan /p")
    said = difference([one, one, other])
    assert "rank 2 (saved plan /p) has cluster b, ranks 0, 1 (searched) have a; also differ: fix: " in said


def test_a_rank_that_stops_says_why():
    assert difference([Record({"cluster": "a"}), Record(failure="no plan fits")]) == "rank 1 stopped: no plan fits"


def test_long_values_that_differ_at_their_end_are_told_apart_in_a_record_of_fixed_size():
    long = "ü" * 5000
    content = [Record({f"n{k}": long + str(rank) for k in range(20)}, failure="").to_bytes() for rank in range(2)]
    assert {len(one) for one in content} == {RECORD_B}
    found = [from_bytes(one).facts["n0"] for one in content]
    assert found[0] != found[1]
    assert "rank 0 has n0 ü" in (said := difference([from_bytes(one) for one in content])) and len(said) < 450
    assert len(Record({}, failure=long).to_bytes()) == RECORD_B
