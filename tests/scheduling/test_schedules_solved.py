"""Schedules of passes: published ones wait as published, found ones are never worse, the simulator believes nothing."""

import random
from dataclasses import replace
from itertools import product

import pytest

from ms_symtensor.errors import InputError
from ms_symtensor.scheduling.bound import step_bound_s
from ms_symtensor.scheduling.period import best_period, load_s
from ms_symtensor.scheduling.placements import Network, Piece, problem
from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem
from ms_symtensor.scheduling.published import BOTH, LOOP, ONE, PUBLISHED, V
from ms_symtensor.scheduling.simulator import simulate
from ms_symtensor.scheduling.solve import solve
from ms_symtensor.scheduling.table import orders_of, table_csv


def equal(stages: int, micro_batches: int, memory: float) -> Network:
    """F, B and W of a stage take 2 each, and a micro-batch keeps 1."""
    return Network((Piece(2.0, 2.0, 2.0),) * stages, stages, micro_batches, memory)


def unlike(stages: int, micro_batches: int, memory: float, seed: int) -> Network:
    """Stages that differ in all; `memory` times what 1F1B keeps."""
    of = random.Random(seed).uniform
    pieces = []
    for _ in range(stages):
        kept_B = of(0.8, 1.2)
        once_s = (of(0.0, 1.0), of(0.0, 3.0))
        pieces.append(
            Piece(of(1.4, 2.6), of(1.4, 2.6), of(1.0, 2.4), (0.1, 0.1), *once_s, kept_B, kept_B * of(0.6, 1.3))
        )
    most_B = max(min(micro_batches, stages - n) * piece.kept_B for n, piece in enumerate(pieces))
    return Network(tuple(pieces), stages, micro_batches, memory * most_B)


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (4, 12), (8, 16), (6, 31)])
def test_published_schedules_wait_as_published(stages: int, micro_batches: int) -> None:
    """Seconds that stages wait: (P - 1)(F + B + W), (P - 1)(F + B - W), and for ZBV with equal passes (P - 1) of a half part."""
    network = equal(stages, micro_batches, stages)
    waits_s = {"1F1B": (stages - 1) * 6.0, "ZB-H1": (stages - 1) * 2.0, "ZBV": stages - 1.0}
    for name, idle_s in waits_s.items():
        placement, orders_of_ = PUBLISHED[name]
        of = problem(network, placement)
        found = simulate(of, orders_of_(of))
        assert found.idle_s == pytest.approx([idle_s] * stages), name
        assert max(found.peak_B) == pytest.approx(stages), name


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (8, 20)])
def test_dualpipe_keeps_one_more_and_waits_at_most_as_published(stages: int, micro_batches: int) -> None:
    """(P / 2 - 1)(F&B + B - 3 W), B the whole backward pass, with F&B one after the other; P + 1 micro-batches."""
    of = problem(equal(stages, micro_batches, stages + 1), BOTH)
    found = simulate(of, PUBLISHED["DualPipe"][1](of))
    assert found.peak_B == pytest.approx([stages + 1] * stages)
    assert max(found.idle_s) <= (stages / 2 - 1) * (6 + 4 - 3 * 2) + 1e-9


@pytest.mark.parametrize(
    ("micro_batches", "memory", "placement", "optimum_s"),
    [(8, 4, ONE, 54), (8, 8, ONE, 54), (12, 4, ONE, 78), (8, 4, V, 51), (8, 4, LOOP, 51), (8, 3, V, 53), (8, 2, V, 59)],
)
def test_bounds_are_below_known_optima(micro_batches: int, memory: float, placement: str, optimum_s: float) -> None:
    """Exact optima of whole steps on 4 stages, by constraint programming (CP-SAT 9.15)."""
    assert step_bound_s(problem(equal(4, micro_batches, memory), placement)) <= optimum_s


@pytest.mark.parametrize(("memory", "optimum_s"), [(4, 51), pytest.param(2, 59, marks=pytest.mark.matrix)])
def test_steps_of_equal_passes_are_optimal(memory: float, optimum_s: float) -> None:
    """The same optima, with parts in a V."""
    assert solve(equal(4, 8, memory)).best.simulated.step_s == pytest.approx(optimum_s)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "memory", "seed"),
    [
        (2, 5, 1.0, 1), pytest.param(3, 9, 2.0, 3, marks=pytest.mark.matrix),
        *(pytest.param(4, 16, memory, seed, marks=pytest.mark.matrix) for memory in (0.6, 1.0, 1.5) for seed in range(2)),
        pytest.param(8, 16, 1.0, 0, marks=pytest.mark.matrix),
    ],
)  # fmt: skip
def test_found_schedules_are_never_worse(stages: int, micro_batches: int, memory: float, seed: int) -> None:
    network = unlike(stages, micro_batches, memory, seed)
    found = solve(network)
    best_s = found.best.simulated.step_s
    assert found.best.fits and all(best_s <= one.simulated.step_s for one in found.published if one.fits)
    for one in found.searched:
        assert one.period is None or one.period.gap <= (1e-6 if stages <= 4 else 0.1)
    assert found.bound_s <= best_s * (1 + 1e-9)
    by_name = {one.name: one for one in found.published}
    assert memory < 1 or best_s < 0.95 * by_name["1F1B"].simulated.step_s  # it gains
    assert stages > 3 or solve(network).best.orders == found.best.orders


@pytest.mark.parametrize(
    ("placement", "memory"),
    [(ONE, 0.7), (ONE, 1.0), (V, 1.0), *(pytest.param(p, 0.7, marks=pytest.mark.matrix) for p in (V, LOOP))],
)
def test_a_period_is_kept_and_fits(placement: str, memory: float) -> None:
    """Taken up for many micro-batches, each more takes one period, within the memory."""
    network = unlike(3, 30, memory, 11)
    steps_s = []
    for number in (30, 50):
        of = problem(replace(network, micro_batch_num=number), placement)
        period = best_period(of)
        assert period is not None and period.is_optimal
        found = simulate(of, period.unrolled(of))
        assert found.fits(of)
        steps_s.append(found.step_s)
    assert (steps_s[1] - steps_s[0]) / 20 <= period.period_s * (1 + 1e-6)
    assert period.period_s >= load_s(of) * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_no_order_has_a_shorter_period(seed: int) -> None:
    """Two stages that may keep one or two micro-batches: against all orders of a few micro-batches, whatever their period."""
    network = unlike(2, 3, 1.0, seed)
    network = replace(
        network, limit_B=1.6 + seed % 2, pieces=tuple(replace(p, start_s=0, end_s=0) for p in network.pieces)
    )
    of = problem(network, ONE)
    period = best_period(of)
    assert period is not None
    pace_s = min(_pace_s(of, orders) for orders in _all_orders(of))
    assert period.period_s == pytest.approx(pace_s, rel=1e-6)


def _pace_s(of: Problem, patterns: tuple[tuple[tuple[int, Kind], ...], ...]) -> float:
    """Seconds of another micro-batch where stages repeat `patterns`: of each pass, by how many micro-batches it lags."""
    steps_s = []
    for number in (12, 24):
        longer = replace(of, micro_batch_num=number)
        orders: Orders = [
            [
                Action(stage, stage, turn - lag, kind)
                for turn in range(number + 4)
                for lag, kind in pattern
                if 0 <= turn - lag < number
            ]
            for stage, pattern in enumerate(patterns)
        ]
        try:
            found = simulate(longer, orders)
        except InputError:
            return float("inf")
        if not found.fits(longer):
            return float("inf")
        steps_s.append(found.step_s)
    return (steps_s[1] - steps_s[0]) / 12


def _all_orders(of: Problem) -> list[tuple[tuple[tuple[int, Kind], ...], ...]]:
    """Every order of F, B and W in a period, with every lag of up to 2 micro-batches."""
    F, B, W = Kind.FORWARD, Kind.BACKWARD, Kind.WEIGHTS
    cyclic = ((F, B, W), (F, W, B))
    patterns = [
        tuple(zip((0, lags[order.index(B) - 1], lags[order.index(W) - 1]), order, strict=True))
        if order == (F, B, W)
        else ((0, F), (lags[0], W), (lags[1], B))
        for order in cyclic
        for lags in product(range(3), repeat=2)
    ]
    return [(first, second) for first in patterns for second in patterns]


def test_the_simulator_refuses_what_is_no_schedule() -> None:
    of = problem(equal(2, 3, 2), ONE)
    orders = PUBLISHED["1F1B"][1](of)
    for broken in (
        [orders[0][1:], orders[1]],  # a pass is missing
        [[*orders[0], orders[0][0]], orders[1]],  # one is there twice
        [orders[1], orders[0]],  # on another stage
        [[orders[0][-1], *orders[0][:-1]], orders[1]],  # backward before forward
    ):
        with pytest.raises(InputError, match=r"^the schedule .*: (schedule again|give another order)$"):
            simulate(of, broken)


def test_a_table_is_read_as_it_was_written() -> None:
    of = problem(equal(4, 8, 4), V)
    orders = PUBLISHED["ZBV"][1](of)
    text = table_csv(of, orders, simulate(of, orders))
    assert orders_of(text, "schedule.csv") == orders
    for broken in ("", text.replace(",F,", ",X,", 1), text.replace("\n0,0,0", "\n9,0,0", 1)):
        with pytest.raises(InputError, match="schedule again"):
            orders_of(broken, "schedule.csv")


def test_too_little_memory_is_told() -> None:
    with pytest.raises(InputError, match="--activation-memory"):
        solve(equal(4, 8, 0.5))
