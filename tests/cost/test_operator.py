"""An operator's formulas: their text, their values, and that both ways of evaluating them agree."""

import numpy as np
import pytest

from ms_symtensor.algebra.expression import compile_expression
from ms_symtensor.algebra.text import plain
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.operator import cut_degree, dim_size, evaluate, operator_formulas
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import Unit, view
from ms_symtensor.search.space.domain import cut_vectors
from tests.ops.views import make
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
MATMUL = make("MatMul", "bfloat16[4096, 1024], bfloat16[2048, 1024] -> bfloat16[4096, 2048]", False, True)


def test_formulas_of_a_product_read_like_the_roofline():
    found = operator_formulas(MATMUL, signature(MATMUL), 2)
    assert plain(found.forward_flops) == "2.0·N_k·N_m·N_n/(c_k·c_m·c_n)"
    assert [plain(e) for e in found.inputs_B] == ["2·N_k·N_m/(c_k·c_m)", "2·N_k·N_n/(c_k·c_n)"]
    assert plain(found.forward_s) == (
        "t_op + max(memory(2·N_k·N_m/(c_k·c_m) + 2·N_k·N_n/(c_k·c_n) + 2·N_m·N_n/(c_m·c_n))/(B_hbm·eta_read), "
        "2.0·paid(N_m·N_n/(c_m·c_n), N_k/c_k)/(F_cube·eta_cube·eta_step))"
    )
    assert plain(found.backward_s).count("max(") == 2
    assert "2.0·paid(N_k·N_m/(c_k·c_m), N_n/c_n)" in plain(found.backward_s)
    assert "2.0·paid(N_k·N_n/(c_k·c_n), N_m/c_m)" in plain(found.backward_s)


def test_float32_products_use_the_slower_peak():
    op = make("MatMul", "float32[64, 64], float32[64, 64] -> float32[64, 64]", False, True)
    names = {s.name for s in operator_formulas(op, signature(op), 2).forward_s.free_symbols}
    assert "F_cube32" in names and "F_cube" not in names


@pytest.mark.parametrize("model", ("llama2_7b", "gpt2_xl", "bert_large"))
@pytest.mark.parametrize("products", (0, 1, 2))
def test_the_fast_evaluation_is_the_formula(model, products):
    graph = small_graph(model, attention="self" if products == 1 else "flash")
    for op in {o.type: o for o in graph.ops}.values():
        compare_evaluations(view(graph, op), products)


@pytest.mark.parametrize("kind", ("BatchMatMul", "MatMulExt"))
def test_so_it_is_for_operands_that_are_broadcast(kind):
    compare_evaluations(make(kind, "float32[8, 4, 16, 64], float32[4, 64, 32] -> float32[8, 4, 16, 32]"), 2)


def compare_evaluations(seen, products):
    sig = signature(seen)
    cuts = cut_vectors(sig, (2, 2))
    fast = evaluate(seen, sig, products, cuts, A2)
    formulas = operator_formulas(seen, sig, products)
    symbols = [*map(dim_size, sig.mesh), *map(cut_degree, sig.mesh), *A2.values]
    numbers = {dim_size(d).name: float(sig.sizes[d]) for d in sig.mesh} | A2.arguments
    numbers |= {cut_degree(d).name: np.array([c.get(d, 1) for c in cuts], float) for d in sig.mesh}
    for name in ("forward_s", "backward_s", "forward_flops"):
        exact = compile_expression(getattr(formulas, name), symbols)(**numbers)
        np.testing.assert_allclose(
            getattr(fast, name), np.broadcast_to(exact, len(cuts)), rtol=1e-12, err_msg=seen.type
        )


def test_gradients_of_broadcast_operands_are_summed_up():
    """A pass over what is computed for every sample, which adds to the product as well."""
    op = make("BatchMatMul", "bfloat16[8, 4, 16, 64], bfloat16[4, 64, 32] -> bfloat16[8, 4, 16, 32]")
    found = plain(operator_formulas(op, signature(op), 2).backward_s)
    product = "N_b0·N_b1·N_k·N_n/(c_b0·c_b1·c_k·c_n)"
    assert f"paid({product}, N_m/c_m)" in found
    assert f"memory(2·{product} + 2·N_b1·N_k·N_n/(c_b1·c_k·c_n))/(B_hbm·eta_hbm)" in found
    assert found.startswith("3·t_op")


def test_cutting_never_makes_an_operator_slower():
    cuts = ({}, {"m": 2}, {"m": 2, "n": 2}, {"m": 2, "n": 2, "k": 2})
    found = evaluate(MATMUL, signature(MATMUL), 2, cuts, A2)
    for times in (found.forward_s, found.backward_s, found.forward_flops):
        assert all(np.diff(times) < 0)
    assert found.forward_flops[0] == 2 * 4096 * 1024 * 2048


@pytest.mark.parametrize("slices", (1, 2, 8))
def test_the_last_slice_of_a_causal_mask_sets_the_pace(slices):
    """Against a count of the keys that the last slice's rows see, and half a wave of rows that see as many."""
    rows, query, statistics = 4096, "bfloat16[1, 8, 4096, 128]", "float32[1, 8, 4096, 8]"
    types = f"{query}, {query}, {query}, uint8[2048, 2048] -> {statistics}, {statistics}, bfloat16[1], {query}"
    rest = (*(None,) * 6, 8, 1.0, 0.25, 2147483647, 2147483647, 0, "BNSD", 2)
    op = make("FlashAttentionScore", types, *rest, positions=(0, 1, 2, 6))
    found = evaluate(op, signature(op), 1, ({}, {"s": slices}), A2).forward_s - A2.device.op_overhead_s
    for n, seconds in zip((1, slices), found):
        met = 8 * sum(row + 0.5 for row in range(rows - rows // n, rows))
        met += 3072 / 2 * met / (8 * rows // n) + 3072 * 768
        assert seconds == pytest.approx(4 * 128 * met / (0.5 * 353.9e12))


def test_narrow_heads_pay_for_wider_ones():
    """As many FLOPs in twice as many heads of half the width: softmax is over twice as many scores."""
    seconds = {}
    for heads, width in ((8, 256), (16, 128), (32, 64)):
        query, statistics = f"bfloat16[1, {heads}, 4096, {width}]", f"float32[1, {heads}, 4096, 8]"
        types = f"{query}, {query}, {query}, uint8[2048, 2048] -> {statistics}, {statistics}, bfloat16[1], {query}"
        rest = (*(None,) * 6, heads, 1.0, 0.25, 2147483647, 2147483647, 0, "BNSD", 2)
        op = make("FlashAttentionScore", types, *rest, positions=(0, 1, 2, 6))
        for cluster in (A2, load("a100_80g")):
            seconds[cluster.name, width] = evaluate(op, signature(op), 1, ({},), cluster).forward_s[0]
    rows = {width: 4096 * (8 * 256 // width) + 3072 * (0.5 + 768 / 2048) for width in (256, 128, 64)}
    work = {width: max(width, 128) * rows[width] for width in rows}
    kernel_s = {width: seconds[A2.name, width] - A2.device.op_overhead_s for width in rows}
    assert kernel_s[128] / kernel_s[256] == pytest.approx(work[128] / work[256])
    assert kernel_s[64] / kernel_s[128] == pytest.approx(work[64] / work[128])
    assert seconds["a100_80g", 64] == seconds["a100_80g", 128]  # nothing is published of the others


def test_a_kernel_by_hand():
    """A square product of many waves, one of few elements with a long sum, and softmax, on 24 cores."""
    wave, fill, rate = 24 * 128 * 256, 128, 0.885 * 0.838 * 353.9e12
    (square_s,) = forward_s(
        "MatMul", "bfloat16[8192, 8192], bfloat16[8192, 8192] -> bfloat16[8192, 8192]", False, False
    )
    assert square_s == pytest.approx(2 * (8192**2 + wave) * (8192 + fill) / rate + 5e-6)
    (narrow_s,) = forward_s("MatMul", "bfloat16[512, 8192], bfloat16[8192, 512] -> bfloat16[512, 512]", False, False)
    assert narrow_s == pytest.approx(
        2 * (3 * 512**2 + wave) * (8192 / 3 + fill) / rate + 5e-6
    )  # three parts of each sum
    (softmax_s,) = forward_s("Softmax", "float16[32, 2048, 2048] -> float16[32, 2048, 2048]", -1)
    assert softmax_s == pytest.approx(16 * 32 * 2048**2 / (0.5 * 11.06e12 / 2) + 5e-6)


def forward_s(kind, types, *arguments):
    op = make(kind, types, *arguments)
    return evaluate(op, signature(op), 0, ({},), A2).forward_s


def test_views_cost_nothing():
    op = make("ExpandDims", "float16[8, 4] -> float16[8, 1, 4]", 1)
    sig = signature(op)
    assert sig.unit is Unit.NONE
    assert evaluate(op, sig, 1, ({},), A2).forward_s.tolist() == [0.0]


def test_attention_over_one_sample_is_cheaper_than_over_two():
    one, two = (small_graph("llama2_7b", batch_size=batch) for batch in (1, 2))
    seconds = []
    for graph in (one, two):
        seen = view(graph, next(op for op in graph.ops if op.type == "FlashAttentionScore"))
        seconds.append(evaluate(seen, signature(seen), 3, [{"n": 2}], A2).forward_s[0])
    assert seconds[0] < seconds[1]


def moved_B(op, number):
    """Bytes of the backward pass over memory, from its seconds."""
    device = A2.device
    seconds = evaluate(op, signature(op), number, ({},), A2).backward_s[0]
    bandwidth_Bps = (
        device.hbm_bandwidth_Bps * device.hbm_efficiency * device.l2_speedup
    )  # all of it fits into the cache
    return (seconds - device.op_overhead_s) * bandwidth_Bps


X, ROW = 2 * 4096 * 1024, 2 * 1024  # bytes


@pytest.mark.parametrize(
    "kind, types, arguments, gradients, bytes_",
    [
        ("RmsNorm", "bfloat16[4096,1024], bfloat16[1024] -> bfloat16[4096,1024], float32[4096,1]", (1e-6,), 2, 3 * X + 2 * ROW),
        ("Add", "bfloat16[4096,1024], bfloat16[1024] -> bfloat16[4096,1024]", (), 1, X + ROW),
        ("Mul", "bfloat16[4096,1024], bfloat16[1024] -> bfloat16[4096,1024]", (), 2, 3 * X + 2 * ROW),
        ("Split", "bfloat16[4096,1024] -> bfloat16[4096,512], bfloat16[4096,512]", (1, 2), 1, 2 * X),
    ],
)  # fmt: skip
def test_a_backward_pass_reads_what_arrives_and_was_kept_and_writes_its_gradients(
    kind, types, arguments, gradients, bytes_
):
    assert moved_B(make(kind, types, *arguments), gradients) == pytest.approx(bytes_, rel=0.01)


def test_what_is_passed_on_as_it_is_costs_nothing():
    op = make("Add", "bfloat16[64,64], bfloat16[64,64] -> bfloat16[64,64]")
    assert evaluate(op, signature(op), 2, ({},), A2).backward_s.tolist() == [0.0]


def test_the_gradient_of_a_bias_is_no_product():
    types = "bfloat16[4096,1024], bfloat16[4096,1024], bfloat16[4096] -> bfloat16[4096,4096]"
    dense = make("Dense", types)
    found = evaluate(dense, signature(dense), 3, ({},), A2)
    assert 2 * found.forward_s[0] < found.backward_s[0] < 2.5 * found.forward_s[0]
