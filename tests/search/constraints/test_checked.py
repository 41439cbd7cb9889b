import numpy as np
import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.search.constraints.checked import memory_B, named, whole_number


@pytest.mark.parametrize("value", ["4", 4.0, True, 0, -8, None])
def test_what_is_no_positive_whole_number(value):
    with pytest.raises(InputError, match=f"device_num is {value!r}: give a positive whole number"):
        whole_number("device_num", value)


def test_whole_numbers():
    assert whole_number("device_num", 8) == 8
    assert type(whole_number("device_num", np.int64(8))) is int


@pytest.mark.parametrize("value", ["56", True, 0, -1, 0.5, float("nan"), float("inf"), None])
def test_what_is_no_memory(value):
    with pytest.raises(InputError, match=f"memory_limit_B is {value!r}: give a number of bytes above 0"):
        memory_B("memory_limit_B", value)


def test_memory():
    assert memory_B("memory_limit_B", 1.5 * 2**30) == memory_B("memory_limit_B", np.int64(3 << 29)) == 3 << 29


@pytest.mark.parametrize("value", [["model_parallel=2"], "model_parallel=2", None, {2: "model_parallel"}])
def test_what_is_no_mapping(value):
    with pytest.raises(InputError, match="fix is .*: give a mapping of names"):
        named("fix", value)
