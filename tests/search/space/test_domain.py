"""What operators may choose from."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.small_networks import random_network
from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import place, strategy_of
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Unit, view
from ms_symtensor.search.space.domain import candidates, cut_vectors, meshes, prime_factors
from ms_symtensor.search.space.family import Single, family
from tests.ops.views import make
from tests.strategy.plans import small_graph

MATMUL = make("MatMul", "float16[16, 32], float16[64, 32] -> float16[16, 64]", False, True)


@given(st.integers(1, 5000))
def test_prime_factors_multiply_to_the_number(n):
    found = prime_factors(n)
    assert math.prod(found) == n
    assert list(found) == sorted(found, reverse=True)
    assert all(divisors(f) == (1, f) for f in found)


@given(st.integers(1, 500))
def test_divisors_are_all_that_divide(n):
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)


def test_meshes():
    assert meshes(1) == ((),)
    assert meshes(8) == ((2, 2, 2),)
    assert meshes(24) == ((12, 2), (8, 3), (6, 4))
    assert meshes(64) == ((32, 2), (16, 4), (8, 8))
    assert meshes(11) == ((11, 1),)


def test_every_way_to_cut_a_product_on_the_finest_mesh():
    found = {tuple(v.get(d, 1) for d in "mkn") for v in cut_vectors(signature(MATMUL), (2, 2, 2))}
    sizes = [1, 2, 4, 8]
    assert found == {(m, k, n) for m in sizes for k in sizes for n in sizes if m * k * n <= 8}


def test_products_use_all_devices_and_scatter_their_partial_sums():
    found = candidates(MATMUL, signature(MATMUL), Single((2, 2)))
    assert {s.inputs[0][0] * s.inputs[0][1] * s.inputs[1][0] for s, _ in found} == {4}
    scattered = [s for s, placement in found if placement.partial is not None and placement.partial.dim is not None]
    assert {(s.inputs[0], s.outputs[0]) for s in scattered} == {((1, 4), (4, 1)), ((2, 2), (4, 1)), ((1, 2), (2, 2))}


def test_samples_are_cut_by_the_axis_that_a_family_has_for_them():
    of = family([(4, 2, 8)], [1.0])
    cuts = [
        (s.inputs[0][0], s.inputs[1][0]) for s, _ in candidates(MATMUL, signature(MATMUL), of, samples=frozenset("m"))
    ]
    assert (16, 2) in cuts and (
        16,
        8,
    ) in cuts  # the rows by the samples' axis, the columns by one of the others or both
    assert all(rows % 16 == 0 for rows, _ in cuts)
    free = [(s.inputs[0][0], s.inputs[1][0]) for s, _ in candidates(MATMUL, signature(MATMUL), of)]
    assert {*cuts} < {*free} and (8, 16) in free


def test_all_candidates_are_left_where_none_cuts_the_samples():
    norm = make("RmsNorm", "bfloat16[8, 32], bfloat16[32] -> bfloat16[8, 32], float32[8, 1]", 1e-6)
    sig, of = signature(norm), family([(4, 2, 8)], [1.0])
    assert candidates(norm, sig, of, samples=frozenset(sig.cuttable)) == candidates(norm, sig, of)


def test_a_norm_may_repeat_its_work():
    norm = make("RmsNorm", "bfloat16[64, 32], bfloat16[32] -> bfloat16[64, 32], float32[64, 1]", 1e-6)
    assert [s.inputs[0] for s, _ in candidates(norm, signature(norm), Single((2, 2)))] == [(4, 1), (2, 1), (1, 1)]


@pytest.mark.parametrize("model", ("llama2_7b", "llama3_8b", "gpt2_xl", "bert_large"))
@pytest.mark.parametrize("device_num", (2, 8, 64))
def test_every_candidate_is_accepted(model, device_num):
    graph = small_graph(model)
    for op in graph.ops:
        seen = view(graph, op)
        sig = signature(seen)
        if not sig.shardable:
            continue
        for mesh in meshes(device_num):
            found = candidates(seen, sig, Single(mesh))
            assert found
            assert len({s for s, _ in found}) == len(found)
            for strategy, placement in found:
                assert place(seen, sig, strategy, device_num) == placement
                assert all(layout.device_num == device_num for layout in placement.inputs)


@pytest.mark.parametrize("seed", range(10))
def test_no_accepted_cut_of_a_small_network_is_left_out(seed):
    graph = random_network(random.Random(seed), 5)
    for op in graph.ops:
        seen = view(graph, op)
        sig = signature(seen)
        if not sig.shardable:
            continue
        chosen = {s for s, _ in candidates(seen, sig, Single((2, 2)))}
        busy = sig.unit is Unit.CUBE or len(sig.cuttable) > 2
        degrees = [{d: n for d, n in zip(sig.cuttable, vector)} for vector in _vectors(len(sig.cuttable), 4)]
        valid = [v for v in degrees if all(sig.sizes[d] % n == 0 for d, n in v.items())]
        most = max(math.prod(v.values()) for v in valid)
        for vector in valid:
            strategy = strategy_of(sig, {d: n for d, n in vector.items() if n > 1})
            try:
                place(seen, sig, strategy, 4)
            except InvalidStrategyError:
                continue
            assert strategy in chosen or (busy and math.prod(vector.values()) < most)


def _vectors(length: int, device_num: int) -> list[tuple[int, ...]]:
    """All cuts whose product divides the number of devices."""
    if length == 0:
        return [()]
    rest = _vectors(length - 1, device_num)
    return [(n, *v) for n in divisors(device_num) for v in rest if device_num % (n * math.prod(v)) == 0]


def test_an_operator_that_accepts_nothing_is_named():
    dense = make("Dense", "float16[3, 32], float16[64, 32] -> float16[3, 64]")
    assert [s.inputs for s, _ in candidates(dense, signature(dense), Single((2,)))] == [((1, 1), (1, 1))]
