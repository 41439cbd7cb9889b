"""The search against brute force: random small networks, every combination of strategies, settings and recomputation.

    python -m benchmarks.brute_force [--cases 200] [--seed 0] [--most 300] [--select | --bound]

Every combination of every operator's candidates is partitioned and priced as a whole. `plan` must find a plan as fast as
the fastest; under a memory limit, one within the gap that it states. `--select`: two equal blocks under limits, of which any
operators are recomputed (minutes a case).
"""

import argparse
import itertools
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.small_networks import random_network, repeated_network
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.step import price
from ms_symtensor.errors import InfeasibleError, InvalidStrategyError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.meanings import Meanings, default_strategy, meanings
from ms_symtensor.program.parameters import is_synchronised
from ms_symtensor.program.partition import partition
from ms_symtensor.program.recomputation import is_selectable, name_in_block
from ms_symtensor.program.settings import Recompute, StagePlan
from ms_symtensor.search.folded.folding import Fold, fold
from ms_symtensor.search.plan import plan
from ms_symtensor.search.space.domain import candidates, meshes
from ms_symtensor.search.space.family import Single
from ms_symtensor.search.space.settings import settings_of
from ms_symtensor.search.tables.problem import plain_settings
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import strategies_by_primitive
from ms_symtensor.tensor.graph import Graph, OpOutput

SAME = 1e-9
"""Relative difference of times that counts as equal: sums in another order."""


@dataclass(frozen=True)
class Priced:
    """One combination, as the whole program costs it."""

    time_s: float
    memory_B: int
    stage: StagePlan


def combinations(graph: Graph, device_num: int, known: Meanings, folded: Fold) -> list[dict[str, OpStrategy]]:
    """Every joint choice of strategies, operators of one class alike; functional ones have no choice."""
    found: dict[tuple, dict[str, OpStrategy]] = {}
    for mesh in meshes(device_num):
        classes = [members for members in folded.members if known[members[0].name][1].shardable]
        rows = [
            [default_strategy(*known[members[0].name], device_num)]
            if members[0].is_on_the_fly
            else [s for s, _ in candidates(*known[members[0].name], Single(mesh))]
            for members in classes
        ]
        for chosen in itertools.product(*rows):
            named = {op.name: s for members, s in zip(classes, chosen, strict=True) for op in members}
            found[tuple(chosen)] = named
    return list(found.values())


def size(graph: Graph, device_num: int) -> int:
    """How many joint choices of strategies there are."""
    views = {op.name: view(graph, op) for op in graph.ops}
    firsts = [members[0].name for members in fold(graph).members]
    return sum(
        math.prod(
            len(candidates(views[n], sig, Single(mesh))) for n in firsts if (sig := signature(views[n])).shardable
        )
        for mesh in meshes(device_num)
    )  # fmt: skip


def selections(graph: Graph, block: str) -> list[Recompute | None]:
    """Every way to recompute `block`: not at all, any of its operators alone, or it but for any of them, each with its
    communication or without.
    """
    inside = [op for op in graph.ops if op.block == block and is_selectable(op)]
    users = {op.name: [user for user, _ in graph.users.get(OpOutput(op.name), ())] for op in inside}
    # What leaves the block is kept anyway.
    names = [name_in_block(op) for op in inside if all(user.block == block for user in users[op.name])]
    kept = [some for count in range(len(names) + 1) for some in itertools.combinations(names, count)]
    but_for = dict.fromkeys(Recompute(True, some, moves) for some in kept for moves in ((), some))
    return [None, *but_for, *(Recompute(only=some) for some in kept if some)]


def all_priced(
    graph: Graph, cluster: Cluster, device_num: int, recompute: bool = False, select: bool = False
) -> Iterator[Priced]:
    """Every valid combination with its price; `recompute` also tries every number of recomputed blocks, `select` every selection
    in every block.
    """
    known, folded = meanings(graph), fold(graph)
    blocks = tuple(name for names in folded.kinds for name in names)
    ways: list[dict[str, Recompute]] = [
        dict.fromkeys(blocks[:count], Recompute()) for count in range(len(blocks) + 1 if recompute else 1)
    ]
    if select:
        every = itertools.product(*(selections(graph, block) for block in blocks))
        ways = [{b: way for b, way in zip(blocks, some, strict=True) if way is not None} for some in every]
    settled = settings_of(plain_settings(graph, device_num))
    for strategies in combinations(graph, device_num, known, folded):
        for settings, recomputation in itertools.product(settled, ways):
            stage = StagePlan(strategies, replace(settings, recompute=recomputation))
            try:
                strategies_by_primitive(graph, stage)  # operators of one primitive are alike
                program = partition(graph, stage, known=known)
            except InvalidStrategyError:
                continue
            if not all(is_synchronised(p) for p in program.parameters.values() if p.requires_grad):
                continue
            cost = price(graph, stage, program, cluster, known)
            yield Priced(cost.step_time_s, cost.peak_memory_B, stage)


def planned(
    graph: Graph, cluster: Cluster, device_num: int, limit_B: int | None = None, certified_gap: float | None = None
) -> Plan:
    return plan(
        graph, cluster, device_num=device_num, global_batch_size=1, seq_length=1,
        memory_limit_B=1 << 60 if limit_B is None else limit_B, certified_gap=certified_gap,
    )  # fmt: skip


def disagreement(graph: Graph, cluster: Cluster, device_num: int) -> str | None:
    """What `plan` without a memory limit does worse than brute force, None if nothing."""
    best = min(all_priced(graph, cluster, device_num), key=lambda p: p.time_s)
    found = planned(graph, cluster, device_num)
    taken = found.prediction.step_time_s
    if taken > best.time_s * (1 + SAME):
        return f"plan takes {taken * 1e6:.3f} us, the optimum {best.time_s * 1e6:.3f} us"
    if taken / (1 + found.search.optimality_gap) > best.time_s * (1 + SAME):
        return f"the bound {taken / (1 + found.search.optimality_gap) * 1e6:.3f} us lies above the optimum"
    return None


def disagreement_under_limits(
    graph: Graph,
    cluster: Cluster,
    device_num: int,
    draw: random.Random,
    select: bool = False,
    certified_gap: float | None = None,
) -> list[str]:
    """What `plan` does worse than it states under three memory limits between the smallest and the fastest plan's peak; `select`:
    beside plans that recompute any operators of any blocks, not blocks as a whole alone.
    """
    everything = list(all_priced(graph, cluster, device_num, True, select))
    fastest, smallest = min(everything, key=lambda p: p.time_s), min(p.memory_B for p in everything)
    wrong = []
    for share in (0.05, draw.uniform(0.1, 0.9), 1.0):
        limit = int(smallest + share * (fastest.memory_B - smallest)) + 1
        best = min((p for p in everything if p.memory_B <= limit), key=lambda p: p.time_s)
        try:
            found = planned(graph, cluster, device_num, limit, certified_gap)
        except InfeasibleError as error:
            wrong.append(f"limit {limit}: a plan of {best.memory_B} bytes exists, but: {error}")
            continue
        taken, gap = found.prediction.step_time_s, found.search.optimality_gap
        if found.prediction.peak_memory_B > limit:
            wrong.append(f"limit {limit}: the plan needs {found.prediction.peak_memory_B}")
        if taken > best.time_s * (1 + gap) * (1 + SAME):
            wrong.append(f"limit {limit}: {taken / best.time_s - 1:.3g} above the optimum, stated gap {gap:.3g}")
    return wrong


def random_case(draw: random.Random, most: int) -> tuple[Graph, int]:
    """A network and a number of devices with at most `most` joint choices."""
    while True:
        device_num = draw.choice((2, 2, 4, 8))
        operators = draw.randint(2, {2: 7, 4: 5, 8: 3}[device_num])
        graph = random_network(draw, operators)
        if 1 < size(graph, device_num) <= most:
            return graph, device_num


def bound_case(draw: random.Random, most: int) -> tuple[Graph, int]:
    """A case with some functional operators, and some that share a primitive."""
    graph, device_num = random_case(draw, most)
    ops = []
    for op in graph.ops:
        if not op.primitive or draw.random() < 0.4:
            ops.append(replace(op, cell=(), primitive=""))
        else:
            ops.append(replace(op, primitive=op.type if draw.random() < 0.7 else op.primitive))
    return replace(graph, ops=tuple(ops)), device_num


def repeated_case(draw: random.Random, most: int) -> tuple[Graph, int]:
    """A network of equal blocks and a number of devices with at most `most` joint choices."""
    while True:
        graph, device_num = repeated_network(draw, draw.randint(2, 3), products=1), draw.choice((2, 2, 4))
        if 1 < size(graph, device_num) <= most:
            return graph, device_num


def selected_case(draw: random.Random, most: int) -> tuple[Graph, int]:
    """A network of two equal blocks, of few operators, and a number of devices with at most `most` joint choices."""
    while True:
        graph, device_num = repeated_network(draw, 2, products=1), draw.choice((1, 2))
        if size(graph, device_num) <= most:
            return graph, device_num


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=300, help="joint choices of a case")
    parser.add_argument("--select", action="store_true", help="two blocks, any operators of which are recomputed")
    parser.add_argument(
        "--certify", action="store_true", help="with --select: plans are certified, to a gap of nothing"
    )
    parser.add_argument("--bound", action="store_true", help="functional operators, and of one primitive")
    chosen = parser.parse_args()
    cluster, start, found, tried = load("atlas_800t_a2"), time.perf_counter(), 0, 0
    for number in range(chosen.cases):
        draw = random.Random(f"{chosen.seed}/{number}")
        graph, device_num = (selected_case if chosen.select else bound_case if chosen.bound else random_case)(
            draw, chosen.most
        )
        tried += size(graph, device_num)
        if chosen.select:
            gap = 0.0 if chosen.certify else None
            wrong = "; ".join(disagreement_under_limits(graph, cluster, device_num, draw, True, gap)) or None
        else:
            wrong = disagreement(graph, cluster, device_num)
        found += wrong is None
        if wrong is not None:
            print(f"case {number}, {device_num} devices, {' '.join(op.type for op in graph.ops)}: {wrong}")
    seconds = time.perf_counter() - start
    print(f"{found}/{chosen.cases} optima found; {tried} combinations of strategies tried in {seconds:.0f} s")
    return 0 if found == chosen.cases else 1


if __name__ == "__main__":
    sys.exit(main())
