"""Constructors of a factory run as on the cluster: layers choose Ascend's operators, constants of `mint` have their values."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import mint, nn, ops

from ms_symtensor.bridge.apply.constructing import as_on_ascend
from ms_symtensor.bridge.apply.load_network import load_factory
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.errors import InputError

FILE = """
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

TABLE = mint.arange(8)  # a constant of the module


class Recurrent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(16, 16, batch_first=False)

    def construct(self, x, h):
        return self.gru(x, h)[0].mean()


class Positions(nn.Cell):
    def __init__(self):
        super().__init__()
        rates = 1.0 / mint.pow(10000.0, mint.arange(0, 8, 2, dtype=ms.float32) / 8)
        angles = mint.outer(mint.arange(16, dtype=ms.float32), rates)
        self.table = mint.stack([mint.sin(angles), mint.cos(angles)], 1)
        self.weight = Parameter(mint.full((2, 4), 0.5), name="weight")
        self.decay = Parameter(mint.log(mint.arange(1, 5)), name="decay")

    def construct(self, x):
        return (x * self.table * self.weight * self.decay).mean()


def recurrent():
    return Recurrent(), (Tensor(np.ones((4, 8, 16), np.float32)), Tensor(np.ones((1, 8, 16), np.float32)))


def positions():
    return Positions(), (Tensor(np.ones((16, 2, 4), np.float32)),)


def uninitialized():
    raise RuntimeError("The Tensor(shape=[1], value=\\n<uninitialized>) is uninitialized.\\nMore")


class Table(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(10**9, 1024)

    def construct(self, ids):
        return self.rows(ids).mean()


class Scaled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 8, weight_init="ones")
        self.largest = float(self.dense.weight.max())

    def construct(self, x):
        return (self.dense(x) * self.largest).mean()


def scaled():
    return Scaled(), (Tensor(np.ones((4, 8), np.float32)),)


def four_terabytes():
    return Table(), (Tensor(np.ones((4, 8), np.int32)),)


def without():
    mint.linalg.qr(Tensor(np.eye(3, dtype=np.float32)))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("user") / "constructed.py"
    file.write_text(FILE)
    return str(file)


def test_a_layer_has_the_operator_that_ascend_runs(place: str) -> None:
    cell, inputs = load_factory(f"{place}:recurrent")
    assert "DynamicGRUV2" in {op.type for op in capture(cell, *inputs).ops}
    assert ms.get_context("device_target") == "CPU"


def test_constants_of_mint_have_their_values(place: str) -> None:
    cell, (x,) = load_factory(f"{place}:positions")
    angles = np.outer(np.arange(16), 1 / 10000.0 ** (np.arange(0, 8, 2) / 8))
    expected = (np.stack([np.sin(angles), np.cos(angles)], 1) * 0.5 * np.log(np.arange(1, 5))).mean()
    assert abs(float(cell(x).asnumpy()) - expected) < 1e-6


def test_weights_larger_than_this_machine_are_planned(place: str) -> None:
    cell, inputs = load_factory(f"{place}:four_terabytes")
    parameters = {parameter.name: parameter.type.size_B for parameter in capture(cell, *inputs).parameters}
    assert parameters == {"rows.embedding_table": 4 * 1024 * 10**9}


@pytest.mark.skipif(ms.__version__ == "2.7.0", reason="MindSpore 2.7.0 computes with weights that have no values yet")
def test_a_constructor_that_computes_with_a_weight_has_its_values(place: str) -> None:
    assert load_factory(f"{place}:scaled")[0].largest == 1


def test_what_cannot_be_made_here_is_told_with_the_way_round(place: str) -> None:
    with pytest.raises(
        InputError, match=r"LinalgQr unregistered.*which lacks that kernel: make the constant with numpy"
    ):
        load_factory(f"{place}:without")


def test_a_tensor_on_several_lines_does_not_end_what_went_wrong(place: str) -> None:
    with pytest.raises(InputError, match=r"value= <uninitialized>\) is uninitialized\.\) at constructed\.py:\d+$"):
        load_factory(f"{place}:uninitialized")


X = ms.Tensor(np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -6.0]], np.float32))
I = ms.Tensor(np.array([1, 0], np.int32))  # noqa: E741
ALIKE = {
    "arange": (lambda: mint.arange(2, 9, 3), lambda: ops.arange(2, 9, 3)),
    "linspace": (lambda: mint.linspace(0, 1, 5), lambda: ops.linspace(0.0, 1.0, 5)),
    "full": (lambda: mint.full((2, 3), 2), lambda: ops.full((2, 3), 2)),
    "stack": (lambda: mint.stack([X, X], 1), lambda: ops.stack([X, X], 1)),
    "tril": (lambda: mint.tril(X, -1), lambda: ops.tril(X, -1)),
    "cumsum": (lambda: mint.cumsum(X, 1), lambda: ops.cumsum(X, 1)),
    "repeat_interleave": (lambda: mint.repeat_interleave(X, 2, 0), lambda: ops.repeat_interleave(X, 2, 0)),
    "zeros_like": (lambda: mint.zeros_like(X), lambda: ops.zeros_like(X)),
    "full_like": (lambda: mint.full_like(X, 2.0), lambda: ops.full_like(X, 2.0)),
    "index_select": (lambda: mint.index_select(X, 0, I), lambda: ops.index_select(X, 0, I)),
    "one_hot": (lambda: mint.nn.functional.one_hot(I.astype(ms.int64), 3), lambda: nn.OneHot(depth=3)(I).astype(ms.int64)),
    "roll": (lambda: mint.roll(X, 1, 1), lambda: ops.concat([X[:, 2:], X[:, :2]], 1)),
    "norm": (lambda: mint.norm(X, dim=1), lambda: ops.norm(X, dim=1)),
    "var": (lambda: mint.var(X, 1), lambda: ops.var(X, 1, 1)),
    "pad": (lambda: mint.nn.functional.pad(X, (1, 2)), lambda: ops.pad(X, (1, 2))),
    "topk": (lambda: mint.topk(X, 2)[0], lambda: ops.topk(X, 2)[0]),
    "repeat": (lambda: X.repeat(2, 1), lambda: ops.tile(X, (2, 1))),
    "clone": (lambda: X.clone(), lambda: X),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_each_function_gives_what_that_of_ops_gives(name: str) -> None:
    ours, theirs = ALIKE[name]
    expected = theirs()
    with as_on_ascend():
        found = ours()
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-6)


def test_afterwards_all_is_as_it_was() -> None:
    with pytest.raises(RuntimeError, match="Arange unregistered|Not found op .*Arange"):
        mint.arange(4)
        ms.runtime.synchronize()


def test_random_constants_are_the_same_at_every_call() -> None:
    found = []
    for _ in range(2):
        with as_on_ascend():
            found.append(mint.randn((3, 4)).asnumpy())
    assert (found[0] == found[1]).all()
