"""What options say."""

import pytest

from ms_symtensor.arguments import limits, memory_limit_B
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.request import GIB

A2 = load("atlas_800t_a2")


def test_a_margin_is_a_share_or_a_size() -> None:
    whole = int(A2.device.hbm_usable_B)
    assert memory_limit_B(A2, None, None) == int(0.95 * whole)
    assert memory_limit_B(A2, None, "0") == whole and memory_limit_B(A2, 40.0, None) == 40 * GIB
    assert memory_limit_B(A2, None, "10%") == int(0.9 * whole)
    assert memory_limit_B(A2, 40.0, "4") == memory_limit_B(A2, 40.0, "4 GiB") == 36 * GIB
    assert memory_limit_B(A2, 40.0, "2.5%") == 39 * GIB


@pytest.mark.parametrize("margin", ("x", "-1", "10 percent", ""))
def test_what_is_no_margin(margin: str) -> None:
    with pytest.raises(InputError, match="give a share such as 10%"):
        memory_limit_B(A2, None, margin)


@pytest.mark.parametrize("margin", ("100%", "40"))
def test_a_margin_that_leaves_nothing(margin: str) -> None:
    with pytest.raises(InputError, match="nothing is left of 40.0 GiB"):
        memory_limit_B(A2, 40.0, margin)


def test_pins_are_names_and_values() -> None:
    found = limits(["*.query.matmul=(8,1)(1,1)", "data_parallel = 8"], ["recompute=4"])
    assert found.fixed == {"data_parallel": "8", "*.query.matmul": "(8,1)(1,1)"}
    assert found.at_most == {"recompute": "4"}
    with pytest.raises(InputError, match="give NAME=VALUE"):
        limits(["data_parallel"], [])
