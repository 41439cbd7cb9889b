"""Identical blocks become one block and a count, so that the search does not grow with depth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.tensor.graph import (
    JOINT,
    Constant,
    Graph,
    Op,
    OpOutput,
    Parameter,
    ParameterRef,
    Source,
    TupleInput,
    replaced,
)


@dataclass(frozen=True)
class Fold:
    """Operators by class: members of a class stand at the same place of identical blocks and share one strategy.

    `class_of` maps operator names to class numbers, `members` lists the operators of every class in the graph's order.
    `kinds` names the repeated blocks, those of a kind together, in the order of the network; where any repeat, a block like no
    other is a kind of one, unless it stands between two of a kind. The blocks of a period (`alternating`) are of a kind each,
    identical ones too: what they recompute may differ. `turns` says how many kinds in a row take turns, 1 where one does not.
    """

    class_of: Mapping[str, int]
    members: tuple[tuple[Op, ...], ...]
    kinds: tuple[tuple[str, ...], ...]
    turns: tuple[int, ...]

    @property
    def periods(self) -> list[list[tuple[str, ...]]]:
        """The blocks by name, period by period, of every group of kinds that take turns."""
        ends = accumulate(self.turns, initial=0)
        return [[*zip(*self.kinds[first:end], strict=True)] for first, end in pairwise(ends)]


@lru_cache(maxsize=32)
def fold(graph: Graph) -> Fold:
    """Classes of `graph`'s operators; an operator outside repeated blocks is a class of its own.

    Blocks of one list (`layers.0`, `layers.1`, …) are identical if their operators agree one by one in type, shapes and
    arguments, the seeds of dropout excepted; a block that differs from the first keeps classes of its own.
    """
    blocks: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.block is not None:
            blocks.setdefault(op.block, []).append(op)
    units = dict.fromkeys(tuple((op.period or op.block).split(JOINT)) for op in graph.ops if op.block is not None)
    first: dict[tuple, str] = {}
    twin: dict[str, str] = {}
    for name, ops in blocks.items():
        form = name.rpartition(".")[0], tuple(_form(graph, op) for op in ops)
        twin[name] = first.setdefault(form, name)
    class_of: dict[str, int] = {}
    members: list[list[Op]] = []
    place: dict[str, int] = {}
    of_place: dict[tuple[str, int], int] = {}
    for op in graph.ops:
        if op.block is None:
            class_of[op.name] = len(members)
            members.append([op])
            continue
        position = place[op.block] = place.get(op.block, -1) + 1
        key = (twin[op.block], position)
        if key not in of_place:
            of_place[key] = len(members)
            members.append([])
        class_of[op.name] = of_place[key]
        members[of_place[key]].append(op)
    groups = _alike({unit: tuple(twin[name] for name in unit) for unit in units})
    kinds = tuple(names for alike in groups for names in zip(*alike, strict=True))
    return Fold(class_of, tuple(map(tuple, members)), kinds, tuple(len(alike[0]) for alike in groups))


def _alike(form: Mapping[tuple[str, ...], tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    """The blocks and periods of one `form`, in their order; those like no other only where they stand between no such two."""
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for unit, one in form.items():
        alike.setdefault(one, []).append(unit)
    number = {unit: n for n, unit in enumerate(form)}
    several = [(number[units[0]], number[units[-1]]) for units in alike.values() if len(units) > 1]
    return [
        units
        for units in alike.values()
        if len(units) > 1 or (several and not any(start < number[units[0]] < end for start, end in several))
    ]


_kind_of: Callable[[Parameter], tuple] = attrgetter(
    *(field.name for field in fields(Parameter) if field.name != "name")
)
"""All that is true of a parameter but its name."""


def _form(graph: Graph, op: Op) -> tuple:
    outputs = tuple((t.shape, t.dtype) for t in op.outputs)
    values = () if "Dropout" in op.type else tuple([s.value for s in op.inputs if isinstance(s, Constant)])
    return (op.type, tuple(_origin(graph, s) for s in op.inputs), outputs, op.attributes, op.body, values)


def _origin(graph: Graph, source: Source) -> tuple:
    """What kind of source it is, and of which type; a parameter that is frozen, or never shared, is another kind than others."""
    if isinstance(source, Constant):  # most are
        return Constant, source.tensor
    if isinstance(source, OpOutput):
        kind = graph.op_by_name[source.op].outputs[source.index]
        return kind.shape, kind.dtype
    if isinstance(source, TupleInput):
        return tuple(_origin(graph, one) for one in source.items)
    if isinstance(source, ParameterRef):
        return _kind_of(graph.parameter_by_name[source.name])
    return type(source), graph.type_of(source)


def shorten(graph: Graph, folded: Fold, keep: int | Sequence[int]) -> Graph:
    """`graph` with only the first `keep` of its repeated blocks of every kind (or so many of each kind).

    What read a later block reads the last kept one of its kind.
    """
    kinds = folded.kinds
    counts = [keep] * len(kinds) if isinstance(keep, int) else keep
    dropped = {name for names, count in zip(kinds, counts, strict=True) for name in names[count:]}
    if not dropped:
        return graph
    end_of = {name: names[:count][-1] for names, count in zip(kinds, counts, strict=True) if count for name in names}
    last = {(op.block, folded.class_of[op.name]): op.name for op in graph.ops}
    gone = {op.name: end_of.get(op.block) for op in graph.ops if op.block in dropped}

    def moved(source: Source) -> Source:
        if isinstance(source, OpOutput) and source.op in gone:
            return OpOutput(last[gone[source.op], folded.class_of[source.op]], source.index)
        return source

    ops = tuple(
        replace(op, inputs=inputs) if (inputs := tuple([replaced(s, moved) for s in op.inputs])) != op.inputs else op
        for op in graph.ops
        if op.name not in gone
    )
    used = {s.name for op in ops for s in op.inputs if isinstance(s, ParameterRef)}
    parameters = tuple(p for p in graph.parameters if p.name in used)
    return replace(graph, ops=ops, parameters=parameters, output=replaced(graph.output, moved))


def unfold(class_of: Mapping[str, int], short: Graph, strategies: Mapping[str, OpStrategy]) -> dict[str, OpStrategy]:
    """`strategies` of the network with few blocks, for the same network with all of its blocks, whose operators are of the
    classes `class_of` (`Fold.class_of`).
    """
    first = fold(short).class_of
    by_class = {first[name]: strategy for name, strategy in strategies.items()}
    return {name: by_class[number] for name, number in class_of.items() if number in by_class}
