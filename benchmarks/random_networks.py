"""Networks as people write them, at random: planned, and judged by MindSpore's compiler.

    python -m benchmarks.random_networks [--number 30] [--seed 0] [--device-num 16] [--keep DIRECTORY]

A network has equal blocks of PIECES, functions of `ops` and `mint` beside cells and primitives, between an embedding and a
loss. What people do to the whole is drawn, too: `@lazy_inline` on blocks or on the network inside the cell with the loss,
weights that do not train, half precision, a batch that the devices do not divide. Network N of a seed is always the same. Each
is planned with pins, or without where these are refused, and verified; every command is a process of its own. `--keep`: files
and plans stay there.

What is refused without pins is printed with its reason; so is what MindSpore rejects or compiles otherwise, which docs/limits may
explain. Exit code 1 if a plan is not verified.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from benchmarks.third_party import run

PIECES = (
    ("self.norm{n} = nn.LayerNorm(({width},))", "y = self.norm{n}(x)"),
    ("self.gamma{n} = weight({width})", "y = ops.rms_norm(x, self.gamma{n})[0]"),
    (
        "self.gamma{n} = weight({width})",
        "y = x * ops.rsqrt(ops.mean(ops.square(x), -1, keep_dims=True) + 1e-5) * self.gamma{n}",
    ),
    ("", "y = (x - x.mean(-1, keep_dims=True)) / ops.sqrt(x.var(-1, keepdims=True) + 1e-5)"),
    (
        "self.up{n}, self.down{n} = nn.Dense({width}, {wide}), nn.Dense({wide}, {width})",
        "y = self.down{n}(ops.gelu(self.up{n}(x)))",
    ),
    (
        "self.up{n}, self.down{n} = weight({wide}, {width}), weight({width}, {half_wide})\n"
        "self.product{n} = ops.MatMul(transpose_b=True)",
        "one, other = ops.split(self.product{n}(x.reshape((-1, {width})), self.up{n}), {half_wide}, axis=-1)\n"
        "y = self.product{n}(ops.silu(one) * other, self.down{n}).reshape((-1, {tokens}, {width}))",
    ),
    ("self.weight{n} = weight({width}, {width})", "y = ops.matmul(x, self.weight{n})"),
    (
        "self.product{n}, self.weight{n} = ops.BatchMatMul(), weight({width}, {width})",
        "y = self.product{n}(x, self.weight{n})",
    ),
    (
        "self.query{n}, self.key{n}, self.value{n} = (nn.Dense({width}, {width}) for _ in range(3))\n"
        "self.scores{n}, self.mixed{n} = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()",
        "q, k, v = self.query{n}(x), self.key{n}(x), self.value{n}(x)\n"
        "q = q.reshape((-1, {tokens}, {heads}, {head})).swapaxes(1, 2)\n"
        "k = ops.transpose(ops.reshape(k, (-1, {tokens}, {heads}, {head})), (0, 2, 1, 3))\n"
        "v = v.reshape((-1, {tokens}, {heads}, {head})).swapaxes(1, 2)\n"
        "scores = ops.masked_fill(self.scores{n}(q, k) * 0.3, self.mask, -1e4)\n"
        "y = self.mixed{n}(ops.softmax(scores, -1), v).swapaxes(1, 2).reshape((-1, {tokens}, {width}))",
    ),
    (
        "self.weight{n} = weight({heads}, {head}, {head})",
        "by_head = ops.transpose(ops.reshape(x, (-1, {heads}, {head})), (1, 0, 2))\n"
        "y = ops.reshape(ops.transpose(ops.bmm(by_head, self.weight{n}), (1, 0, 2)), (-1, {tokens}, {width}))",
    ),
    ("", "y = ops.concat((x[:, 1:], x[:, :1]), 1)"),
    ("", "y = ops.cat(ops.chunk(x, 2, -1)[::-1], -1)"),
    ("", "y = ops.flip(x, (1,))"),
    ("", "y = ops.roll(x, 1, 2)"),
    ("", "y = ops.cumsum(x, 1)"),
    ("", "y = ops.where(x > 0, x, 0.1 * x)"),
    ("", "y = ops.gather(x, mint.arange({tokens}), 1)"),
    ("", "y = ops.stack((x, ops.sin(x)), -1).sum(-1)"),
    ("", "y = x * ops.softmax(x.mean(1, keep_dims=True), 2)"),
    ("", "y = x / (ops.norm(x, dim=-1, keepdim=True) + 1.0)"),
    ("", "y = ops.clamp(x, -1.0, 1.0)"),
)
"""What a constructor has for a piece, and what `construct` does: `y` of `x` [samples, tokens, width]."""
EMBEDDINGS = (
    ("self.table = nn.Embedding(64, {width})", "self.table(t)"),
    ("self.table = weight(64, {width})", "ops.gather(self.table, t, 0)"),
    (
        "self.table = weight(64, {width})",
        "ops.matmul(ops.one_hot(t, 64, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)), self.table)",
    ),
)
FROZEN = ("", "", "", "self.head", "self.blocks[0]", "self.blocks[-1]")
"""What does not train."""
PINS = (
    (), (), ("data_parallel=2",), ("model_parallel=2",), ("model_parallel=4",), ("micro_batch_num=2",), ("pipeline_stages=2",),
    ("pipeline_stages=2", "micro_batch_num=2"), ("pipeline_stages=2", "pp_interleave_num=2"),
    ("pipeline_stages=1", "micro_batch_num=2"), ("pipeline_stages=2", "data_parallel=2"), ("optimizer_level=level1",),
    ("recompute=1",),
)  # fmt: skip
TEXT = """\
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, lazy_inline, mint, nn, ops

rng = np.random.default_rng(0)


def weight(*shape):
    return Parameter(Tensor(rng.standard_normal(shape).astype(np.float32) * 0.1))


class Block(nn.Cell):
{lazy_block}
    def __init__(self):
        super().__init__()
        self.mask = Tensor(np.triu(np.ones(({tokens}, {tokens}), bool), 1))
        {made}

    def construct(self, x):
        {done}
        return x


class Network(nn.Cell):
{lazy_network}
    def __init__(self):
        super().__init__()
        {table}
        self.blocks = nn.CellList([Block(){half} for _ in range({blocks})])
        self.head = nn.Dense({width}, 64)
        {frozen}

    def construct(self, t):
        x = {embedded}
        for block in self.blocks:
            x = block(x)
        return self.head(ops.cast(x, ms.float32))


class WithLoss(nn.Cell):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def construct(self, t, y):
        return ops.cross_entropy(self.network(t).reshape((-1, 64)), y.reshape((-1,)))


def net():
    return WithLoss(Network()), tuple(Tensor(rng.integers(0, 64, ({samples}, {tokens})).astype(np.int32)) for _ in range(2))
"""


def source(draw: random.Random) -> str:
    """The text of a file with the factory `net`."""
    heads, head = draw.choice((2, 4)), draw.choice((8, 16))
    sizes = {"tokens": draw.choice((16, 32)), "heads": heads, "head": head, "width": heads * head}
    sizes |= {"wide": 4 * heads * head, "half_wide": 2 * heads * head}
    made, done = list[str](), list[str]()
    for number, (before, inside) in enumerate(draw.choices(PIECES, k=draw.randint(2, 6))):
        made += before.format(n=number, **sizes).splitlines()
        done += inside.format(n=number, **sizes).splitlines()
        done.append("x = x + y" if draw.random() < 0.8 else "x = ops.add(y, x * 0.5)")
    table, embedded = draw.choice(EMBEDDINGS)
    frozen, lazy = draw.choice(FROZEN), draw.choice(("", "", "block", "network", "block network"))
    indented = "\n        ".join
    return TEXT.format(
        **sizes,
        samples=draw.choice((8, 16, 24)),
        blocks=draw.choice((2, 4)),
        made=indented(made),
        done=indented(done),
        table=table.format(**sizes),
        embedded=embedded,
        half=draw.choice(("", "", "", ".to_float(ms.bfloat16)")),
        frozen=f"for p in {frozen}.get_parameters(): p.requires_grad = False" if frozen else "",
        lazy_block="    @lazy_inline" if "block" in lazy else "",
        lazy_network="    @lazy_inline" if "network" in lazy else "",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device-num", type=int, default=16)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    python, planned, verified = Path(sys.executable), 0, 0
    with tempfile.TemporaryDirectory(prefix="random_networks_") as made:
        folder = arguments.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(arguments.number):
            draw = random.Random(f"{arguments.seed} {number}")
            file, plan = folder / f"network_{number}.py", str(folder / f"plan_{number}")
            file.write_text(source(draw), encoding="utf-8")
            asked = ("plan", f"{file}:net", "--device-num", str(arguments.device_num), "--out", plan)
            pins = draw.choice(PINS)
            why = run(python, *asked, *(word for pin in pins for word in ("--fix", pin)))
            if why and pins:
                pins, why = (), run(python, *asked)
            if why:
                print(f"{number}: refused: {why}", flush=True)
                continue
            planned += 1
            why = run(python, "verify", plan)
            verified += not why
            print(f"{number}: {', '.join(pins) or 'no pins'}: {why or 'verified'}", flush=True)
    print(f"{arguments.number} networks, {planned} plans, {verified} verified")
    return 0 if verified == planned else 1


if __name__ == "__main__":
    sys.exit(main())
