"""Ranks that come together, and ranks that do not."""

import pytest

from ms_symtensor.bridge.proof.ordering import Meeting, require_meetings
from ms_symtensor.errors import ExecutionError


def meeting(name: str, *ranks: int) -> Meeting:
    return Meeting(name, "AllReduce", ranks)


def test_one_order_on_all_ranks_goes_through() -> None:
    both, left, right = meeting("both", 0, 1, 2), meeting("left", 0, 1), meeting("right", 1, 2)
    require_meetings([(left, both), (left, right, both), (right, both)])


def test_ranks_that_wait_for_each_other_are_named() -> None:
    first, second = meeting("first", 0, 1), meeting("second", 0, 1, 2)
    with pytest.raises(ExecutionError, match=r"for ever: rank 0 in first with ranks \(0, 1\); rank 1 in second"):
        require_meetings([(first, second), (second, first), (second,)])


def test_a_rank_that_never_comes_is_noticed() -> None:
    with pytest.raises(ExecutionError, match="rank 0 in sum"):
        require_meetings([(meeting("sum", 0, 1),), ()])
