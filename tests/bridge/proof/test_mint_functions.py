"""Definitions of mint's operators against numpy, run by MindSpore on the CPU."""

import mindspore
import numpy as np
import pytest
from mindspore import Tensor

from ms_symtensor.bridge.proof import mint_functions, spatial
from ms_symtensor.bridge.proof.linear_maps import adaptive_mean, interpolation, window_mean
from ms_symtensor.bridge.proof.mint_substitutes import _FUNCTIONS

R = np.random.default_rng(0)
X, Y = (R.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(2))
P, Q = (R.uniform(0.2, 0.9, (2, 3, 4)).astype(np.float32) for _ in range(2))
A, B, V = R.standard_normal((3, 4)), R.standard_normal((4, 5)), R.standard_normal(4)
INDEX = np.array([2, 0], np.int32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def soft(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


def added(x: np.ndarray, index: np.ndarray, source: np.ndarray) -> np.ndarray:
    found = x.copy()
    np.add.at(found, (slice(None), index), source)
    return found


def normed(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


FORWARD = [
    ("AcosExt", (P,), np.arccos(P)), ("AcoshExt", (P + 1,), np.arccosh(P + 1)), ("AsinExt", (P,), np.arcsin(P)),
    ("AsinhExt", (X,), np.arcsinh(X)), ("AtanExt", (X,), np.arctan(X)), ("Atan2Ext", (X, Y), np.arctan2(X, Y)),
    ("Exp2", (X,), np.exp2(X)), ("Log2", (P,), np.log2(P)), ("Log10", (P,), np.log10(P)),
    ("LogAddExp", (X, Y), np.logaddexp(X, Y)),
    ("LogAddExp2", (X, Y), np.logaddexp2(X, Y)), ("Frac", (X,), np.modf(X)[0]),
    ("FmodTensor", (X, P), np.fmod(X, P)), ("FmodScalar", (X, 0.7), np.fmod(X, 0.7)),
    ("FloorDivScalar", (X, 0.7), np.floor_divide(X, 0.7)), ("Clone", (X,), X),
    ("EluExt", (X, 0.5), np.where(X > 0, X, 0.5 * np.expm1(X))),
    ("LeakyReLUExt", (X, 0.1), np.where(X > 0, X, 0.1 * X)),
    ("SeLUExt", (X,), 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X))),
    ("Hardtanh", (X, -0.5, 1.0), X.clip(-0.5, 1.0)), ("ClampMin", (X, 0.2), X.clip(0.2)),
    ("InplaceClampScalar", (X, None, 0.5, None), X.clip(None, 0.5)), ("InplaceExp", (X, None), np.exp(X)),
    ("InplaceSigmoid", (X,), sigmoid(X)), ("InplaceZero", (X,), 0 * X), ("InplaceFillScalar", (X, 3.0), 0 * X + 3),
    ("Threshold", (X, 0.1, 7.0), np.where(X > 0.1, X, 7)), ("LogSigmoid", (X,), np.log(sigmoid(X))),
    ("SoftplusExt", (X, 2.0, 1.0), np.where(X * 2 > 1, X, soft(2 * X) / 2)), ("MishExt", (X,), X * np.tanh(soft(X))),
    ("Swiglu", (X, -1), X[..., :2] * sigmoid(X[..., :2]) * X[..., 2:]), ("Mm", (A, B), A @ B), ("Mv", (A, V), A @ V),
    ("Dot", (V, V), V @ V), ("Outer", (V, V), np.outer(V, V)),
    ("Addmm", (A[:, :1], A, B, 2.0, 3.0), 2 * A[:, :1] + 3 * A @ B),
    ("Addmv", (A[:, 0], A, V, 2, 3), 2 * A[:, 0] + 3 * A @ V),

      ("Addbmm", (A[:2, :2], X[:, :2], Y.swapaxes(1, 2)[..., :2], 1, 2), A[:2, :2] + 2 * (X[:, :2] @ Y.swapaxes(1,
     2)[..., :2]).sum(0)),
    ("Baddbmm", (V[0], X, Y.swapaxes(1, 2), 2, 1), 2 * V[0] + X @ Y.swapaxes(1, 2)),
    ("TExt", (A,), A.T), ("TExt", (V,), V),
    ("AddcmulExt", (X, Y, P, 0.5), X + 0.5 * Y * P), ("AddcdivExt", (X, Y, P, 0.5), X + 0.5 * Y / P),
    ("Chunk", (X, 3, 2), (X[..., :2], X[..., 2:])), ("StackExt", (X, Y, 1), np.stack((X, Y), 1)),
    ("Repeat", (X, (1, 2, 1)), np.tile(X, (1, 2, 1))), ("IndexSelect", (X, 1, INDEX), X[:, INDEX]),
    ("IndexAddExt", (X, 1, INDEX, Y[:, :2], 2.0), added(X, INDEX, 2 * Y[:, :2])),
    ("ExpandAs", (X[:, :1], X), X[:, :1] + 0 * X),
    ("ScatterAddExt", (X, 1, np.full((2, 1, 3), 2, np.int32), Y[:, :1, :3]),
     np.concatenate((X[:, :2], X[:, 2:] + np.pad(Y[:, :1, :3], ((0, 0), (0, 0), (0, 1)))), 1)),
    ("CumminExt", (X, 1), (np.minimum.accumulate(X, 1),)),
    ("TrilExt", (X, 1), np.tril(X, 1)), ("TrilExt", (X, -1), np.tril(X, -1)),
    ("Var", (X, (1,), 1, False), X.var(1, ddof=1)), ("Std", (X, None, 0, True), X.std(keepdims=True)),
    ("VarMean", (X, (0, 2), 1, True), (X.var((0, 2), ddof=1, keepdims=True), X.mean((0, 2), keepdims=True))),
    ("StdMean", (X, (), 1, False), (X.std(ddof=1), X.mean())),
    ("LinalgVectorNorm", (X, 2.0, (1,), True, None), np.linalg.norm(X, 2, 1, True)),
    ("LinalgVectorNorm", (X, 1.0, None, False, None), abs(X).sum()),
    ("ArgMinExt", (X, 1, True), X.argmin(1, keepdims=True)),
    ("LinalgVectorNorm", (X, 3.0, (0, 1), False, None), (abs(X) ** 3).sum((0, 1)) ** (1 / 3)),
    ("ArgMinExt", (X, None, False), X.argmin()),
    ("MSELossExt", (X, Y, 1), ((X - Y) ** 2).mean()), ("L1LossExt", (X, Y, 2), abs(X - Y).sum()),
    ("KLDiv", (X, P, 0, False), P * (np.log(P) - X)), ("KLDiv", (X, Y, 2, True), (np.exp(Y) * (Y - X)).sum()),
    ("LayerNormExt", (X, (4,), V, V, 1e-5), (normed(X) * V + V,)),
    ("LayerNormExt", (X, (4,), None, None, 1e-5), (normed(X),)),
]  # fmt: skip

GRADIENTS = [
    ("EluGradExt", "EluExt", (X, 0.5), (X, 0.5, False)),
    ("LeakyReLUGradExt", "LeakyReLUExt", (X, 0.1), (X, 0.1, False)),
    ("HardtanhGrad", "Hardtanh", (X, -0.5, 1.0), (X, -0.5, 1.0)),
    ("ThresholdGrad", "Threshold", (X, 0.1, 0.0), (X, 0.1)),
    ("SoftplusGradExt", "SoftplusExt", (X, 2.0, 1.0), (X, 2.0, 1.0)), ("MishGradExt", "MishExt", (X,), (X,)),
    ("LogSigmoidGrad", "LogSigmoid", (X,), (X, X)), ("SwigluGrad", "Swiglu", (X, -1), (X, -1)),
    ("MSELossGradExt", "MSELossExt", (X, Y, 1), (X, Y, 1)), ("L1LossBackwardExt", "L1LossExt", (X, Y, 1), (X, Y, 1)),
    ("KLDivGrad", "KLDiv", (X, P, 1, False), (X, P, 1, False)),
    ("LayerNormGradExt", "LayerNormExt", (X, (4,), V, V, 1e-5),
     (X, (4,), X.mean(-1, keepdims=True), 1 / np.sqrt(X.var(-1, keepdims=True) + 1e-5), V, V, (1, 1, 1))),
]  # fmt: skip


def teardown_module() -> None:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)


def run(name: str, arguments: tuple) -> list[np.ndarray]:
    given = (
        Tensor(x.astype(np.float32) if x.dtype == np.float64 else x) if hasattr(x, "shape") else x for x in arguments
    )
    out = getattr(mint_functions, name)(*given)
    return [x.asnumpy() for x in (out if isinstance(out, tuple) else (out,))]


@pytest.mark.parametrize(("name", "arguments", "expected"), FORWARD, ids=[case[0] for case in FORWARD])
def test_values(name: str, arguments: tuple, expected: np.ndarray) -> None:
    for found, value in zip(
        run(name, arguments), expected if isinstance(expected, tuple) else (expected,), strict=False
    ):
        assert found.shape == np.shape(value)
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "forward", "arguments", "rest"), GRADIENTS, ids=[case[0] for case in GRADIENTS])
def test_gradients_are_slopes(name: str, forward: str, arguments: tuple, rest: tuple) -> None:
    y = run(forward, arguments)[0]
    dy, step = R.standard_normal(y.shape).astype(np.float32), R.standard_normal(X.shape).astype(np.float32)
    up, down = (run(forward, (X + sign * 1e-3 * step, *arguments[1:]))[0] for sign in (1, -1))
    slope = ((up - down).astype(np.float64) * dy).sum() / 2e-3
    assert (run(name, (dy, *rest))[0] * step).sum() == pytest.approx(slope, rel=2e-2, abs=5e-3)


def test_every_definition_is_there_and_tried() -> None:
    tried = {case[0] for case in (*FORWARD, *GRADIENTS)} | {"SeluGrad", "InplaceIndexAddExt", "InplaceScatterAdd"}
    assert set(_FUNCTIONS) == tried


def test_means_and_interpolations_of_images() -> None:
    x = R.standard_normal(6)
    np.testing.assert_allclose(adaptive_mean(6, 4) @ x, [x[:2].mean(), x[1:3].mean(), x[3:5].mean(), x[4:].mean()])
    np.testing.assert_allclose(window_mean(6, 3, 3, 2, 1, True) @ x, [x[:2].sum() / 3, x[1:4].mean(), x[3:6].mean()])
    np.testing.assert_allclose(window_mean(6, 3, 3, 2, 1, False) @ x, [x[:2].mean(), x[1:4].mean(), x[3:6].mean()])
    np.testing.assert_allclose(interpolation(3, 5, True, None) @ [0, 2, 4], [0, 1, 2, 3, 4])
    np.testing.assert_allclose(interpolation(2, 4, False, None) @ [0, 4], [0, 1, 3, 4])


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_and_their_transposes_are_adjoint(groups: int) -> None:
    x, w = (R.standard_normal(s).astype(np.float32) for s in ((1, 4, 6, 5), (6, 4 // groups, 3, 2)))
    options = ((2, 1), (1, 0), (1, 2), groups)
    y = spatial.Convolution(*options, False, (0, 0))(Tensor(x), Tensor(w)).asnumpy()
    padded, expected = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0))), np.zeros((1, 6, 3, 3))
    for o, i, j in np.ndindex(6, 3, 3):
        first = o // (6 // groups) * (4 // groups)
        expected[0, o, i, j] = (padded[0, first : first + 4 // groups, 2 * i : 2 * i + 3, j : j + 3 : 2] * w[o]).sum()
    np.testing.assert_allclose(y, expected, atol=1e-4)
    z = R.standard_normal(y.shape).astype(np.float32)
    back = spatial.Convolution(*options, True, (1, 0))(Tensor(z), Tensor(w)).asnumpy()
    assert (back * x).sum() == pytest.approx((y * z).sum(), rel=1e-3, abs=1e-3)
