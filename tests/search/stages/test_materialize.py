"""Plans over stages and micro-batches against every step that there is, priced from its programs."""

import random

import pytest

from benchmarks.brute_force_stages import disagreements, random_case
from benchmarks.stage_space import all_steps
from ms_symtensor.cluster.load import load

A2 = load("atlas_800t_a2")


@pytest.mark.parametrize("seed", range(12))
def test_no_step_is_faster(seed):
    draw, limited = random.Random(f"test/{seed}"), seed % 2 == 1
    case = random_case(draw, 150, limited, A2)
    assert disagreements(case, list(all_steps(case, limited)), limited, draw) == []
