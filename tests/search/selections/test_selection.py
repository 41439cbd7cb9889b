"""The front of a block against what programs with these selections keep and take."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.exactness_cases import small_config_of
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from model_zoo.megatron import megatron_strategy
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.step import price
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute, Settings
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.folded.memory import PeakMemory, short_graphs
from ms_symtensor.search.folded.mix import Mix
from ms_symtensor.search.selections.selected import levels, mix_of
from ms_symtensor.search.selections.selection import price_of_byte

CLUSTER = load("atlas_800t_a2")
CASES = [
    ("llama2_7b", 4, 1, False),
    ("llama3_8b", 2, 4, False),
    ("llama2_7b", 2, 4, True),
    ("gpt2_xl", 4, 1, False),
    ("llama2_7b", 4, 1, True),
]
BY_COLUMNS = OpStrategy(((1, 4), (1, 4)), ((4, 1),))
"""Of products in the last case: what they read is moved, and what they make is summed and scattered."""


class _Network:
    """A small network of six blocks on `data * tensor` devices."""

    def __init__(self, model, data, tensor, sequence):
        config = replace(small_config_of(model), num_layers=6)
        if sequence and tensor == 1:
            config = replace(dimensions_of(model), num_layers=6, batch_size=4)
        graph = build_graph(config)
        cuts = megatron_strategy(graph, config, data, tensor, sequence)
        strategies = {name: OpStrategy(*pair) for name, pair in cuts.items()}
        if sequence and tensor == 1:
            strategies |= {name: BY_COLUMNS for name in strategies if "gate-Linear" in name or "up-Linear" in name}
        folded = fold(graph)
        self.shorts = short_graphs(graph, folded, meanings(graph), folded.kinds)
        self.of = self.shorts, strategies, Settings(data * tensor, enable_alltoall=sequence and tensor == 1)
        self.plain_s = self.step_s(Mix(), 0)
        self.plain_B = self.kept_B(None)
        first = self.shorts.blocks[0]
        self.names = tuple(
            dict.fromkeys(name_in_block(op) for op in graph.ops if op.block == first and is_selectable(op))
        )

    def recompute_s(self, way):
        """Seconds that each block computes again where all recompute `way`."""
        mix, count = Mix((way,), (None,)), len(self.shorts.blocks)
        return (self.step_s(mix, count) - self.plain_s) / count

    def step_s(self, mix, first):
        """Seconds of a step whose first blocks are those that `mix` puts first."""
        peaks, runs = PeakMemory(*self.of, mix), self.shorts.short_runs(self.shorts.runs(first))
        return price(
            self.shorts.of(runs), peaks.plan(runs), peaks.program(runs), CLUSTER, self.shorts.known
        ).step_time_s

    def kept_B(self, way):
        """Bytes that a block in the middle keeps until the backward pass."""
        peaks = PeakMemory(*self.of, Mix((way,), (way,)))
        runs = ((0, len(self.shorts.blocks)),)
        program = peaks.program(runs)
        middle = self.shorts.blocks[3]
        made = {t: n.block for n in program.nodes if n.phase.value == "forward" for t in n.outputs}
        return _alive_after_forward(program, made, middle)


def _alive_after_forward(program, made, block):
    from ms_symtensor.program.liveness import lives, program_steps

    steps = program_steps(program)
    half = sum(not s.is_backward for s in steps)
    alive = lives(steps, program.kept)
    return sum(program.tensors[t].size_B for t, (a, b) in alive.items() if a < half <= b and made.get(t) == block)


@pytest.fixture(scope="module", params=CASES, ids=lambda c: f"{c[0]} {c[1]}x{c[2]}{' sp' * c[3]}")
def network(request):
    return _Network(*request.param)


def test_the_front_falls_at_rising_prices(network):
    every = [level[0] for level in levels(PeakMemory(*network.of), CLUSTER).every]
    assert every[0].recompute is None and every[-1].recompute == Recompute()
    prices = [price_of_byte(*pair) for pair in pairwise(every)]
    assert len(prices) > 3 and prices == sorted(prices) and prices[0] > 0


def test_corners_take_and_keep_what_their_programs_do(network):
    every = [level[0] for level in levels(PeakMemory(*network.of), CLUSTER).every]
    saved = every[0].kept_B - every[-1].kept_B
    for corner in every[1:]:
        assert network.recompute_s(corner.recompute) == pytest.approx(corner.recompute_s, rel=0.01)
        truly_B = network.plain_B - network.kept_B(corner.recompute)
        assert every[0].kept_B - corner.kept_B == pytest.approx(truly_B, abs=0.01 * saved)


def test_no_random_selection_lies_below_the_front(network):
    every = [level[0] for level in levels(PeakMemory(*network.of), CLUSTER).every]
    rng = random.Random(0)
    for _ in range(8):
        base = rng.choice(every[1:]).recompute
        changed = {name for name in network.names if rng.random() < 0.15}
        way = Recompute(kept=tuple(n for n in network.names if (n in base.kept) != (n in changed)))
        recompute_s, kept_B = network.recompute_s(way), network.kept_B(way)
        saved_B = network.plain_B - kept_B
        for one, other in pairwise(every):
            price = price_of_byte(one, other)
            best = one.recompute_s - price * (every[0].kept_B - one.kept_B)
            assert recompute_s - price * saved_B >= best - 0.01 * abs(best)


def test_the_first_blocks_save_more():
    of = _Network(*CASES[0])
    every = levels(PeakMemory(*of.of), CLUSTER).every
    mix = mix_of(every[3], every[2])
    assert mix.way(0, True) == every[3][0].recompute and mix.way(0, False) == every[2][0].recompute
    recompute = mix.recompute((("a", "b"), ("c",)))
    assert recompute["a"] is recompute["b"] and recompute["c"] == every[2][0].recompute
