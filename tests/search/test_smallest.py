"""Near the smallest peak there is, a plan that fits is found, where the survey of fast layouts finds none."""

import random

import pytest

from benchmarks.brute_force_stages import random_case, selected_case
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize(
    ("seed", "number", "selects", "smallest_B"),
    # Of the cases of `benchmarks.brute_force_stages --most 4500`, with the bytes of the smallest step that brute force finds.
    [
        (0, 15, False, 901896204),  # 8 KiB more than the smallest
        (0, 163, False, 857519628),
        (0, 31, False, 873020428),
        (0, 25, True, 873134352),
        (0, 36, True, 885592588),
        (31, 6, True, 1262793778),
        (31, 24, True, 1090940990),
    ],
)
def test_the_smallest_step_of_brute_force_is_found(seed, number, selects, smallest_B):
    draw = random.Random(f"{seed}/{number}")
    case = selected_case(draw, 4500, A2) if selects else random_case(draw, 4500, True, A2)
    assert case.planned(smallest_B).prediction.peak_memory_B <= smallest_B
    with pytest.raises(InfeasibleError):
        case.planned(smallest_B - (1 << 20))
