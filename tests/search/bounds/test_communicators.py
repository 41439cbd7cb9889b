"""What operators certainly need for buffers of communicators is no more than programs have."""

import random
from dataclasses import replace

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import HCCL_BUFFER_B, buffers_B
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel, StagePlan
from ms_symtensor.search.bounds.communicators import Communicators
from ms_symtensor.search.bounds.users import needed_B
from ms_symtensor.search.space.family import family, split_family
from ms_symtensor.search.tables.problem import problem_of_family, shortened
from ms_symtensor.search.tables.tables import factors
from tests.search.problems import problem

A2 = load("atlas_800t_a2")


@pytest.fixture(scope="module", params=["llama2_7b", "mixtral_8x7b", "deepseek_v3", "shared samples"])
def case(request):
    """A problem, what its blocks need by themselves, and the layouts that are the fastest where memory is free or dear."""
    of = _sharing_samples() if request.param == "shared samples" else _of(request.param)
    best = [of.least(factors(of, [], 0.0, price)).assignment[0] for price in (0.0, 1e-9)]
    return of, Communicators(of), [tuple(choice.tolist()) for choice in best]


def _of(name):
    layers = {"deepseek_v3": 5}.get(name, 3)
    return problem(build_graph(dimensions_of(name, num_layers=layers, batch_size=8)), A2, (4, 2))


def _sharing_samples():
    """Two samples on every position of the major axis, which the four devices of the minor one share: that has two parts."""
    few, kinds = shortened(build_graph(dimensions_of("qwen3_30b_a3b", num_layers=3, batch_size=4)))
    return problem_of_family(few, A2, split_family([(2, 4)], [1.0], [2]), of=kinds)


def _needed_B(needs, users, choice):
    return needed_B(users, np.array([choice]), needs.kinds)[0]


def _programs_B(of, choice):
    """Bytes of the buffers of the programs with these layouts, with and without a sharded optimizer."""
    for level in (OptimizerLevel.NONE, OptimizerLevel.LEVEL1):
        settings = replace(of.settings, optimizer_level=level)
        yield buffers_B(partition(of.graph, StagePlan(of.strategies(choice), settings)))


def test_operators_count_for_no_more_than_programs_need(case):
    of, needs, best = case
    draw, tried = random.Random(0), 0
    users = [needs.users([one], 0) for one in best] + [needs.users(best, 0)]
    for _ in range(25):
        choice = list(draw.choice(best))
        for number in draw.sample(range(len(choice)), draw.randrange(1, 6)):
            choice[number] = draw.randrange(of.sizes[number])
        try:
            least_B = min(_programs_B(of, choice))
        except InvalidStrategyError:
            continue
        tried += 1
        assert all(_needed_B(needs, those, choice).max() <= least_B * (1 + 1e-9) for those in users)
    assert tried > 5


def test_known_layouts_count_for_whole_buffers(case):
    _of, needs, best = case
    for choice in best:
        found_B = _needed_B(needs, needs.users([choice], 0), choice)
        assert found_B.max() >= HCCL_BUFFER_B * (1 - 1e-9)
        assert all(one_B / HCCL_BUFFER_B == pytest.approx(round(one_B / HCCL_BUFFER_B)) for one_B in found_B)


def test_what_no_known_layout_uses_counts_for_nothing(case):
    _, needs, best = case
    for user in needs.users(best, 0):
        assert all(user.size_B[tuple(choice[v] for v in user.scope)] > 0 for choice in best)


def test_groups_of_one_rank_and_of_the_same_ranks_do_not_count_twice():
    graph = build_graph(dimensions_of("llama2_7b", num_layers=3, batch_size=8))
    few, kinds = shortened(graph)
    of = problem_of_family(few, A2, family([(1, 1), (4, 1), (4, 2)], [1.0, 1.0, 1.0]), of=kinds)
    draw, needs = random.Random(0), Communicators(of)
    choices = [[draw.randrange(size) for size in of.sizes] for _ in range(20)]
    nothing, one, several = (
        max(_needed_B(needs, needs.users([choice], member), choice).max() for choice in choices) for member in range(3)
    )
    assert nothing == 0 and one == pytest.approx(HCCL_BUFFER_B) and several == pytest.approx(3 * HCCL_BUFFER_B)


def test_moves_count_where_no_operator_uses_their_group():
    of = _sharing_samples()
    needs, fastest = Communicators(of), of.least(factors(of, [], 0.0, 0.0)).assignment[0]
    by_moves = [user for user in needs.users([fastest], 0) if len(user.scope) == 2]
    assert by_moves and needed_B(by_moves, fastest[None], needs.kinds).max() >= HCCL_BUFFER_B * (1 - 1e-9)
    # In layouts of which none is moved so, they count for nothing; in others for their part.
    draw = random.Random(0)
    for _ in range(20):
        choice = np.array([draw.randrange(size) for size in of.sizes])
        found_B = needed_B(by_moves, choice[None], needs.kinds).max()
        assert 0 <= found_B <= needed_B(by_moves, fastest[None], needs.kinds).max() * (1 + 1e-9)
