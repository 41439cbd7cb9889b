"""What blocks need for a moment of their backward pass is no more than programs have then."""

import random
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.small_networks import layered_network
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.program.stage_memory import micro_batch
from ms_symtensor.search.bounds.communicators import Communicators
from ms_symtensor.search.bounds.moments import moments
from ms_symtensor.search.bounds.users import needed_B
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.tables import factors
from tests.search.problems import problem

LAYERS = {"deepseek_v3": 5}

START = 12
"""So many steps of a program are its last ones, with the gradient of what stands before the blocks among them."""


@pytest.fixture(scope="module", params=["llama2_7b", "gpt2_xl", "mixtral_8x7b", "deepseek_v3"])
def case(request):
    """A problem, and the layouts that are the fastest where memory is free or dear."""
    layers = LAYERS.get(request.param, 3)
    of = problem(
        build_graph(dimensions_of(request.param, num_layers=layers, batch_size=8)), load("atlas_800t_a2"), (4, 2)
    )
    return of, _best(of)


def _best(of):
    every = [minimise(of.sizes, factors(of, [], 0.0, price), of.order).assignment[0] for price in (0.0, 1e-9)]
    return [tuple(choice.tolist()) for choice in every]


def _needed_B(of, choice):
    """Bytes of every kind of blocks."""
    kinds = len(of.places.kinds)
    users = moments(of, Communicators(of).kind_of).users(0)
    return needed_B(users, np.array([choice]), kinds)[0, kinds:]


def _programs(of, choice):
    """What a micro-batch needs with these layouts, if nothing is recomputed, and if all is; and the block of every step."""
    blocks = [name for names in of.places.kinds for name in names]
    for again in ((), blocks):
        settings = replace(of.settings, recompute=dict.fromkeys(again, Recompute()))
        program = partition(of.graph, StagePlan(of.strategies(choice), settings))
        yield micro_batch(program, False, interleaved=False), [node.block for node in program.nodes]


def _agrees(of, best, tries):
    """How many programs have what is needed for a moment, beside what the blocks before keep; it is asserted that all do."""
    draw, agreed = random.Random(0), 0
    for number in range(tries):
        choice = list(best[number % 2])
        for variable in draw.sample(range(len(choice)), draw.randrange(0, min(6, len(choice)))):
            choice[variable] = draw.randrange(of.sizes[variable])
        try:
            programs = list(_programs(of, choice))
        except InvalidStrategyError:
            continue
        agreed += 1
        for one, blocks_of in programs:
            *of_kinds, of_start = _needed_B(of, choice)
            steps = list(zip(one.live_B, one.behind, blocks_of, strict=True))
            outside = [live for live, late, block in steps if late and block is None]
            assert max(outside[-START:], default=0) >= of_start
            for names, moment_B in zip(of.places.kinds, of_kinds, strict=True):
                blocks = [name for kind in of.places.kinds for name in kind]
                before = blocks[: blocks.index(names[-1])]
                late_B = max(live for live, late, block in steps if late and block == names[-1])
                assert late_B >= sum(one.kept_B.get(name, 0) for name in before) + moment_B
    return agreed


def test_programs_have_it_beside_what_the_blocks_before_keep(case):
    assert _agrees(*case, 20) > 5


@pytest.mark.parametrize("seed", range(12))
def test_so_have_those_of_networks_that_begin_with_a_view_of_their_input(seed):
    draw = random.Random(seed)
    of = problem(layered_network(draw, 3, draw.choice((1, 2)))(4, None), load("atlas_800t_a2"), (2,))
    assert _agrees(of, _best(of), 6) > 0


def test_they_are_there_for_every_kind_of_blocks_and_as_large_as_a_weight(case):
    of, best = case
    needed = _needed_B(of, best[0])
    largest = max(use.parameter.type.size_B for use in of.parameters) / 8
    assert len(needed) == len(of.places.kinds) + 1 and np.all(needed > 0) and needed.max() > largest / 2
