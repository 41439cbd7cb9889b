"""Small language models whose losses count tokens, or do not, as factories: `file.py:name`. MindSpore reads their source."""

import functools

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common.initializer import Zero
from mindspore.nn.utils import no_init_parameters

VOCABULARY, WIDTH, BATCH, SEQUENCE = 16, 8, 8, 8


def tensor(*shape, dtype=mindspore.float32):
    return Tensor(shape=shape, dtype=dtype, init=Zero())


class Block(nn.Cell):
    """x + relu(x @ weight^T)."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(tensor(WIDTH, WIDTH), name="weight")
        self.matmul, self.relu, self.add = ops.MatMul(transpose_b=True), ops.ReLU(), ops.Add()

    def construct(self, x):
        return self.add(x, self.relu(self.matmul(x, self.weight)))


class Model(nn.Cell):
    """Logits [tokens, vocabulary], and the loss of every token from them."""

    def __init__(self, layers=4):
        super().__init__()
        self.table = Parameter(tensor(VOCABULARY, WIDTH), name="table")
        self.gather, self.reshape = ops.Gather(), ops.Reshape()
        self.blocks = nn.CellList([Block() for _ in range(layers)])
        self.head = Parameter(tensor(VOCABULARY, WIDTH), name="head")
        self.matmul = ops.MatMul(transpose_b=True)

    def logits(self, ids):
        x = self.reshape(self.gather(self.table, ids, 0), (-1, WIDTH))
        for block in self.blocks:
            x = block(x)
        return self.matmul(x, self.head)

    def of_tokens(self, logits, labels):
        return ops.cross_entropy(logits, labels.reshape((-1,)), reduction="none")


class Masked(Model):
    """A loss of every token and a mask: `how` makes one number of them."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def construct(self, ids, labels, mask):
        logits = self.logits(ids)
        loss, mask = self.of_tokens(logits, labels), mask.reshape((-1,)).astype(mindspore.float32)
        if self.how == "sum_over_sum":
            return (loss * mask).sum() / mask.sum()
        if self.how == "epsilon":
            return (loss * mask).sum() / (mask.sum() + 1e-8)
        if self.how == "at_least_one":
            return (loss * mask).sum() / ops.maximum(mask.sum(), Tensor(1.0, mindspore.float32))
        if self.how == "clamped":
            return (loss * mask).sum() / mask.sum().clamp(1.0)
        if self.how == "of_mint":
            return mint.div(mint.sum(loss * mask), mint.sum(mask))
        if self.how == "means":
            return (loss * mask).mean() / mask.mean()
        if self.how == "reciprocal":
            return (loss * mask).sum() * (1.0 / mask.sum())
        if self.how == "normalised":
            return (loss * (mask / mask.sum())).sum()
        if self.how == "total":
            return (loss * mask).sum()
        if self.how == "static":
            return (loss * mask).sum() / (mask.shape[0])
        if self.how == "same_count":
            return (loss * mask).sum() / mask.sum() + 0.1 * (ops.square(logits).mean(-1) * mask).sum() / mask.sum()
        if self.how == "penalised":
            return (loss * mask).sum() / mask.sum() + 0.1 * ops.square(self.head).sum()
        if self.how == "two_counts":
            return (loss * mask).sum() / mask.sum() + 0.1 * ops.square(logits).mean()
        return loss.mean()


class Ignored(Model):
    """nn.CrossEntropyLoss, for which labels that are -100 do not count; with `shifts`, of the token after each."""

    def __init__(self, shifts=False, **options):
        super().__init__()
        self.loss = nn.CrossEntropyLoss(**options)
        self.shifts = shifts

    def construct(self, ids, labels):
        logits = self.logits(ids)
        if self.shifts:
            logits = logits.reshape((-1, SEQUENCE, VOCABULARY))[:, :-1].reshape((-1, VOCABULARY))
            labels = labels[:, 1:]
        return self.loss(logits, labels.reshape((-1,)))


def tokens(number):
    return tuple(tensor(BATCH, SEQUENCE, dtype=mindspore.int32) for _ in range(number))


def masked(how):
    with no_init_parameters():
        return Masked(how), tokens(3)


def ignored(**options):
    with no_init_parameters():
        return Ignored(**options), tokens(2)


COUNTED = (
    "sum_over_sum", "epsilon", "at_least_one", "clamped", "of_mint", "means", "reciprocal", "normalised", "same_count",
    "penalised",
)  # fmt: skip
"""Masked losses that divide by a count of the inputs."""
AS_ONE_BATCH = ("static", "mean")
for how in (*COUNTED, *AS_ONE_BATCH, "total", "two_counts"):
    globals()[how] = functools.partial(masked, how)


ignore_index = ignored
smoothed = functools.partial(ignored, label_smoothing=0.1)
shifted = functools.partial(ignored, shifts=True)


def weighed_classes():
    weights = [0.5] * (VOCABULARY // 2) + [1.0] * (VOCABULARY // 2)
    return ignored(weight=Tensor(weights, mindspore.float32))
