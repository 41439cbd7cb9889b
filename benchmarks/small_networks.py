"""Random small networks: operators joined as transformers join them, few enough to try every combination of strategies."""

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from model_zoo.emitter import Argument, Emitter, Value
from ms_symtensor.tensor.graph import Constant, Graph, TensorType

ROWS = (1024, 1536, 4096, 6144)
WIDTHS = (512, 1026, 2048, 3074, 4096, 8192)
ODD = (513, 1025, 2049, 4097)
LENGTHS = (512, 1024, 1536)
HALF = "bfloat16"
ORDER = ("layers", *(f"w{i}" for i in range(32)))
"""How the cells define their weights, first to last."""


@dataclass
class Network:
    """Writes one network: `matmul`, `norm`, … add an operator to the current cell and return its result."""

    emit: Emitter = field(default_factory=Emitter)
    weights: int = 0
    places: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def input(self, *shape: int, dtype: str = HALF) -> Value:
        return self.emit.input(f"x{len(shape)}_{dtype}", shape, dtype)

    def weight(self, *shape: int, dtype: str = HALF) -> Value:
        self.weights += 1
        return self.emit.parameter(f"w{self.weights - 1}", shape, dtype)

    def op(self, kind: str, name: str, arguments: tuple[Argument, ...], *outputs: TensorType) -> tuple[Value, ...]:
        """An operator with a primitive of its own."""
        place = (*self.emit.path, name)
        self.places[place] += 1
        return self.emit.op(kind, f"{name}{self.places[place]}", arguments, *outputs)

    def matmul(self, x: Value, width: int, stored: str = HALF) -> Value:
        """x [m, k] times a new weight [width, k] transposed, cast where it is stored in another element type."""
        weight = self.weight(width, x.shape[1], dtype=stored)
        return self.product(x, weight if stored == x.dtype else self.cast(weight, x.dtype))

    def product(self, x: Value, weight: Value) -> Value:
        kind = TensorType((x.shape[0], weight.shape[0]), x.dtype)
        return self.op("MatMul", "matmul", (x, weight, Constant(False), Constant(True)), kind)[0]

    def norm(self, x: Value) -> Value:
        statistic = TensorType((x.shape[0], 1), "float32")
        gamma = self.weight(x.shape[1], dtype=x.dtype)
        return self.op("RmsNorm", "norm", (x, gamma, Constant(1e-6)), x.type, statistic)[0]

    def unary(self, kind: str, x: Value) -> Value:
        return self.op(kind, kind.lower(), (x,), x.type)[0]

    def binary(self, kind: str, x: Value, y: Value) -> Value:
        return self.op(kind, kind.lower(), (x, y), x.type)[0]

    def cast(self, x: Value, dtype: str) -> Value:
        return self.op("Cast", "cast", (x, Constant(0)), TensorType(x.shape, dtype))[0]

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.op("Reshape", "reshape", (x, Constant(shape)), TensorType(shape, x.dtype))[0]

    def embedding(self, ids: Value, vocabulary: int, width: int) -> Value:
        kind = TensorType((*ids.shape, width), HALF)
        return self.op("Gather", "gather", (self.weight(vocabulary, width), ids, Constant(0)), kind)[0]

    def total(self, x: Value) -> Value:
        axes = tuple(range(len(x.shape)))
        kind = TensorType((), x.dtype)
        return self.op("ReduceSum", "sum", (x, Constant(axes), Constant(False), Constant(False)), kind)[0]

    def graph(self, loss: Value) -> Graph:
        return self.emit.graph("Small", loss, ORDER)


def random_network(draw: random.Random, operators: int) -> Graph:
    """A network of about so many operators with strategies: products, norms, residuals, tensors with several readers."""
    net = Network()
    rows = draw.choice(ROWS)
    if draw.random() < 0.25:
        values = [net.embedding(net.input(rows, dtype="int32"), draw.choice(WIDTHS), draw.choice(WIDTHS))]
    else:
        values = [net.input(rows, draw.choice(WIDTHS))]
    values.append(net.matmul(values[-1], draw.choice(WIDTHS), draw.choice((HALF, "float32"))))
    while net.weights < 1 or len(values) < operators:
        values.append(_next(net, draw, values))
    last = values[-1]
    return net.graph(net.total(last) if draw.random() < 0.7 else last)


def repeated_network(draw: random.Random, blocks: int, products: int = 2) -> Graph:
    """A residual network of equal blocks with so many products (one or two) each."""
    net = Network()
    rows, width, inner = draw.choice(ROWS), draw.choice(WIDTHS), draw.choice(WIDTHS)
    kind, norm, stored = draw.choice(("SiLU", "Sigmoid")), draw.random() < 0.5, draw.choice((HALF, "float32"))
    x = net.matmul(net.input(rows, width), width)
    for number in range(blocks):
        with net.emit.cell("layers", "CellList"), net.emit.cell(str(number), "Block"):
            y = net.norm(x) if norm else x
            y = net.unary(kind, net.matmul(y, inner, stored) if products == 2 else y)
            x = net.binary("Add", x, net.matmul(y, width, stored))
    return net.graph(x)


def layered_network(
    draw: random.Random, blocks: int, products: int, others: Collection[int] = ()
) -> Callable[[int, int | None], Graph]:
    """A network of equal blocks at any batch, with so many of its blocks or all: an embedding or a product, residual blocks with
    one or two products each, and a sum or another product as the head. `others`: numbers of blocks that are of another kind.
    """
    seq, (width, inner, classes) = draw.choice(LENGTHS), (draw.choice((*WIDTHS, *ODD)) for _ in range(3))
    kind, norm, stored = draw.choice(("SiLU", "Sigmoid")), draw.random() < 0.5, draw.choice((HALF, "float32"))
    looked_up, headed = draw.random() < 0.5, draw.random() < 0.4

    def graph_at(batch: int, layers: int | None) -> Graph:
        net = Network()
        x = net.input(batch, seq, width) if not looked_up else net.input(batch, seq, dtype="int32")
        if looked_up:
            x = net.embedding(x, classes, width)
        x = net.reshape(x, batch * seq, width)
        if not looked_up:
            x = net.matmul(x, width)
        for number in range(layers or blocks):
            with net.emit.cell("layers", "CellList"), net.emit.cell(str(number), "Block"):
                if number in others:
                    x = net.matmul(net.unary("Tanh", x), width, stored)
                    continue
                y = net.norm(x) if norm else x
                y = net.unary(kind, net.matmul(y, inner, stored) if products == 2 else y)
                x = net.binary("Add", x, net.matmul(y, width, stored))
        return net.graph(net.total(net.matmul(x, classes, stored) if headed else x))

    return graph_at


def _next(net: Network, draw: random.Random, values: list[Value]) -> Value:
    x = values[-1] if draw.random() < 0.7 else draw.choice(values[1:])
    like = [v for v in values[1:] if v.type == x.type and v != x]
    match draw.choice(("matmul", "matmul", "norm", "unary", "add", "add", "mul", "cast", "reshape")):
        case "matmul" if len(x.shape) == 2:
            width = draw.choice([*(v.shape[-1] for v in values), *WIDTHS])
            return net.matmul(x, width, draw.choice((x.dtype, "float32")))
        case "norm" if len(x.shape) == 2:
            return net.norm(x)
        case "add" if like:
            return net.binary("Add", x, draw.choice(like))
        case "mul" if like:
            return net.binary("Mul", x, draw.choice(like))
        case "cast":
            return net.unary("SiLU", net.cast(x, "float32" if x.dtype == HALF else HALF))
        case "reshape" if len(x.shape) == 2:
            parts = net.reshape(x, x.shape[0] // 512, 512, x.shape[1])
            return net.reshape(net.unary("Tanh", parts), *x.shape)
        case _:
            return net.unary(draw.choice(("SiLU", "Sigmoid")), x)
