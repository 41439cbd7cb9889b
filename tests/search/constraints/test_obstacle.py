"""How a message tells what stands in the way."""

import pytest

from ms_symtensor.search.constraints.obstacle import Obstacle
from ms_symtensor.search.constraints.request import GIB

NEEDED = Obstacle("one stage", 2, {"parameters": 3 * GIB, "activations": 5 * GIB, "buffers": 0}, "the result of x", GIB)


@pytest.mark.parametrize(
    "limit_B, lacking", ((5 * GIB, "3.0 GiB"), (8 * GIB - GIB // 64, "16.0 MiB"), (8 * GIB - 1, "0.1 MiB"))
)
def test_what_is_missing_is_never_shown_as_nothing(limit_B: int, lacking: str):
    assert NEEDED.text(limit_B) == (
        f"of the plan that needs least (one stage), a device of stage 2 needs 8.0 GiB, {lacking} too much"
        " (activations 5.0, parameters 3.0; the largest tensor: the result of x, 1.00 GiB)"
    )
