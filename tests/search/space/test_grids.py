"""All major products have one grid where sequence or context parallelism is pinned, and the best plan that obeys is found."""

import math
import random

import pytest

from benchmarks.brute_force import all_priced, random_case
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.ops.placement import cuts_of
from ms_symtensor.program.meanings import meanings
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.roles import major_products, stream_norms, weight_dims
from ms_symtensor.search.plan import plan
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.grids import Grid
from ms_symtensor.search.space.restriction import Restriction
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
GRAPH = small_graph("llama2_7b", num_layers=2)


def grids(*pins):
    restriction = Restriction(GRAPH, meanings(GRAPH), limits_of(pins), Single((2, 2)))
    return None if restriction.grids is None else {*restriction.grids.every}


def test_grids_are_those_of_products_within_their_limits():
    assert grids(("model_parallel", 2)) is None
    assert grids(("context_parallel", 2)) == {Grid(1, 4), Grid(2, 2), Grid(4, 1)}
    assert grids(("context_parallel", 2), ("model_parallel", 2)) == {Grid(2, 2)}
    assert grids(("sequence_parallel", "no")) == {Grid(None, 1), Grid(1, None), Grid(2, None)}
    assert grids(("sequence_parallel", "yes")) == {Grid(1, None), Grid(2, None)}
    assert grids(("sequence_parallel", "yes"), ("context_parallel", 2)) == {Grid(1, 4), Grid(2, 2)}
    assert grids(("*/attention/*", "dp,tp")) == {Grid(1, 4), Grid(2, 2), Grid(4, 1)}
    assert grids(("*/attention/*", "dp,tp"), ("data_parallel", 2), ("model_parallel", 2)) is None


def obeys(graph, known, stage, is_wanted):
    """Whether a strategy has sequence parallelism as `is_wanted`: its norms finer than the rows of all products, or not."""
    cuts = {name: cuts_of(*known[name], one, stage.settings.device_num) for name, one in stage.strategies.items()}
    found = set()
    for name in major_products(graph, known):
        columns = math.prod(cuts[name].get(d, 1) for d in weight_dims(known[name][1]))
        found.add((math.prod(cuts[name].values()) // columns, columns > 1))
    if not any(is_cut for _, is_cut in found):
        return not is_wanted
    rows, is_cut = min(found)
    finer = {math.prod(cuts[name].values()) > rows for name in stream_norms(graph, known)}
    return len(found) == 1 and is_cut and finer <= {is_wanted}


def random_case_with_norms(draw):
    while True:
        graph, device_num = random_case(draw, 150)
        if stream_norms(graph, meanings(graph)):
            return graph, device_num


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_wanted", (False, True))
def test_no_combination_that_obeys_is_faster(seed, is_wanted):
    graph, device_num = random_case_with_norms(random.Random(seed))
    known = meanings(graph)
    every = all_priced(graph, A2, device_num)
    best_s = min((one.time_s for one in every if obeys(graph, known, one.stage, is_wanted)), default=math.inf)

    def planned_s():
        fix = {"sequence_parallel": is_wanted}
        found = plan(
            graph, A2, device_num=device_num, global_batch_size=8, seq_length=1, memory_limit_B=1 << 60, fix=fix
        )
        return found.prediction.step_time_s

    if math.isinf(best_s):
        with pytest.raises(InfeasibleError):
            planned_s()
    else:
        assert planned_s() == pytest.approx(best_s)
