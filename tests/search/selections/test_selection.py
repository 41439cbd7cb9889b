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
from ms_symtensor.cost.step import forward_s, price
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute, Settings, StagePlan
from ms_symtensor.search.folded.folding import fold
from ms_symtensor.search.selections.levels import mix_of
from ms_symtensor.search.selections.selection import front, price_of_byte

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
        self.graph = build_graph(config)
        cuts = megatron_strategy(self.graph, config, data, tensor, sequence)
        strategies = {name: OpStrategy(*pair) for name, pair in cuts.items()}
        if sequence and tensor == 1:
            strategies |= {name: BY_COLUMNS for name in strategies if "gate-Linear" in name or "up-Linear" in name}
        self.plan = StagePlan(strategies, Settings(data * tensor, enable_alltoall=sequence and tensor == 1))
        (self.blocks,) = fold(self.graph).kinds
        self.plain_s = self.step_s(None, 0)
        self.plain_B = self.kept_B(None)
        self.names = tuple(
            dict.fromkeys(
                name_in_block(op) for op in self.graph.ops if op.block == self.blocks[0] and is_selectable(op)
            )
        )

    @property
    def front(self):
        """The corners of a block's front."""
        program = partition(self.graph, self.plan)
        taken_s = forward_s(self.graph, self.plan, program, CLUSTER, meanings(self.graph))
        return front(self.graph, program, self.blocks[3], taken_s).corners

    def recompute_s(self, way):
        """Seconds that each block computes again where all recompute `way`."""
        return (self.step_s(way, len(self.blocks)) - self.plain_s) / len(self.blocks)

    def written(self, way, first):
        """The plan whose first blocks recompute `way`, and its program."""
        recompute = dict.fromkeys(self.blocks[:first], way) if way is not None else {}
        plan = replace(self.plan, settings=replace(self.plan.settings, recompute=recompute))
        return plan, partition(self.graph, plan)

    def step_s(self, way, first):
        return price(self.graph, *self.written(way, first), CLUSTER).step_time_s

    def kept_B(self, way):
        """Bytes that a block in the middle keeps until the backward pass."""
        _, program = self.written(way, len(self.blocks))
        made = {t: n.block for n in program.nodes if n.phase.value == "forward" for t in n.outputs}
        return _alive_after_forward(program, made, self.blocks[3])


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
    every = network.front
    assert every[0].recompute is None and every[-1].recompute == Recompute()
    prices = [price_of_byte(*pair) for pair in pairwise(every)]
    assert len(prices) > 3 and prices == sorted(prices) and prices[0] > 0


def test_corners_take_and_keep_what_their_programs_do(network):
    every = network.front
    saved = every[0].kept_B - every[-1].kept_B
    for corner in every[1:]:
        assert network.recompute_s(corner.recompute) == pytest.approx(corner.recompute_s, rel=0.01)
        truly_B = network.plain_B - network.kept_B(corner.recompute)
        assert every[0].kept_B - corner.kept_B == pytest.approx(truly_B, abs=0.01 * saved)


def test_no_random_selection_lies_below_the_front(network):
    every = network.front
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
    less, more = _Network(*CASES[0]).front[2:4]
    mix = mix_of((more,), (less,))
    assert mix.way(0, True) == more.recompute and mix.way(0, False) == less.recompute
