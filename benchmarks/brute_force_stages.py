"""The search over pipeline stages against brute force: random small networks of equal blocks, the whole space of a step.

    python -m benchmarks.brute_force_stages [--cases 200] [--seed 0] [--most 3000] [--select] [--certify] [--lone] [--turns [N]]

Every step that a request allows is written down as the programs of its stages and priced as a whole (`cost.stage_time`,
`cost.stage_memory`): one, two or four stages (three divide no number of devices on which MindSpore forms groups), one, two or
four model chunks on each, every number of micro-batches, every division of the blocks, every joint choice of the operators'
strategies (operators of one class alike, on all stages), every sharding of the optimizer that is planned, and on every stage
every number of recomputed blocks, first ones first. On one stage also the whole batch at once. Stages that hold equal parts of a
network are priced once, several model chunks of equal blocks as one, with what is sent between them.

`plan` must find a step within the gap that it states of the fastest one, also under memory limits between the smallest and the
fastest step's peak. `--select`: any operators of
any blocks are recomputed, of two or three blocks on 2 or 4 devices, on one or two stages, always under limits. `--lone`: the
first block is like no other. `--turns`: two kinds of blocks take turns, every Nth block is of the second one.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from benchmarks.brute_force import SAME, selections, size
from benchmarks.small_networks import layered_network
from benchmarks.stage_space import LEVELS, Case, Step, all_steps
from ms_symtensor.cluster.load import load
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.space.undivided import why_whole
from ms_symtensor.search.stages.network import network


def disagreements(case: Case, steps: Sequence[Step], limited: bool, draw: random.Random) -> list[str]:
    """What `plan` does worse than brute force: without a memory limit, or under three of them."""
    fastest = min(steps)
    if not limited:
        return _disagreement(case, fastest, None)
    smallest_B = min(step.memory_B for step in steps)
    shares = (0.05, draw.uniform(0.1, 0.9), 1.0)
    limits_B = [int(smallest_B + share * (fastest.memory_B - smallest_B)) + 1 for share in shares]
    return [
        f"limit {limit_B}: {text}"
        for limit_B in limits_B
        for text in _disagreement(case, min(step for step in steps if step.memory_B <= limit_B), limit_B)
    ]


def _disagreement(case: Case, best: Step, limit_B: int | None) -> list[str]:
    """What `plan` does worse than `best`, the fastest step within a limit, if there is one: within the gap that it states."""
    try:
        found = case.planned() if limit_B is None else case.planned(limit_B)
    except InfeasibleError as error:
        return [f"{best.memory_B} bytes would do ({best}), but: {error}"]
    wrong, above = [], found.prediction.step_time_s / best.time_s - 1
    if limit_B is not None and found.prediction.peak_memory_B > limit_B:
        wrong.append(f"the plan needs {found.prediction.peak_memory_B}")
    gap = found.search.optimality_gap
    if above > gap + SAME:
        laid = "+".join(str(len(stage.settings.recompute)) for stage in found.stages)
        layers = "+".join(str(sum(map(len, runs))) for runs in found.pipeline.layers) if found.pipeline else "one stage"
        wrong.append(
            f"{above:.3g} above the optimum ({best}), stated gap {found.search.optimality_gap:.3g}; the plan has"
            f" {found.micro_batch_num} micro-batches, {layers} blocks, {laid} recomputed"
        )
    return wrong


def programs(case: Case, recompute: bool, select: bool = False) -> int:
    """How many programs are priced to know every step of `case`, at most."""
    graph = case.network.graph_at(case.batch)
    selected = len(selections(graph, graph.blocks[0])) if select else 0

    def kinds(blocks: int) -> int:
        return selected**blocks if select else blocks + 1 if recompute else 1

    def stage_kinds(stages: int) -> int:
        longest = case.blocks - stages + 1
        each = sum(kinds(n) * (case.blocks - n + 1 if case.lone else 1) for n in range(1, longest + 1))
        return (1 if case.lone else min(stages, 3)) * each if stages > 1 else kinds(case.blocks)

    total = 0
    for shape in case.ways:
        graph = case.network.short_at(shape.batch, case.blocks)
        total += size(graph, case.device_num // shape.stages) * len(LEVELS) * stage_kinds(shape.stages)
    if case.limits.allow(1, 1):
        total += size(case.network.graph_at(case.batch), case.device_num) * 3 * stage_kinds(1)
    return total


def random_case(
    draw: random.Random,
    most: int,
    recompute: bool,
    cluster: Cluster,
    others: Callable[[int], Collection[int]] = lambda _: (),
) -> Case:
    """A case with blocks of another kind as `others` says of so many, for which at most `most` programs are priced; half of the
    requests pin the stages, so that others stay in hand.
    """
    while True:
        blocks, device_num, batch = draw.randint(2, 5), draw.choice((2, 4, 4, 8, 8, 16)), draw.choice((2, 4, 8))
        blocks += len(others(blocks))
        graph_at = layered_network(draw, blocks, draw.choice((1, 1, 2)), others(blocks))
        pinned = draw.choice((None, 2, 4))
        if pinned is not None and (pinned > blocks or device_num % pinned or batch < pinned):
            continue
        limits = limits_of([("pipeline_stages", pinned)] if pinned else [])
        of = network(graph_at(batch, None), graph_at)
        case = Case(of, blocks, device_num, batch, limits, cluster)
        if not why_whole(of.graph_at(batch)) and programs(case, recompute) <= most:
            return case


def selected_case(draw: random.Random, most: int, cluster: Cluster) -> Case:
    """A case of few blocks, any operators of which may be recomputed, on pinned stages, for which at most `most` programs are
    priced.
    """
    while True:
        blocks, device_num, batch = draw.choice((2, 2, 3)), draw.choice((2, 4, 4)), draw.choice((2, 4))
        graph_at = layered_network(draw, blocks, draw.choice((1, 1, 2)))
        limits = limits_of([("pipeline_stages", draw.choice((1, 2, 2)))])
        case = Case(network(graph_at(batch, None), graph_at), blocks, device_num, batch, limits, cluster)
        if programs(case, True, True) <= most:
            return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=3000, help="programs that are priced for a case")
    parser.add_argument("--select", action="store_true", help="any operators of few blocks are recomputed")
    parser.add_argument("--certify", action="store_true", help="plans are certified, to a gap of nothing")
    parser.add_argument("--lone", action="store_true", help="the first block is like no other (not with --select)")
    parser.add_argument(
        "--turns",
        type=int,
        nargs="?",
        const=2,
        metavar="N",
        help="every Nth block is of another kind (not with --select)",
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    chosen = parser.parse_args()
    cluster, start, found, tried = load("atlas_800t_a2"), time.perf_counter(), 0, 0

    def others(blocks: int) -> range:
        """The numbers of the blocks that are of another kind."""
        every = chosen.turns
        return range(every - 1, blocks, every) if every else range(int(chosen.lone))

    for number in range(chosen.first, chosen.first + chosen.cases):
        draw, limited = random.Random(f"{chosen.seed}/{number}"), number % 2 == 1 or chosen.select
        case = (
            selected_case(draw, chosen.most, cluster)
            if chosen.select
            else random_case(draw, chosen.most, limited, cluster, others)
        )
        if chosen.certify:
            case = replace(case, certified_gap=0.0)
        steps = list(all_steps(case, limited, chosen.select))
        tried += len(steps)
        wrong = disagreements(case, steps, limited, draw)
        found += not wrong
        for text in wrong:
            print(f"case {number}, {case}: {text}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{found}/{chosen.cases} optima found; {tried} steps priced in {seconds:.0f} s")
    return 0 if found == chosen.cases else 1


if __name__ == "__main__":
    sys.exit(main())
