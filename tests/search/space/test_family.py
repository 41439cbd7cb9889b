"""Many meshes at once cost what each of them costs alone."""

from dataclasses import replace

import numpy as np
import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel, StagePlan
from ms_symtensor.search.folded.batches import batch_powers
from ms_symtensor.search.space.family import Single, family, runs_of, runs_of_cuts, split_family
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.parameters import parameter_terms
from ms_symtensor.search.tables.problem import plain_settings
from ms_symtensor.tensor.layout import DeviceGroup, Layout
from tests.search.problems import factors, problem, problem_of_family, totals

A2 = load("atlas_800t_a2")
MESHES = ((4, 2), (8, 4), (16, 2), (64, 8))
SAME = 4e-3
"""What a family does not know makes it cheaper: no more than so much dearer is it ever."""
SPLIT_MESHES, SAMPLES = ((2, 4), (8, 8), (4, 8), (32, 4), (16, 16)), (2, 4, 2, 2, 8)


def network(batch, model="llama2_7b"):
    config = dimensions_of(model, batch_size=batch, seq_length=1024)
    return build_graph(replace(config, num_layers=3))


def enlarged(strategy, of, member):
    """A strategy of the representative on a member: every number of slices is the product of the axes it stands for."""

    def number(n):
        return int(of.degree(n)[member])

    def cuts(rows):
        return None if rows is None else tuple(tuple(map(number, row)) for row in rows)

    return OpStrategy(cuts(strategy.inputs), cuts(strategy.outputs))


@pytest.mark.parametrize("model", ("llama2_7b", "gpt2_xl"))
@pytest.mark.parametrize("level", (OptimizerLevel.NONE, OptimizerLevel.LEVEL1))
def test_members_cost_what_their_partitioned_programs_cost(model, level):
    """One sample per position of the major axis, and no more slices than heads: then moves are alike on all meshes."""
    of = family(MESHES, [mesh[0] / 4 for mesh in MESHES])
    assert_costs_are_those_of_programs(of, MESHES, [mesh[0] for mesh in MESHES], model, level, rel=4e-3)


@pytest.mark.parametrize("model, rel", (("llama2_7b", 4e-3), ("llama3_8b", 0.08)))
@pytest.mark.parametrize("level", (OptimizerLevel.NONE, OptimizerLevel.LEVEL1))
@pytest.mark.parametrize("batch, meshes", ((1, ((4, 4), (4, 8), (16, 2))), (16, ((2, 4, 4), (4, 2, 8), (2, 8, 2)))))
def test_so_they_do_where_every_sample_has_two_axes(batch, meshes, model, rel, level):
    """Cheaper where the axes together cut more than the heads of keys and values (8): an AllGather and an AlltoAll of each block,
    on the way to their heads, are not counted.
    """
    batches = [mesh[0] if len(mesh) == 3 else 1 for mesh in meshes]
    of = family(meshes, [own / batch for own in batches])
    assert_costs_are_those_of_programs(of, meshes, batches, model, level, rel, batch)


@pytest.mark.parametrize("model, rel", (("llama2_7b", 4e-3), ("gpt2_xl", 0.04)))
@pytest.mark.parametrize("level", (OptimizerLevel.NONE, OptimizerLevel.LEVEL1))
def test_so_they_do_where_samples_share_the_minor_axis(model, rel, level):
    """About so where heads cannot be cut (25): the way to sequences that the whole minor axis cuts depends on its parts."""
    batches = [mesh[0] * samples for mesh, samples in zip(SPLIT_MESHES, SAMPLES)]
    of = split_family(SPLIT_MESHES, [batch / 4 for batch in batches], SAMPLES)
    assert_costs_are_those_of_programs(of, SPLIT_MESHES, batches, model, level, rel)


def assert_costs_are_those_of_programs(of, meshes, batches, model, level, rel, batch=4):
    graph = network(batch, model)
    tables = problem_of_family(graph, A2, of, powers=batch_powers(graph, network(2 * batch, model)))
    parameters = parameter_terms(tables.known, tables.parameters, replace(tables.settings, optimizer_level=level))
    least = minimise(tables.sizes, factors(tables, parameters, 0.0, 0.0), tables.order)
    for member, (mesh, batch) in enumerate(zip(meshes, batches)):
        chosen = {
            name: enlarged(tables.known.items[v].strategies[least.assignment[member, v]], of, member)
            for name, v in tables.known.index.items()
        }
        whole = network(batch, model)
        plan = StagePlan(chosen, replace(plain_settings(whole, int(np.prod(mesh))), optimizer_level=level))
        found = price(whole, plan, partition(whole, plan), A2).step_time_s
        assert (1 - rel) * found <= least.value[member] <= (1 + SAME) * found, mesh


def test_the_representative_is_a_member_like_any_other():
    graph = network(4)
    of = family([(4, 2)], [1.0])
    tables, alone = problem_of_family(graph, A2, of, powers=batch_powers(graph, network(8))), problem(graph, A2, (4, 2))
    settings = tables.settings
    one, two = (parameter_terms(p.known, p.parameters, settings) for p in (tables, alone))
    choice = minimise(tables.sizes, factors(tables, one, 0.0, 0.0), tables.order).assignment[0]
    named = {n: tables.known.items[v].strategies[choice[v]] for n, v in tables.known.index.items()}
    same = [
        alone.known.items[v].strategies.index(named[n])
        for n, v in sorted(alone.known.index.items(), key=lambda i: i[1])
    ]
    numbers = dict(zip((v for _, v in sorted(alone.known.index.items(), key=lambda i: i[1])), same))
    assert totals(tables, one, choice) == pytest.approx(totals(alone, two, [numbers[v] for v in sorted(numbers)]))


def test_numbers_stand_for_products_of_axes():
    of = family([(32, 8), (6, 5)], [1.0, 2.0])
    assert [of.degree(n).tolist() for n in (1, 2, 4, 8)] == [[1, 1], [8, 5], [32, 6], [256, 30]]
    assert of.degree(3) is None
    (pair,) = of.shape_of(DeviceGroup((4, 2), (0,)))
    assert [x.tolist() for x in pair] == [[32, 6], [8, 5]]
    assert of.grown(1).tolist() == [1, 2] and of.grown(0).tolist() == [1, 1]


def test_swapped_axes_are_not_regular():
    of = family([(32, 8)], [1.0])
    assert of.is_regular(Layout((4, 2), (1, 0), (8, 8)))
    assert of.is_regular(Layout((8,), (0, -1), (8, 8)))
    assert not of.is_regular(Layout((2, 4), (1, 0), (8, 8)))


def test_a_single_mesh_stands_for_itself():
    of = Single((6, 4))
    assert of.device_num == 24 and of.degree(3).tolist() == [3]
    assert of.is_regular(Layout((4, 6), (1, 0), (24, 24)))


def test_the_place_of_a_part_of_the_minor_axis_tells_what_it_is():
    """16 stands for the major axis, 4 for the samples of one of its positions, 2 for the devices of a sample."""
    of = split_family([(32, 8), (6, 15)], [1.0, 1.0], [4, 3])
    assert [of.coded(code).tolist() for code in (1, 2, 4, 8, 16, 128)] == [
        [1, 1], [2, 5], [4, 3], [8, 15], [32, 6], [256, 90],
    ]  # fmt: skip
    assert [of.degree(n).tolist() for n in (1, 2, 4, 8)] == [[1, 1], [32, 6], [8, 15], [256, 90]]
    two = DeviceGroup((2, 2, 2), (0, 2))
    assert [[x.tolist() for x in pair] for pair in of.shape_of(two)] == [[[32, 6], [8, 15]], [[2, 5], [1, 1]]]
    assert of.code(runs_of(two)) == 32 and of.code(runs_of_cuts(Layout((2, 2, 2), (1, -1), (4, 4)))) == 4
    assert of.shape_of(DeviceGroup((4, 3), (0,))) is None and of.code([(3, 1)]) is None
