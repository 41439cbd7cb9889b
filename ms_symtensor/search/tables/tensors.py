"""The tensors between operators: who makes them, who reads them in which layout, and those that only a gradient reads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ms_symtensor.errors import InputError
from ms_symtensor.program.gradients import gradient_inputs, gradient_users, is_kept, kept_outputs, sends_gradient
from ms_symtensor.search.tables.variables import Variable, Variables
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, ParameterRef, Source
from ms_symtensor.tensor.layout import Layout

End = tuple[int, str, int]
"""One end of a tensor: variable number (-1: the network's input or result), "in" or "out", and the position."""

WHOLE: End = (-1, "out", 0)
"""Where the network's inputs come from, and what a Reshape delivers that no operator with a strategy reads: whole."""


@dataclass(frozen=True)
class Reader:
    """An operator's input that reads a tensor: where, whether its gradient needs the tensor kept, whether it is recomputed."""

    end: End
    kept: bool
    inside: bool
    """What makes the tensor (a Cast too) and its reader stand in the same block, whose recomputation makes it again."""
    sends: bool
    """Whether a gradient comes back from it."""
    moved_inside: bool
    """Whether what moves the tensor there, the reader or a Reshape before it, stands in a block."""
    kept_as: str
    """The element type in which its gradient needs it: that of a Cast, if one stands behind the Reshape."""


NETWORK = Reader((-1, "in", 0), False, False, True, False, "")
"""The network's end as the reader of a Reshape that no operator follows: it takes the tensor whole."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that `maker` leaves and `readers` read; shapes differ where a Reshape stands between.

    `shape` is that of the maker's layout; `reader_shape` what the readers read.
    """

    maker: End
    readers: tuple[Reader, ...]
    shape: tuple[int, ...]
    reader_shape: tuple[int, ...]
    dtype: str
    has_gradient: bool
    maker_keeps: bool
    others: int
    """How many other users send a gradient back: casts, reshapes, and the reader in whose layout it is."""
    in_block: bool
    """Whether the operator whose output it is stands in a block."""
    crosses: bool
    """So it does, and some reader stands outside: kept even where blocks are recomputed."""
    power: int
    """Whether its size goes with the batch (1) or not (0)."""
    made_by: tuple[int, int] = field(default=(-1, 0), compare=False)
    """The variable whose operator computes it, through those that keep layouts, and as which output; -1: the network's input."""


@dataclass
class _Collector:
    graph: Graph
    known: Variables
    found: dict[Tensor, Counter[Op | None]] = field(default_factory=dict)


def tensors(graph: Graph, known: Variables) -> Mapping[Tensor, Counter[Op | None]]:
    """All tensors of `graph` between the variables, each with how often it is there, by where it is carried and kept.

    That is the first of its readers, since a pipeline stage that receives a tensor carries it from its maker's layout by itself;
    where readers stand in several blocks, its maker (None: it is an input).
    """
    collector = _Collector(graph, known)
    sources: list[Source] = [InputRef(name) for name, _ in graph.inputs]
    sources += [source for op in graph.ops for source in op.results]
    for source in sources:
        _collect(collector, source)
    return collector.found


def _collect(collector: _Collector, source: Source) -> None:
    """Add the tensor `source`: its readers through no other operator, at their layouts."""
    graph, known = collector.graph, collector.known
    maker = maker_of(graph, known, source)
    if maker is None:
        return
    readers, reshaped = [], []
    for user, position in graph.users.get(source, ()):
        if user.name in known.index:
            readers.append((user, position))
        elif user.reshapes:
            reshaped.append(user)
    kind = graph.type_of(source)
    assert kind is not None
    if readers:
        senders = gradient_users(graph, known.signatures, known.gradients, source)
        found = [_reader(collector, source, u, p, u) for u, p in readers]
        _add(collector, source, maker, found, kind.shape, kind.shape, senders, [u for u, _ in readers])
    for reshape in reshaped:
        target = reshape_target(graph, known, OpOutput(reshape.name))
        reader = NETWORK if target is None else _reader(collector, source, *target, reshape)
        shape, end = kind.shape, maker
        if (behind := _behind(graph, known, source)) is not None:
            end, shape = behind
            back = replace(reader, end=end, kept=False)
            _add(collector, source, maker, [back], kind.shape, shape, 0, [reshape])
        _add(collector, source, end, [reader], shape, reshape.outputs[0].shape, 0, [reshape])
    if not (readers or reshaped) and _keeps(collector, source):
        _add(collector, source, maker, [], kind.shape, kind.shape, 0, [])


def _add(
    collector: _Collector,
    source: Source,
    maker: End,
    readers: list[Reader],
    shape: tuple[int, ...],
    reader_shape: tuple[int, ...],
    senders: int,
    users: Sequence[Op],
) -> None:
    kind = collector.graph.type_of(source)
    assert kind is not None
    # A reader of a reshaped tensor already has it in its own layout: only the others move it.
    moving = tuple(r for r in readers if r.end != maker) if maker[1] == "in" else tuple(readers)
    if readers and not moving:
        return
    keeps = _keeps(collector, source)
    keeps |= any(r.kept for r in readers if r.end == maker)  # the reader in whose layout a reshaped tensor is
    in_block = isinstance(source, OpOutput) and collector.graph.op_by_name[source.op].block is not None
    crosses = in_block and any(not r.inside for r in moving)
    has_gradient = source in collector.known.gradients
    others = max(senders - sum(r.sends for r in moving), 0)
    power = collector.known.power_of(source)
    tensor = Tensor(
        maker, moving, shape, reader_shape, kind.dtype, has_gradient, keeps, others, in_block, crosses, power,
        _made_by(collector, source),
    )  # fmt: skip
    collector.found.setdefault(tensor, Counter())[place_of(collector.graph, source, users)] += 1


def _made_by(collector: _Collector, source: Source) -> tuple[int, int]:
    """`Tensor.made_by` of `source`."""
    while isinstance(source, OpOutput):
        if source.op in collector.known.index:
            return collector.known.index[source.op], source.index
        source = collector.graph.tensor_inputs(collector.graph.op_by_name[source.op])[0]
    return -1, 0


def place_of(graph: Graph, source: Source, users: Sequence[Op]) -> Op | None:
    """The operator at which `source`, which `users` read, is carried to them and kept, and at which their gradients meet."""
    if len({user.block for user in users}) == 1:
        return users[0]
    return graph.op_by_name[source.op] if isinstance(source, OpOutput) else None


def _keeps(collector: _Collector, source: Source) -> bool:
    """Whether the gradient of the operator with a strategy that makes `source` reads it."""
    if not isinstance(source, OpOutput) or source.op not in collector.known.index:
        return False
    signatures, gradients = collector.known.signatures, collector.known.gradients
    op = collector.graph.op_by_name[source.op]
    reads = source.index in kept_outputs(collector.graph, signatures[source.op], gradients, op)
    return reads and gradient_inputs(collector.graph, signatures, gradients, source.op) > 0


def _reader(collector: _Collector, source: Source, user: Op, position: int, mover: Op) -> Reader:
    known = collector.known
    sig = known.signatures[user.name]
    kept = is_kept(collector.graph, sig, known.gradients, user, position)
    made = collector.graph.op_by_name[source.op] if isinstance(source, OpOutput) else None
    inside = made is not None and made.block is not None and made.block == user.block
    end = (known.index[user.name], "in", position)
    sends = sends_gradient(known.signatures, known.gradients, user, position)
    read = collector.graph.type_of(collector.graph.tensor_inputs(user)[position])
    assert read is not None
    return Reader(end, kept, inside, sends, mover.block is not None, read.dtype)


def maker_of(graph: Graph, known: Variables, source: Source) -> End | None:
    """The end at which `source` gets its layout, looking through operators that keep it; None for weights and constants."""
    while isinstance(source, OpOutput):
        op = graph.op_by_name[source.op]
        if op.name in known.index:
            return (known.index[op.name], "out", source.index)
        if op.reshapes:
            if maker_of(graph, known, graph.tensor_inputs(op)[0]) is None:
                return None
            target = reshape_target(graph, known, source)
            return WHOLE if target is None else (known.index[target[0].name], "in", target[1])
        source = graph.tensor_inputs(op)[0]
    if isinstance(source, InputRef):
        return WHOLE
    assert isinstance(source, ParameterRef | Constant)
    return None


def _behind(graph: Graph, known: Variables, source: Source) -> tuple[End, tuple[int, ...]] | None:
    """Where a Reshape of `source`, which another Reshape has delivered, brings it back to first: the output that is seen through
    all of them, and its shape (`_reshape` of program/forward.py).
    """
    reshaped = False
    while isinstance(source, OpOutput):
        op = graph.op_by_name[source.op]
        if op.name in known.index:
            end = (known.index[op.name], "out", source.index)
            return (end, op.outputs[source.index].shape) if reshaped else None
        reshaped |= op.reshapes
        source = graph.tensor_inputs(op)[0]
    return None


def reshape_target(graph: Graph, known: Variables, source: Source) -> tuple[Op, int] | None:
    """The operator input whose layout a Reshape's output takes: that of the user that MindSpore asks first (`tensor/users.py`),
    looking through transparent operators (as `_next_layout` of program/forward.py).
    """
    for user, position in graph.listed_users(source):
        if user.type == "Reshape":
            continue
        if user.name in known.index:
            return user, position
        found = reshape_target(graph, known, OpOutput(user.name))
        if found is not None:
            return found
    return None


def is_moved(graph: Graph, known: Variables, source: Source) -> bool:
    """Whether some operator with a strategy reads `source` in a layout of its own choice."""
    maker = maker_of(graph, known, source)
    ends = [(known.index[u.name], "in", p) for u, p in graph.users.get(source, ()) if u.name in known.index]
    return maker is not None and any(maker[1] == "out" or end != maker for end in ends)


def layouts_at(known: Variables, end: End, shape: tuple[int, ...]) -> tuple[Layout, ...]:
    """The layout at `end` for every candidate of its variable (one, uncut, for the network's inputs and result).

    Errors: InputError for an output that an operator of its type has not.
    """
    number, side, position = end
    if number < 0:
        return (Layout((known.pricer.family.device_num,), (-1,) * len(shape), shape),)
    variable: Variable = known.items[number]
    found = [p.outputs if side == "out" else p.inputs for p in variable.placements]
    if any(position >= len(layouts) for layouts in found):
        op = variable.op
        raise InputError(
            f"{op.name} ({op.type}) has no {side}put number {position + 1}: the graph was changed, capture it again"
        )
    return tuple(layouts[position] for layouts in found)
