"""Definitions against numpy, run by MindSpore on the CPU."""

import math

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from ms_symtensor.bridge.proof import attention_definition, collective_parts, definitions


@pytest.fixture(autouse=True)
def _same_values_in_any_order() -> None:
    global RANDOM
    RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(cell: object, *inputs: np.ndarray | int) -> list[np.ndarray]:
    out = cell(*(Tensor(x, mindspore.int32) if isinstance(x, int) else Tensor(x) for x in inputs))
    return [x.asnumpy() for x in (out if isinstance(out, tuple) else (out,))]


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """On [batch, heads, seq, head_dim] in float64."""
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], 1).astype(np.float64) for x in (k, v))
    score = np.where(seen, q @ k.swapaxes(-1, -2) * 0.5, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    return (weight / weight.sum(-1, keepdims=True)) @ v


@pytest.mark.parametrize(
    ("sparse_mode", "seen"),
    [
        (0, np.ones((6, 6), bool)),
        (2, np.tril(np.ones((6, 6), bool))),
        (3, np.tril(np.ones((6, 6), bool))),
        (4, np.tril(np.ones((6, 6), bool), 1) & np.triu(np.ones((6, 6), bool), -2)),
    ],
)
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("value_size", [8, 4])
def test_attention(layout: str, sparse_mode: int, seen: np.ndarray, value_size: int) -> None:
    q, k, v = values(2, 4, 6, 8), values(2, 2, 6, 8), values(2, 2, 6, value_size)

    def laid_out(x: np.ndarray) -> np.ndarray:
        if layout == "BNSD":
            return x
        x = x.transpose(0, 2, 1, 3) if layout[0] == "B" else x.transpose(2, 0, 1, 3)
        return x if layout == "BSND" else x.reshape(*x.shape[:2], -1)

    visible = attention_definition.visible(6, 6, sparse_mode, 2, 1)
    cell = attention_definition.FlashAttention(layout, 4, 0.5, visible, False)
    found = run(cell, *map(laid_out, (q, k, v)))
    np.testing.assert_allclose(found[3], laid_out(attention(q, k, v, seen)), atol=1e-5)


def test_a_mask_hides_and_rows_of_a_longer_key_end_at_its_end() -> None:
    q, k, v = values(1, 1, 4, 8), values(1, 1, 6, 8), values(1, 1, 6, 8)
    hidden = np.triu(np.ones((4, 6), np.uint8), 3)
    by_mask = run(attention_definition.FlashAttention("BNSD", 1, 0.5, None, True), q, k, v, hidden)[3]
    np.testing.assert_allclose(by_mask, attention(q, k, v, hidden == 0), atol=1e-5)
    by_mode = run(
        attention_definition.FlashAttention("BNSD", 1, 0.5, attention_definition.visible(4, 6, 3, 0, 0), False), q, k, v
    )[3]
    np.testing.assert_allclose(by_mode, by_mask, atol=1e-5)


def test_the_gradient_of_attention_is_its_slope() -> None:
    q, k, v, dy, step = (values(1, 2, 3, 4) for _ in range(5))
    seen = np.tril(np.ones((3, 3), bool))
    cell = attention_definition.FlashAttentionGradient(attention_definition.FlashAttention("BNSD", 2, 0.5, seen, False))
    found = run(cell, q, k, v, dy)
    for place, gradient in enumerate(found[:3]):
        wide = [x.astype(np.float64) for x in (q, k, v)]
        moved = [[x + sign * 1e-4 * step * (i == place) for i, x in enumerate(wide)] for sign in (1.0, -1.0)]
        up, down = (np.sum(attention(*xs, seen) * dy) for xs in moved)
        assert np.sum(gradient * step) == pytest.approx((up - down) / 2e-4, rel=1e-3)


def test_rms_norm_and_its_gradient() -> None:
    x, gamma, dy = values(2, 3, 8), values(8), values(2, 3, 8)
    y, inverse = run(definitions.RmsNorm(1e-5), x, gamma)
    expected = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(inverse, expected, rtol=1e-5)
    np.testing.assert_allclose(y, x * expected * gamma, rtol=1e-5)
    dx, dgamma = run(definitions.RmsNormGradient(), dy, x, inverse, gamma)
    by_x, by_gamma = run(definitions.Gradient(definitions.RmsNorm(1e-5), 2, 0), x, gamma, dy)
    np.testing.assert_allclose(dx, by_x, atol=1e-5)
    np.testing.assert_allclose(dgamma, by_gamma, atol=1e-5)


@pytest.mark.parametrize(("dims", "axis"), [((1,), 1), ((0, 2), (0, 2)), ((), None)])
@pytest.mark.parametrize("keep", [True, False])
def test_log_sum_exp(dims: tuple[int, ...], axis: int | tuple[int, ...] | None, keep: bool) -> None:
    x = 100 * values(2, 3, 4)
    (found,) = run(definitions.LogSumExp(dims, keep), x)
    np.testing.assert_allclose(found, np.logaddexp.reduce(x.astype(np.float64), axis, keepdims=keep), rtol=1e-5)


@pytest.mark.parametrize(
    ("shifts", "dims"), [((1,), (1,)), ((-2, 5), (1, 2)), ((7,), (-1,)), ((3,), ()), ((1, 1), (0, 0))]
)
def test_roll(shifts: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = values(2, 3, 4)
    np.testing.assert_array_equal(run(definitions.Rolled(shifts, dims), x)[0], np.roll(x, shifts, dims or None))


def test_what_was_sliced_is_spread() -> None:
    dy, expected = values(2, 3, 2), np.zeros((2, 6, 5), np.float32)
    expected[:, 1::2, 0:4:3] = dy
    cell = definitions.Spread((1, 2), ((6, (1, 3, 5)), (5, (0, 3))))
    np.testing.assert_array_equal(run(cell, dy)[0], expected)


def test_collectives_from_sums_over_ranks() -> None:
    """What four ranks compute when the sum between the steps is taken by numpy."""
    shards = [values(4, 8) for _ in range(4)]
    gathered = sum(run(collective_parts.Place(4), x, rank)[0] for rank, x in enumerate(shards))
    np.testing.assert_array_equal(gathered, np.concatenate(shards))
    stacked = sum(run(collective_parts.Stack(4), x, rank)[0] for rank, x in enumerate(shards))
    for kind, function in (("max", np.max), ("min", np.min), ("prod", np.prod)):
        np.testing.assert_allclose(run(collective_parts.Reduce(kind), stacked)[0], function(shards, 0), rtol=1e-6)
    total = sum(shards)
    for rank in range(4):
        np.testing.assert_array_equal(run(collective_parts.Slice(4), total, rank)[0], total[rank : rank + 1])
        received = run(collective_parts.AllToAllSlices(4, 1, 0), gathered, rank)[0]
        np.testing.assert_array_equal(received, np.concatenate([x[:, 2 * rank : 2 * rank + 2] for x in shards]))


@pytest.mark.parametrize("by_token", [True, False])
def test_tokens_find_places_with_their_experts(by_token: bool) -> None:
    """Token by token or choice by choice, as MindSpore's kernel counts them."""
    batch, tokens, k, experts, capacity = 2, 5, 2, 3, 3
    chosen = np.stack([np.argsort(RANDOM.random((tokens, experts)), -1)[:, :k] for _ in range(batch)]).astype(np.int32)
    dispatch, combine = np.zeros((batch, experts, capacity), np.int32), np.zeros((batch, tokens, k), np.int32)
    for b in range(batch):
        taken = [0] * experts
        pairs = [(t, j) for t in range(tokens) for j in range(k)]
        for t, j in pairs if by_token else sorted(pairs, key=lambda pair: pair[::-1]):
            expert = chosen[b, t, j]
            combine[b, t, j] = expert * (capacity + 1)
            if taken[expert] < capacity:
                dispatch[b, expert, taken[expert]] = t + 1
                taken[expert] += 1
                combine[b, t, j] += taken[expert]
    found = run(definitions.TopKRouter(capacity, experts, by_token), chosen)
    np.testing.assert_array_equal(found[0], dispatch)
    np.testing.assert_array_equal(found[1], combine)


def test_a_sum_over_dims() -> None:
    x = values(2, 3, 4)
    for dims, keep in (((), False), ((0, 2), True), ((1,), False)):
        expected = x.sum(dims or None, keepdims=keep)
        np.testing.assert_allclose(run(definitions.Sum(dims, keep), x)[0], expected, rtol=1e-5)


def teardown_module() -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)


@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_y", [False, True])
def test_a_product_with_a_matrix_that_all_share(transpose_x: bool, transpose_y: bool) -> None:
    x, y = values(2, 3, 4, 5), values(5, 6)
    arguments = x.swapaxes(-1, -2) if transpose_x else x, y.T if transpose_y else y
    np.testing.assert_allclose(run(definitions.Product(transpose_x, transpose_y), *arguments)[0], x @ y, atol=1e-5)


@pytest.mark.parametrize("by_tanh", [False, True])
def test_gelu_and_its_gradient(by_tanh: bool) -> None:
    x, dy = values(3, 5), values(3, 5)
    wide = x.astype(np.float64)
    step = 1e-6
    np.testing.assert_allclose(run(definitions.Gelu(by_tanh), x)[0], _gelu(wide, by_tanh), rtol=1e-6, atol=1e-6)
    above, below = (_gelu(wide + sign * step, by_tanh) for sign in (1, -1))
    slope = (above - below) / (2 * step)
    np.testing.assert_allclose(run(definitions.GeluGradient(by_tanh), dy, x)[0], dy * slope, atol=1e-5)


def _gelu(x: np.ndarray, by_tanh: bool) -> np.ndarray:
    inner = (2 / np.pi) ** 0.5 * (x + 0.044715 * x**3) if by_tanh else x / 2**0.5
    return 0.5 * x * (1 + (np.tanh(inner) if by_tanh else np.vectorize(math.erf)(inner)))


@pytest.mark.parametrize("neighbours", [False, True])
def test_rotated_pairs_are_complex_products(neighbours: bool) -> None:
    x, dy, angle = values(2, 3, 4, 8), values(2, 3, 4, 8), values(4, 4)
    angles = np.repeat(angle, 2, -1) if neighbours else np.concatenate((angle, angle), -1)
    cos, sin = np.cos(angles)[None, None], np.sin(angles)[None, None]

    def as_complex(real: np.ndarray) -> np.ndarray:
        return real[..., ::2] + 1j * real[..., 1::2] if neighbours else real[..., :4] + 1j * real[..., 4:]

    (found,) = run(definitions.Rotary(neighbours), x, cos, sin)
    np.testing.assert_allclose(as_complex(found), as_complex(x) * np.exp(1j * angle), atol=1e-5)
    for operands in ((dy, cos, sin, x), (dy, cos, sin)):
        by_x = run(definitions.RotaryGradient(neighbours), *operands)[0]
        np.testing.assert_allclose(as_complex(by_x), as_complex(dy) * np.exp(-1j * angle), atol=1e-5)


def test_the_gradient_of_an_embedding_adds_up_rows() -> None:
    dy, indices = values(2, 3, 4), np.array([[1, 0, 1], [4, 1, 0]], np.int32)
    expected = np.zeros((6, 4), np.float32)
    np.add.at(expected, indices, dy)
    np.testing.assert_allclose(run(definitions.EmbeddingGradient(6), dy, indices)[0], expected, atol=1e-6)


def test_elements_are_repeated_in_a_row() -> None:
    x = values(2, 3, 4)
    np.testing.assert_array_equal(run(definitions.Repeated(2, 1), x)[0], np.repeat(x, 2, 1))
