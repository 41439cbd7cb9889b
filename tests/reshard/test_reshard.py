"""The way from one plan to another: what is missing by brute force, moves by processes, prices, buckets, alignment."""

import itertools
import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plans import data_times_tensor, plan_of, small_graph

from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.errors import InputError
from ms_symtensor.program.settings import OptimizerLevel, Settings
from ms_symtensor.report.programs import programs_of
from ms_symtensor.reshard.alignment import aligned
from ms_symtensor.reshard.proof import prove
from ms_symtensor.reshard.reshard import Request, reshard
from ms_symtensor.reshard.slices import Held, Side, Slices, as_rollout, side_of
from ms_symtensor.reshard.transfers import Way
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.layout import Layout

CLUSTER = load_cluster("atlas_800t_a2")
LIMIT_B = 50 << 30


def drawn_slices(rng: random.Random, shape: tuple[int, ...], ranks: int) -> Slices:
    """A layout of a tensor on `ranks` devices, sometimes with its copies sharded."""
    matrix: list[int] = []
    rest = ranks
    while rest > 1:
        matrix.append(rng.choice([d for d in range(2, rest + 1) if rest % d == 0]))
        rest //= matrix[-1]
    axes = list(range(len(matrix)))
    rng.shuffle(axes)
    tensor_map = [axes.pop() if axes and rng.random() < 0.6 else -1 for _ in shape]
    layout = Layout(tuple(matrix) or (1,), tuple(tensor_map), shape)
    copies = layout.copies
    if copies.size > 1 and rng.random() < 0.4:
        return Slices(layout, copies.size, copies)
    return Slices(layout)


def drawn_side(rng: random.Random, shapes: dict[str, tuple[int, ...]], dtype: str = "float32") -> Side:
    stages, ranks = rng.choice([(1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (2, 2), (2, 4), (4, 2), (2, 3)])
    kinds = {name.split(".")[-1]: drawn_slices(rng, shape, ranks) for name, shape in shapes.items()}
    tensors = []
    for number, (name, shape) in enumerate(shapes.items()):
        stage = number * stages // len(shapes)
        tensors.append(Held(name, shape, dtype, ((stage, kinds[name.split(".")[-1]]),), (stage,)))
    return Side(tuple(tensors), stages, ranks)


def drawn_pair(seed: int) -> tuple[Side, Side]:
    rng = random.Random(seed)
    of_layer = {"query": (48, 96), "norm": (48,), "experts": (48, 24, 48)}
    shapes = {f"layers.{n}.{name}": shape for n in range(4) for name, shape in of_layer.items()}
    target = drawn_side(rng, shapes, rng.choice(["float32", "float32", "bfloat16"]))
    return drawn_side(rng, shapes), target


def elements(side: Side, held: Held) -> list[set[int]]:
    """The elements that each rank holds, one by one."""
    found: list[set[int]] = [set() for _ in range(side.rank_num)]
    whole = np.arange(math.prod(held.shape)).reshape(held.shape)
    for stage, slices in held.stages:
        parts = slices.parts
        for replica, local in itertools.product(range(side.replicas), range(side.stage_ranks)):
            part = whole
            for dim, (cut, index) in enumerate(zip(slices.cuts, parts[local])):
                part = np.split(part, cut, dim)[index]
            found[(stage * side.replicas + replica) * side.stage_ranks + local] |= set(part.ravel().tolist())
    return found


def missing_B(source: Side, target: Side, device_of: tuple[int, ...], devices: int) -> list[int]:
    known = {held.name: held for held in source.tensors}
    total = [0] * devices
    for held in target.tensors:
        have = elements(source, known[held.name]) + [set()] * devices
        size = 2 if "bfloat16" in (held.dtype, known[held.name].dtype) else 4
        for rank, needs in enumerate(elements(target, held)):
            total[device_of[rank]] += size * len(needs - have[device_of[rank]])
    return total


@pytest.mark.parametrize("seed", range(40))
def test_every_rank_receives_what_it_lacks_and_nothing_else(seed: int) -> None:
    source, target = drawn_pair(seed)
    found = reshard(source, target, Request(CLUSTER, LIMIT_B, apart=seed % 5 == 0))
    assert found.received_B().tolist() == missing_B(source, target, found.device_of, found.device_num)
    assert (found.received_B() <= found.whole_B()).all()
    plain = reshard(source, target, Request(CLUSTER, LIMIT_B, apart=seed % 5 == 0, aligns=False))
    assert found.received_B().sum() <= plain.received_B().sum()


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_processes_move_what_was_predicted_and_every_slice_is_equal(seed: int) -> None:
    proof = prove(reshard(*drawn_pair(seed), Request(CLUSTER, LIMIT_B, apart=seed % 5 == 0)))
    assert proof.holds and not proof.different and proof.received_B == proof.predicted_B


@pytest.mark.matrix  # a second each
@pytest.mark.parametrize("seed", range(40))
def test_processes_move_forty_pairs(seed: int) -> None:
    test_processes_move_what_was_predicted_and_every_slice_is_equal(seed)


def test_a_proof_fails_where_a_transfer_is_missing() -> None:
    from dataclasses import replace

    found = reshard(*drawn_pair(1), Request(CLUSTER, LIMIT_B))
    number, move = next((n, m) for n, m in enumerate(found.moves) if m.transfers.sends)
    fewer = replace(move, transfers=replace(move.transfers, sends=move.transfers.sends[1:]))
    proof = prove(replace(found, moves=(*found.moves[:number], fewer, *found.moves[number + 1 :])))
    assert proof.different and not proof.holds


def layered(stages: int, data: int, tensor: int, layers: int = 4) -> Side:
    """Layers of one column-parallel weight each."""
    shape = (1024, 4096)
    slices = Slices(Layout((data, tensor), (0, -1), shape))
    held = (
        Held(f"layers.{n}.w", shape, "float32", ((n * stages // layers, slices),), (n * stages // layers,))
        for n in range(layers)
    )
    return Side(tuple(held), stages, data * tensor)


def test_stages_are_all_gathered_along_the_pipeline() -> None:
    found = reshard(layered(4, 1, 2), as_rollout(layered(1, 1, 2), None, 4), Request(CLUSTER, LIMIT_B, aligns=False))
    (move,) = found.moves
    assert move.way is Way.ALL_GATHER and move.of.count == 1
    assert sorted(one.ranks for one in move.transfers.gatherings) == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_a_slice_of_what_a_rank_has_moves_nothing() -> None:
    found = reshard(layered(1, 4, 2), layered(1, 1, 8), Request(CLUSTER, LIMIT_B))
    assert [move.way for move in found.moves] == [Way.SLICE] and found.received_B().sum() == 0
    same = reshard(layered(1, 4, 2), layered(1, 4, 2), Request(CLUSTER, LIMIT_B))
    assert [move.way for move in same.moves] == [Way.IN_PLACE] and same.time_s == 0


def test_llama2_70b_from_stages_to_tensor_parallel_receives_three_quarters() -> None:
    """TP8 PP4 to TP8 on 64 devices, bfloat16: of the weights of 80 layers a rank has a quarter of an eighth."""
    layer = {"qo": (8192, 16384), "kv": (2048, 8192), "gate_up": (57344, 8192), "down": (28672, 8192)}

    def side(stages: int, data: int) -> Side:
        tensors = []
        for n, (name, shape) in itertools.product(range(80), layer.items()):
            stage, slices = n * stages // 80, Slices(Layout((data, 8), (0, -1), shape))
            tensors.append(Held(f"{n}.{name}", shape, "bfloat16", ((stage, slices),), (stage,)))
        return Side(tuple(tensors), stages, data * 8)

    found = reshard(side(4, 2), as_rollout(side(1, 1), None, 8), Request(CLUSTER, LIMIT_B))
    assert found.received_B().max() / 1e9 == pytest.approx(12.8, abs=0.1)
    assert found.whole_B().max() / 1e9 == pytest.approx(132.6, abs=0.2)
    assert found.peak_B and max(found.peak_B) < 20e9


def test_alignment_keeps_nodes_together_and_is_the_best_by_brute_force() -> None:
    kept = np.random.default_rng(0).integers(0, 100, (6, 6)).astype(float)
    best = max(
        itertools.permutations(range(6)),
        key=lambda order: sum(kept[r, d] + 0.5 * (r == d) for r, d in enumerate(order)),
    )
    assert tuple(aligned(kept, CLUSTER)) == best
    large = aligned(np.random.default_rng(1).random((32, 32)) * 1e6, CLUSTER)
    assert sorted(large) == list(range(32))
    assert all(len({d // 8 for d in large[n : n + 8]}) == 1 for n in range(0, 32, 8))


def test_buckets_keep_within_the_limit_or_say_what_is_needed() -> None:
    source, target = layered(4, 1, 2, layers=64), as_rollout(layered(1, 1, 2, layers=64), None, 4)
    free = reshard(source, target, Request(CLUSTER, LIMIT_B))
    assert len(free.buckets) > 1 and sum(count for bucket in free.buckets for _, count in bucket) == 16
    kept = reshard(source, target, Request(CLUSTER, LIMIT_B, keeps=True))
    assert max(kept.peak_B) > max(free.peak_B)
    with pytest.raises(InputError, match="at its fullest"):
        reshard(source, target, Request(CLUSTER, 1000))


def planned(
    name: str, data: int, tensor: int, layers: tuple[int, ...] = (), states: bool = True, **settings: object
) -> Side:
    graph = small_graph(name)
    strategies = data_times_tensor(graph, data, tensor)
    plan = plan_of(graph, strategies, data * tensor, **settings)
    if layers:
        from dataclasses import replace

        both = Settings(data * tensor, **settings)  # type: ignore[arg-type]
        stages, pipeline = pipeline_stages(graph, layers, [strategies] * len(layers), both, micro_batch_num=4)
        plan = replace(plan, stages=stages, pipeline=pipeline)
    return side_of(programs_of(plan, graph), states)


SHARDED = {"optimizer_level": OptimizerLevel.LEVEL1, "parallel_optimizer_threshold_KB": 0}


def test_plans_of_the_zoo_with_states_and_a_weight_of_two_stages() -> None:
    """gpt2's embedding is read by both stages, and only one of them has it up to date."""
    proof = prove(
        reshard(planned("gpt2_xl", 2, 2, (1, 1), **SHARDED), planned("gpt2_xl", 2, 4), Request(CLUSTER, LIMIT_B))
    )
    assert proof.holds
    back = reshard(planned("gpt2_xl", 2, 4), planned("gpt2_xl", 1, 4, (1, 1)), Request(CLUSTER, LIMIT_B))
    assert prove(back).holds


def test_two_networks_are_refused() -> None:
    with pytest.raises(InputError, match="two plans of one network"):
        reshard(planned("gpt2_xl", 1, 2), planned("llama2_7b", 1, 2), Request(CLUSTER, LIMIT_B))


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_reshard import *\n"
        "print(prove(reshard(*drawn_pair(1), Request(CLUSTER, LIMIT_B))).holds)\n"
    )
    folders = [str(Path(__file__).parents[2]), str(Path(__file__).parent), str(Path(__file__).parents[1] / "strategy")]
    done = subprocess.run([sys.executable, str(script), *folders], capture_output=True, text=True, timeout=100)
    assert done.stdout == "True\n", done.stderr
