"""The tables' sum is the price of the partitioned program."""

import random
from dataclasses import replace

import pytest

from benchmarks.brute_force import random_case
from benchmarks.small_networks import repeated_network
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.domain import meshes
from ms_symtensor.search.problem import objective, parameter_terms, problem
from ms_symtensor.search.solve import settings_of
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")


def choices(of, draw, count):
    """Random candidates of all variables."""
    return [tuple(draw.randrange(size) for size in of.sizes) for _ in range(count)]


def compared(graph, device_num, draw, count, recompute=False):
    """(modelled, priced) seconds and (kept, peak) bytes of random choices that MindSpore accepts."""
    for mesh in meshes(device_num):
        of = problem(graph, A2, mesh)
        for settings in settings_of(device_num):
            terms = parameter_terms(of, settings)
            for choice in choices(of, draw, count):
                share = draw.randint(0, 1) if recompute and of.blocks else 0
                blocks = dict.fromkeys(of.blocks if share else (), Recompute())
                named = {name: of.known.items[v].strategies[choice[v]] for name, v in of.known.index.items()}
                plan = StagePlan(named, replace(settings, recompute=blocks))
                modelled_s, kept_B = objective(of, terms, float(share), choice)
                try:
                    program = partition(graph, plan)
                except InvalidStrategyError:
                    assert modelled_s == float("inf")
                    continue
                if modelled_s == float("inf"):
                    continue  # a gradient would be summed over the wrong ranks
                cost = price(graph, plan, program, A2)
                yield settings.optimizer_level, share, modelled_s, cost.step_time_s, kept_B, cost.peak_memory_B


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_cost_what_the_tables_say(seed):
    draw = random.Random(seed)
    graph, device_num = random_case(draw, 10**6)
    for level, _, modelled_s, priced_s, kept_B, peak_B in compared(graph, device_num, draw, 6):
        assert modelled_s == pytest.approx(priced_s, rel=1e-9), level
        assert kept_B <= peak_B


@pytest.mark.parametrize("seed", range(6))
def test_repeated_blocks_cost_what_the_tables_say(seed):
    draw = random.Random(seed)
    graph = repeated_network(draw, 4)
    for level, share, modelled_s, priced_s, kept_B, peak_B in compared(graph, 4, draw, 6, recompute=True):
        assert modelled_s == pytest.approx(priced_s, rel=1e-9), (level, share)
        assert kept_B <= peak_B, (level, share)


@pytest.mark.parametrize("model", ("llama2_7b", "llama3_8b", "gpt2_xl", "bert_large"))
def test_zoo_models_cost_what_the_tables_say(model):
    draw = random.Random(model)
    for level, share, modelled_s, priced_s, kept_B, peak_B in compared(small_graph(model), 8, draw, 2, recompute=True):
        assert modelled_s == pytest.approx(priced_s, rel=1e-9), (level, share)
        assert kept_B <= peak_B, (level, share)
