"""The peak of any depth, carried on from a short network, is that of the full one."""

import random
from dataclasses import replace

import pytest

from benchmarks.small_networks import repeated_network
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import buffers_B
from ms_symtensor.program.liveness import activation_peak_B
from ms_symtensor.program.long_runs import EACH
from ms_symtensor.program.partition import partition
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.folded.chain import Stage
from ms_symtensor.search.folded.folding import fold, shorten, unfold
from ms_symtensor.search.folded.stage_peaks import StagePeaks
from ms_symtensor.search.space.settings import settings_of
from ms_symtensor.search.tables.elimination import minimise
from ms_symtensor.search.tables.parameters import parameter_terms
from tests.search.problems import factors, problem
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")


def found_and_true(of, graph, settings, choice, recomputed):
    """The peak that the search finds and the peak of the whole program of `graph`, activations and buffers."""
    strategies = {name: of.known.items[v].strategies[choice[v]] for name, v in of.known.index.items()}
    folded = fold(graph)
    blocks = [name for names in folded.kinds for name in names]
    stage, depths = Stage(len(blocks), recomputed, 0.0, 0.0), (1, *map(len, folded.kinds), 1)
    few = StagePeaks(shorten(graph, folded, 2 * EACH), depths, strategies, settings, PipelineSchedule(1))
    (memory_B,) = few.of([stage])
    whole = StagePlan(
        unfold(folded.class_of, of.graph, strategies),
        replace(settings, recompute=dict.fromkeys(blocks[:recomputed], Recompute())),
    )
    program = partition(graph, whole)
    return (memory_B["activations"], memory_B["buffers"]), (activation_peak_B(program), buffers_B(program))


@pytest.mark.parametrize("model", ("llama2_7b", "llama3_8b", "gpt2_xl", "bert_large"))
@pytest.mark.parametrize("level, price_s_per_B, attention", ((0, 0.0, "flash"), (1, 1e-10, "self"), (2, 0.0, "flash")))
def test_zoo_models(model, level, price_s_per_B, attention):
    graph = small_graph(model, num_layers=9, attention=attention)
    of = problem(graph, A2, (2, 2, 2))
    settings = settings_of(of.settings)[level]
    terms = parameter_terms(of.known, of.parameters, settings)
    (choice,) = minimise(of.sizes, factors(of, terms, 0.0, price_s_per_B), of.order).assignment
    for recomputed in (0, 1, 4, 8, 9):
        found, true = found_and_true(of, graph, settings, choice, recomputed)
        assert found == true, recomputed


@pytest.mark.parametrize("seed", range(8))
def test_random_strategies(seed):
    draw = random.Random(seed)
    graph = repeated_network(draw, 9)
    of = problem(graph, A2, (2, 2))
    settings = settings_of(of.settings)[0]
    for _ in range(4):
        choice = tuple(draw.randrange(size) for size in of.sizes)
        found, true = found_and_true(of, graph, settings, choice, draw.randrange(10))
        assert found == true


def test_a_network_without_blocks():
    graph = small_graph("llama2_7b", num_layers=1)
    of = problem(graph, A2, (2, 2, 2))
    assert of.blocks == ()
    found, true = found_and_true(of, graph, settings_of(of.settings)[0], (0,) * len(of.sizes), 0)
    assert found == true
