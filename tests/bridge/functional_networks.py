"""Networks as people write them, with functions of `ops` and `mint` on the way, as factories: `file.py:name`."""

import functools
from dataclasses import replace

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common.initializer import Zero, initializer

from model_zoo import dimensions_of
from model_zoo.network import build


def tensor(*shape, dtype=ms.float32):
    return Tensor(shape=shape, dtype=dtype, init=Zero())


class Attention(nn.Cell):
    """Softmax attention of functions."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)

    def construct(self, x):
        b, n, d = x.shape
        q, k, v = ops.split(self.qkv(x).reshape(b, n, self.heads, 3 * self.size).swapaxes(1, 2), self.size, -1)
        p = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) / self.size**0.5, -1)
        return self.out(ops.matmul(p, v).swapaxes(1, 2).reshape(b, n, d))


class Block(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)

    def construct(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(ops.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Cell):
    """Patches by a convolution, a token for the class in front of them."""

    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8, pad_mode="valid", has_bias=True)
        self.token = Parameter(initializer("normal", (1, 1, width)), name="token")
        self.places = Parameter(initializer("normal", (1, 17, width)), name="places")
        self.blocks = nn.CellList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm((width,)), nn.Dense(width, 16)
        self.loss = nn.CrossEntropyLoss()

    def construct(self, x, label):
        x = self.patches(x)
        b, d, rows, columns = x.shape
        x = x.reshape(b, d, rows * columns).transpose(0, 2, 1)
        x = ops.concat((ops.broadcast_to(self.front(), (b, 1, d)), x), 1) + self.places
        for block in self.blocks:
            x = block(x)
        return self.loss(self.head(self.norm(x)[:, 0]), label)

    def front(self):
        return self.token


class ReshapedToken(VisionTransformer):
    """Its first weight is read by a Reshape, which the blocks use too where it is a function."""

    def __init__(self, reshape, width=64):
        super().__init__(width)
        self.token = Parameter(initializer("normal", (width,)), name="token")
        self.reshape = reshape

    def front(self):
        return self.reshape(self.token, (1, 1, -1))


def vision():
    return VisionTransformer(), (tensor(16, 3, 32, 32), tensor(16, dtype=ms.int32))


def reshaped_token():
    return ReshapedToken(ops.reshape), vision()[1]


def token_by_primitive():
    return ReshapedToken(ops.Reshape()), vision()[1]


class Unet(nn.Cell):
    """Down and up again: convolutions, norms over groups, pooling, and functions without a distributed form."""

    def __init__(self, channels=16):
        super().__init__()
        c = channels
        self.first, self.second = (nn.Conv2d(i, o, 3, pad_mode="same", has_bias=True) for i, o in ((4, c), (c, 2 * c)))
        self.norm1, self.norm2 = nn.GroupNorm(4, c), nn.GroupNorm(4, 2 * c)
        self.pool, self.act, self.time = nn.AvgPool2d(2, 2), nn.PReLU(2 * c), nn.Dense(8, 2 * c)
        self.up = nn.Conv2dTranspose(2 * c, c, 2, stride=2, pad_mode="valid", has_bias=True)
        self.last = nn.Conv2d(2 * c, 4, 1, has_bias=True)

    def construct(self, x, time, noise):
        wide = self.first(x)
        y = self.second(ops.silu(self.norm1(wide))) + self.time(time).expand_dims(2).expand_dims(3)
        y = self.up(self.norm2(self.act(self.pool(y))))
        return ops.mse_loss(self.last(ops.hardswish(ops.concat((y, wide), 1))), noise)


def unet():
    return Unet(), (tensor(8, 4, 8, 8), tensor(8, 8), tensor(8, 4, 8, 8))


class MintBlock(nn.Cell):
    """Grouped-query attention with a cap on its scores, in `mint`."""

    def __init__(self, width, heads, groups, length):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = mint.nn.Linear(width, width, bias=False)
        self.key, self.value = (mint.nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.out = mint.nn.Linear(width, width, bias=False)
        self.up, self.down = mint.nn.Linear(width, 2 * width), mint.nn.Linear(2 * width, width)
        self.hidden = Tensor(np.triu(np.ones((length, length)), 1).astype(bool))

    def construct(self, x):
        b, n, d = x.shape
        q = self.query(x).reshape(b, n, self.heads, self.size).permute(0, 2, 1, 3)
        k, v = (f(x).reshape(b, n, self.groups, self.size).permute(0, 2, 1, 3) for f in (self.key, self.value))
        k, v = (mint.repeat_interleave(y, self.heads // self.groups, 1) for y in (k, v))
        s = 50.0 * mint.tanh(mint.matmul(q, k.permute(0, 1, 3, 2)) / 50.0)
        p = mint.nn.functional.softmax(s.masked_fill(self.hidden, -1e30), -1)
        x = x + self.out(mint.matmul(p, v).permute(0, 2, 1, 3).reshape(b, n, d))
        return x + self.down(mint.nn.functional.gelu(self.up(x), approximate="tanh"))


class MintDecoder(nn.Cell):
    """A tied embedding, blocks, and outputs of several of them stacked in a list."""

    def __init__(self, words=64, width=64, length=16, layers=2):
        super().__init__()
        self.embedding = mint.nn.Embedding(words, width)
        self.blocks = nn.CellList([MintBlock(width, 4, 2, length) for _ in range(layers)])

    def construct(self, x, target):
        x = self.embedding(x) * 8.0
        seen = []
        for block in self.blocks:
            x = block(x)
            seen.append(x)
        x = mint.matmul(mint.mean(ops.stack(seen, 2), 2), self.embedding.weight.T)
        return ops.cross_entropy(x.reshape(-1, x.shape[-1]), target.reshape(-1))


def decoder():
    return MintDecoder(), (tensor(8, 16, dtype=ms.int32), tensor(8, 16, dtype=ms.int32))


class SharedBlock(nn.Cell):
    """Primitives that serve several operators each, as in networks of old."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm = nn.LayerNorm((width,))
        self.query, self.key, self.value, self.out = (nn.Dense(width, width, has_bias=False) for _ in range(4))
        self.transpose, self.reshape, self.matmul = ops.Transpose(), ops.Reshape(), ops.BatchMatMul()
        self.softmax, self.add = ops.Softmax(), ops.Add()

    def construct(self, x):
        b, n, d = x.shape
        y = self.norm(x)
        q, k, v = (
            self.transpose(self.reshape(f(y), (b, n, self.heads, self.size)), (0, 2, 1, 3))
            for f in (self.query, self.key, self.value)
        )
        p = self.softmax(self.matmul(q, self.transpose(k, (0, 1, 3, 2))))
        return self.add(x, self.out(self.reshape(self.transpose(self.matmul(p, v), (0, 2, 1, 3)), (b, n, d))))


class Shared(nn.Cell):
    def __init__(self, width=1024, layers=2):
        super().__init__()
        self.blocks = nn.SequentialCell([SharedBlock(width, 8) for _ in range(layers)])
        self.sum = ops.ReduceSum()

    def construct(self, x):
        return self.sum(self.blocks(x), (0, 1, 2))


def shared():
    """Two samples: on eight devices heads are cut."""
    return Shared(), (tensor(2, 256, 1024),)


class Cross(nn.Cell):
    """A block of a decoder, which reads what an encoder makes; scores are masked by what all blocks compute alike."""

    def __init__(self, width):
        super().__init__()
        self.own, self.block = nn.LayerNorm((width,)), Block(width, 4)
        self.query, self.key, self.value, self.out = (nn.Dense(width, width) for _ in range(4))

    def construct(self, x, memory, mask):
        q, k, v = self.query(self.own(x)), self.key(memory), self.value(memory)
        p = ops.softmax(mint.matmul(q, k.swapaxes(1, 2)) + mask * -10000.0, -1)
        return self.block(x + self.out(mint.matmul(p, v)))


class EncoderDecoder(nn.Cell):
    """MindSpore lists the decoder's first operators before the encoder, and all functional ones under the encoder."""

    def __init__(self, words=64, width=64, length=16, layers=2):
        super().__init__()
        self.words, self.targets = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.CellList([Block(width, 4) for _ in range(layers)])
        self.decoder = nn.CellList([Cross(width) for _ in range(layers)])
        self.mask = Tensor(np.triu(np.ones((length, length)), 1).astype(np.float32))
        self.head = nn.Dense(width, words)

    def construct(self, x, target):
        memory, y = self.words(x), self.targets(target)
        for block in self.encoder:
            memory = block(memory)
        for block in self.decoder:
            y = block(y, memory, self.mask)
        y = self.head(y)
        return ops.cross_entropy(y.reshape(-1, y.shape[-1]), target.reshape(-1))


def translator():
    return EncoderDecoder(), (tensor(8, 16, dtype=ms.int32), tensor(8, 16, dtype=ms.int32))


class Contrast(nn.Cell):
    """Every sample beside every other one: its loss is not that of micro-batches."""

    def __init__(self, width=64):
        super().__init__()
        self.blocks = nn.CellList([Block(width, 4) for _ in range(2)])
        self.product, self.sum = ops.MatMul(transpose_b=True), ops.ReduceSum()

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        x = x.mean(1)
        return self.sum(self.product(x, x), (0, 1))


def contrast():
    return Contrast(), (tensor(8, 16, 64),)


class Stranger(nn.Cell):
    """Draws random numbers of mint, whose state is in no cell."""

    def construct(self, x):
        return (mint.nn.functional.dropout(x, 0.1, True) * x).sum()


def stranger():
    return Stranger(), (tensor(8, 16),)


class Spoilt(nn.Cell):
    """Its samples end up behind, through an operator of which MindSpore always cuts the first dim."""

    def construct(self, x):
        return mint.transpose(x, 0, 1).sum()


def miscompiled():
    return Spoilt(), (tensor(8, 16),)


class Wrapped(nn.Cell):
    """A network in a cell that gives its weights no prefix, so that they are not called as their cells are."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs):
        return self.network(*inputs)


def wrapped():
    config = dimensions_of("llama2_7b", num_layers=2, seq_length=128, batch_size=8)
    sizes = {"num_heads": 8, "n_kv_heads": 8, "head_dim": 32, "hidden_size": 256, "intermediate_size": 512}
    network, inputs = build(replace(config, **sizes))
    return Wrapped(network), inputs


class Routed(nn.Cell):
    """Beside its result a number that balances choices: a product of two means over the tokens, or a mean of products."""

    def __init__(self, width, meets):
        super().__init__()
        self.block, self.meets = Block(width, 4), meets
        self.router, self.back = nn.Dense(width, 4, has_bias=False), nn.Dense(4, width)

    def construct(self, x):
        x = self.block(x)
        p = ops.softmax(self.router(x), -1)
        chosen = ops.one_hot(ops.argmax(p, -1), 4, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
        share = (p.mean((0, 1)) * chosen.mean((0, 1))).sum() if self.meets else (p * chosen).mean()
        return x + self.back(p), share * 4


class Balanced(nn.Cell):
    def __init__(self, meets, width=64):
        super().__init__()
        self.first, self.head = nn.Dense(width, width), nn.Dense(width, 16)
        self.blocks = nn.CellList([Routed(width, meets) for _ in range(2)])

    def construct(self, x):
        x, total = self.first(x), 0.0
        for block in self.blocks:
            x, share = block(x)
            total = total + share
        return (self.head(x) ** 2).mean() + 0.01 * total


def balanced():
    return Balanced(meets=True), (tensor(8, 16, 64),)


def chosen():
    return Balanced(meets=False), (tensor(8, 16, 64),)


class Parallel(nn.Cell):
    """Two products with a bias each, added up."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.relu = nn.LayerNorm((width,)), ops.ReLU()
        self.a, self.b = nn.Dense(width, width), nn.Dense(width, width)

    def construct(self, x):
        h = self.relu(self.norm(x))
        return x + (self.a(h) + self.b(h))


class Parallels(nn.Cell):
    def __init__(self, width=256):
        super().__init__()
        self.first, self.head = nn.Dense(width, width), nn.Dense(width, 128)
        self.blocks = nn.CellList([Parallel(width) for _ in range(2)])

    def construct(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean()


def parallels():
    return Parallels(), (tensor(64, 256),)


class Gated(nn.Cell):
    """A gate that `mint` reads as a view, beside weights that are read twice: MindSpore copies them."""

    def __init__(self, width=64):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm((width,)), nn.Dense(width, 4 * width), nn.Dense(2 * width, width)

    def construct(self, x):
        for _ in range(2):
            gate, y = mint.chunk(self.up(self.norm(x)), 2, -1)
            x = x + self.down(ops.sigmoid(gate) * y)
        y = x.mean(1)
        return ((ops.matmul(y, y.T) - ops.eye(16, 16, ms.float32)) ** 2).mean()


def gated():
    return Gated(), (tensor(16, 8, 64),)


class Changed(nn.Cell):
    """Tensors changed in place, constants, and mint's functions without a distributed form, by `kind`."""

    def __init__(self, kind, width=64):
        super().__init__()
        self.kind, self.one, self.two = kind, nn.Dense(width, width), nn.Dense(width, width)
        self.relu = ops.ReLU()

    def construct(self, x):
        h = self.relu(self.one(x))
        if self.kind == "in_place":
            y = self.two(h)
            y += h
            y *= 2.0
            h = mint.cat(mint.chunk(y * mint.full_like(y, 0.5), 2, -1), -1) + mint.full(y.shape, 0.5)
        elif self.kind == "added":
            h = mint.addmm(self.two.bias, h, self.two.weight)
        elif self.kind == "renamed":
            y = h
            h += x
            h = h * y
        elif self.kind == "whole_view":
            h = mint.narrow(h.reshape(4, 16, 64), 1, 0, 8)
        elif self.kind == "constants":
            made = mint.zeros(h.shape) + mint.ones(h.shape) + ops.full(h.shape, 0.5, dtype=ms.float32)
            h = h + made + mint.arange(h.shape[-1]).astype(ms.float32)
            h = ops.masked_fill(h, ops.triu(ops.ones(h.shape, ms.bool_), 1), -1.0)
            h = mint.cat((h, ops.zeros((h.shape[0], 64), h.dtype)), -1)[:, :64]
        elif self.kind == "filled":
            h = h.masked_fill(mint.triu(mint.ones(h.shape, dtype=ms.bool_), 1), -1.0)
        elif self.kind == "chosen_number":
            h = mint.where(h > 0, h, -1.0)
        elif self.kind == "new":
            h = mint.cat((h, h.new_zeros((h.shape[0], 64))), -1)[:, :64]
        elif self.kind == "scattered":
            value, index = mint.topk(h, 4, -1)
            h = mint.scatter(mint.zeros_like(h), -1, index, value)
        elif self.kind == "ordered":
            value, index = mint.topk(mint.cumsum(h, -1), 2, -1)
            h = h * mint.sum(mint.nn.functional.one_hot(index, 64).astype(h.dtype) * value.unsqueeze(-1), 1)
        return (h**2).mean()


def changed(kind):
    return Changed(kind), (tensor(64, 64),)


for kind in (
    "in_place", "added", "renamed", "whole_view", "constants", "filled", "chosen_number", "new", "scattered", "ordered"
):  # fmt: skip
    globals()[kind] = functools.partial(changed, kind)
