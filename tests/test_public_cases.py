"""Networks and requests of public reports, by the command."""

import re
from pathlib import Path

import pytest

from ms_symtensor.cli import main

pytestmark = pytest.mark.matrix

SOURCE = '''
import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, mint, nn, ops


class Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(64, np.float32)))
        self.up, self.down = mint.nn.Linear(64, width), mint.nn.Linear(width, 64)

    def construct(self, x):
        normed = x * mint.rsqrt(mint.mean(x * x, -1, True) + 1e-6) * self.weight
        return x + self.down(mint.nn.functional.silu(self.up(normed)))


class Language(nn.Cell):
    def __init__(self, embedding, widths):
        super().__init__()
        self.embed, self.head = embedding(512, 64), mint.nn.Linear(64, 512)
        self.layers = nn.CellList([Block(width) for width in widths])

    def construct(self, x, y):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return ops.cross_entropy(self.head(h).reshape(-1, 512), y.reshape(-1))


class Router(nn.Cell):
    """Of what mint.{kind} gives the loss has no other gradient."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.one, self.head = kind, nn.Dense(64, 64), nn.Dense(64, 10)

    def construct(self, x, y):
        h = self.one(x)
        if self.kind == "topk":
            h = mint.nn.functional.pad(mint.topk(h, 2, -1)[0], (0, 62))
        elif self.kind == "cumsum":
            h = mint.cumsum(h, -1)
        elif self.kind == "stack":
            h = mint.stack((h, h * h), 1).sum(1)
        else:
            h = mint.sort(h, dim=-1)[0]
        return ops.cross_entropy(self.head(h), y)


class Experts(nn.Cell):
    """Equal cells side by side, none of which reads another."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Dense(64, 4), nn.CellList([nn.Dense(64, 64) for _ in range(4)])

    def construct(self, x):
        h = ops.stack([expert(x) for expert in self.experts], -1)
        return ((h * ops.softmax(self.gate(x), -1).unsqueeze(-2)).sum(-1) ** 2).mean()


def ids():
    return Tensor(np.random.RandomState(0).randint(0, 512, (8, 64)).astype(np.int32))


def routed(kind):
    x = Tensor(np.random.RandomState(0).randn(64, 64).astype(np.float32))
    return Router(kind), (x, Tensor(np.zeros(64, np.int32)))


side_by_side = lambda: (Experts(), (Tensor(np.ones((8, 16, 64), np.float32)),))
one = lambda: (Language(mint.nn.Embedding, (256, 128, 256)), (ids(), ids()))
two = lambda: (Language(mint.nn.Embedding, (256, 256)), (ids(), ids()))
one_mended = lambda: (Language(nn.Embedding, (256, 128, 256)), (ids(), ids()))
two_mended = lambda: (Language(nn.Embedding, (256, 256)), (ids(), ids()))
topk, cumsum, stack, sort = (lambda kind=kind: routed(kind) for kind in ("topk", "cumsum", "stack", "sort"))
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("cases") / "nets.py"
    file.write_text(SOURCE)
    return str(file)


@pytest.mark.parametrize("name", ["one", "two"])
def test_an_embedding_of_mint_is_told_what_to_be(
    name: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", f"{place}:{name}", "--device-num", "8", "--out", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "another result or gradient" in line and "use nn.Embedding instead" in line and len(line) <= 469
    assert main(["plan", f"{place}:{name}_mended", "--device-num", "8", "--out", str(tmp_path / "mended")]) == 0


@pytest.mark.parametrize("name", ["topk", "cumsum", "stack", "sort"])
def test_what_mint_makes_is_proved(name: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"{place}:{name}", "--device-num", "2", "--out", str(tmp_path / name)]) == 0
    assert main(["prove", str(tmp_path / name)]) == 0
    assert re.search(r"4 parameters, relative error at most [0-9.]+e-0[6-9]", capsys.readouterr().out)


def test_a_plan_that_nearly_fills_the_memory_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--device-num", "128", "--cluster", "h100_80g", "--global-batch-size", "128", "--seq-length", "8192"]
    pins = ["data_parallel=8", "model_parallel=8", "pipeline_stages=2", "recompute=none"]
    fixed = [word for pin in pins for word in ("--fix", pin)]
    assert main(["plan", "llama3_70b", *asked, *fixed, "--out", str(tmp_path / "plan")]) == 0
    assert re.search(r"left +[0-9.]+ GiB +[1-9]\d* % of 77.6 GiB", capsys.readouterr().out)


def test_a_64_GB_card_is_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--device-num", "8", "--cluster", "atlas_800t_a2_910b4_64"]
    assert main(["plan", "llama3_8b", *asked, "--out", str(tmp_path / "plan")]) == 0
    assert "of 58.0 GiB" in capsys.readouterr().out.replace("58 GiB", "58.0 GiB")


def test_blocks_may_stand_side_by_side(place: str, tmp_path: Path) -> None:
    assert main(["plan", f"{place}:side_by_side", "--device-num", "2", "--out", str(tmp_path / "plan")]) == 0
