"""Cells that count over a whole batch. They import mindspore at once: reached through `whole_count` only."""

import inspect

import mindspore
import numpy
from mindspore import Tensor, nn, ops
from mindspore.ops import auto_generate

from ms_symtensor.ops.registry import is_known, signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.count_values import constant_array
from ms_symtensor.tensor.graph import Constant, InputRef, OpOutput, Source

_NOTHING = 1e30
"""The reciprocal of a count of at least one token is less; that of none is infinite (empirical)."""


def multiply_by(wrapper, factors):
    """Have `wrapper`, a cell of MindSpore's that cuts batches, multiply the loss of every micro-batch by `factors`.

    With several `factors` its network gives as many parts of a loss, [1, factors], side by side; without any it is as it was.
    """
    if isinstance(wrapper, _Counted):
        wrapper.__class__ = type(wrapper).__mro__[2]
    if not factors:
        return
    wrapper.__class__ = type(type(wrapper).__name__, (_Counted, type(wrapper)), {})
    wrapper.read, wrapper.read_whole = _Read(factors), _Read(factors)
    wrapper.whole_counts = _Counts([factor.count and factor.count.whole for factor in factors])
    wrapper.micro_counts = _Counts([factor.count and factor.count.micro for factor in factors])
    wrapper.fills = _Fills(factors)
    wrapper.shares = _Shares(factors)


class _Counted(nn.Cell):
    """In front of a class that cuts batches: what is divided by a count is divided by that of the whole batch."""

    def construct(self, *inputs):
        ret = None
        inputs = self.read(inputs)
        whole = self.whole_counts(self.read_whole(inputs))
        for i in range(self.micro_size):
            micro = self.micro_inputs[i](i, *inputs)
            counts = self.micro_counts(micro)
            output = self.shares(self.network(*self.fills(micro, counts)), counts, whole)
            ret = output if ret is None else self.add_list[i](ret, output)
        return ret


class Apart(nn.Cell):
    """A cell whose result is part of a loss: in training it stands at its own place, [1, parts], among zeros."""

    def __init__(self, part, number, parts):
        super().__init__(auto_prefix=False)
        self.part = part
        self.place = _place(number, parts)
        self.mul = _whole(ops.Mul(), 0, 2)
        self.training = part.training

    def construct(self, *inputs):
        loss = self.part(*inputs)
        return self.mul(loss, self.place) if self.training else loss


class _Read(nn.Cell):
    """The inputs, those that are counted as the result of one operator, which changes nothing.

    MindSpore's stages take an input's micro-batches from the slices of its first reader. They find none where that is a count,
    and one too many where a count slices the inputs (labels of the next token).
    """

    def __init__(self, factors):
        super().__init__()
        counted = {name for factor in factors for name in factor.some}
        inputs = next((factor.count.micro.inputs for factor in factors if factor.count is not None), ())
        self.every = nn.CellList([_ReadOnce(kind) if name in counted else _Same() for name, kind in inputs])

    def construct(self, inputs):
        if len(self.every) == 0:
            return inputs
        found = []
        for number, read in enumerate(self.every):
            found.append(read(inputs[number]))
        return tuple(found)


class _ReadOnce(nn.Cell):
    """A tensor, by an operator that MindSpore does not take away: x or False, max(x, the least number there is)."""

    def __init__(self, kind):
        super().__init__()
        is_bool = kind.dtype == "bool"
        self.join = _whole(ops.LogicalOr() if is_bool else ops.Maximum(), len(kind.shape), 0)
        self.least = Tensor(False if is_bool else _least(kind.dtype), getattr(mindspore, kind.dtype))

    def construct(self, x):
        return self.join(x, self.least)


def _least(dtype):
    """The least number of an element type."""
    return numpy.iinfo(dtype).min if "int" in dtype else -numpy.inf


class _Counts(nn.Cell):
    """The counts of a batch; 1 for None."""

    def __init__(self, graphs):
        super().__init__()
        self.every = nn.CellList([_One() if graph is None else CountCell(graph) for graph in graphs])

    def construct(self, inputs):
        found = []
        for count in self.every:
            found.append(count(inputs))
        return tuple(found)


class _One(nn.Cell):
    """Where nothing is counted."""

    def __init__(self):
        super().__init__()
        self.one = Tensor(1.0, mindspore.float32)

    def construct(self, inputs):
        return self.one


class CountCell(nn.Cell):
    """What a graph of inputs makes of them: one number, float32. Every device has it all: nothing is exchanged."""

    def __init__(self, graph):
        super().__init__()
        positions: dict[Source, int] = {InputRef(name): number for number, (name, _) in enumerate(graph.inputs)}
        positions |= {OpOutput(op.name): len(graph.inputs) + number for number, op in enumerate(graph.ops)}
        self.steps = nn.CellList([_Step(graph, op, positions) for op in graph.ops])
        self.cast, self.reshape = ops.Cast(), ops.Reshape()

    def construct(self, inputs):
        values = inputs
        for step in self.steps:
            values += (step(values),)
        return self.reshape(self.cast(values[-1], mindspore.float32), ())


class _Step(nn.Cell):
    """One operator: its primitive, and which of the values before it reads (-1: a constant of its own)."""

    def __init__(self, graph, op, positions):
        super().__init__()
        constants = [_constant(op, number, source) for number, source in enumerate(op.inputs)]
        kind = getattr(auto_generate, op.type, None)
        settings = 0 if kind is None else len(inspect.signature(kind.__init__).parameters) - 1
        inputs = len(constants) - settings  # the last ones are what the primitive is made with
        self.primitive = ops.Primitive(op.type) if kind is None else kind(*constants[inputs:])
        for name, value in op.attributes:
            self.primitive.add_prim_attr(name, value)
        self.positions = tuple(positions.get(source, -1) for source in op.inputs[:inputs])
        self.constants = tuple(constants[:inputs])
        if is_known(op.type) and signature(view(graph, op)).shardable:
            self.primitive.shard(tuple((1,) * len(t.shape) for t in view(graph, op).inputs))

    def construct(self, values):
        arguments = []
        for position, constant in zip(self.positions, self.constants):  # noqa: B905  MindSpore's zip takes no strict
            arguments.append(constant if position < 0 else values[position])
        return self.primitive(*arguments)


class _Nothing(nn.Cell):
    """Whether a count, or the reciprocal of one (`multiplies`), says that nothing counts."""

    def __init__(self, multiplies):
        super().__init__()
        self.compare = _whole(ops.Greater() if multiplies else ops.Equal(), 0, 0)
        self.bound = Tensor(_NOTHING if multiplies else 0.0, mindspore.float32)

    def construct(self, count):
        return self.compare(count, self.bound)


class _Fills(nn.Cell):
    """The inputs of a micro-batch; those of a count that counts nothing in it are such as count."""

    def __init__(self, factors):
        super().__init__()
        counted = [(number, factor) for number, factor in enumerate(factors) if factor.count is not None]
        self.numbers = tuple(number for number, _ in counted)
        self.nothing = nn.CellList([_Nothing(factor.count.multiplies) for _, factor in counted])
        self.every = nn.CellList([_FillSome(factor) for _, factor in counted])

    def construct(self, micro, counts):
        for i, fill in enumerate(self.every):
            micro = fill(micro, self.nothing[i](counts[self.numbers[i]]))
        return micro


class _FillSome(nn.Cell):
    """The inputs of a micro-batch, or where `nothing` in it counts those with which something does."""

    def __init__(self, factor):
        super().__init__()
        some = factor.some
        self.every = nn.CellList(
            [_Fill(kind, some[name]) if name in some else _Same() for name, kind in factor.count.micro.inputs]
        )

    def construct(self, micro, nothing):
        found = []
        for number, fill in enumerate(self.every):
            found.append(fill(micro[number], nothing))
        return tuple(found)


class _Fill(nn.Cell):
    """An input, or where `nothing` counts one that is `number` in all elements."""

    def __init__(self, kind, number):
        super().__init__()
        rank = len(kind.shape)
        self.is_bool, self.number = kind.dtype == "bool", number
        self.dtype = getattr(mindspore, kind.dtype)
        self.cast, self.invert = ops.Cast(), _whole(ops.LogicalNot(), 0)
        self.join = _whole(ops.LogicalOr() if number else ops.LogicalAnd(), rank, 0)
        self.keep, self.put, self.add = _whole(ops.Mul(), rank, 0), _whole(ops.Mul(), 0, 0), _whole(ops.Add(), rank, 0)
        self.value = Tensor(number, self.dtype)

    def construct(self, x, nothing):
        if self.is_bool:
            return self.join(x, nothing if self.number else self.invert(nothing))
        kept = self.keep(x, self.cast(self.invert(nothing), self.dtype))
        return self.add(kept, self.put(self.cast(nothing, self.dtype), self.value))


class _Same(nn.Cell):
    """An input that does not count."""

    def construct(self, x, *_):
        return x


class _Shares(nn.Cell):
    """A loss, or the sum of its parts, each times its factor."""

    def __init__(self, factors):
        super().__init__()
        self.every = nn.CellList([_Share(float(f.scale), f.count is not None and f.count.multiplies) for f in factors])
        parts = range(len(factors) if len(factors) > 1 else 0)
        self.places = tuple(_place(number, len(factors)) for number in parts)
        self.picks = tuple(_whole(ops.Mul(), 2, 2) for _ in parts)
        self.sums = tuple(_whole(ops.ReduceSum(), 2) for _ in parts)
        self.adds = tuple(_whole(ops.Add(), 0, 0) for _ in parts)

    def construct(self, loss, counts, whole):
        if len(self.places) == 0:
            return self.every[0](loss, counts[0], whole[0])
        total = None
        for i, share in enumerate(self.every):
            part = self.sums[i](self.picks[i](loss, self.places[i]), (0, 1))
            part = share(part, counts[i], whole[i])
            total = part if total is None else self.adds[i](total, part)
        return total


class _Share(nn.Cell):
    """A loss times `scale` times the share of a micro-batch in the count of the whole batch."""

    def __init__(self, scale, multiplies):
        super().__init__()
        self.multiplies = multiplies
        self.divide, self.times, self.scale = (_whole(p, 0, 0) for p in (ops.RealDiv(), ops.Mul(), ops.Mul()))
        self.number = Tensor(scale, mindspore.float32)
        self.cast, self.dtype = ops.Cast(), ops.DType()

    def construct(self, loss, count, whole):
        share = self.divide(whole, count) if self.multiplies else self.divide(count, whole)
        return self.times(loss, self.cast(self.scale(share, self.number), self.dtype(loss)))


def _place(number, parts):
    """[1, parts], 1 at `number` and 0 elsewhere."""
    return Tensor([[1.0 if i == number else 0.0 for i in range(parts)]], mindspore.float32)


def _whole(primitive, *ranks):
    """`primitive` on tensors of so many dims that no device cuts."""
    return primitive.shard(tuple((1,) * rank for rank in ranks))


def _constant(op, number, source):
    """What `op` is given as its input `number` where that is a constant, None where it is not."""
    if not isinstance(source, Constant):
        return None
    if source.tensor is not None:
        return Tensor(constant_array(source), getattr(mindspore, source.tensor.dtype))
    if (op.type, number) in _ELEMENT_TYPES and source.value is not None:
        return getattr(mindspore, op.outputs[0].dtype)
    return source.value


_ELEMENT_TYPES = {("Cast", 1), ("SumExt", 3), ("MeanExt", 3)}
"""Inputs that are the element type of the result; graphs have MindSpore's numbers of them."""
