"""What a user recomputes by hand: `recompute()` on blocks, on cells inside them, and on primitives."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ms_symtensor.bridge.capture.capture import primitives_of
from ms_symtensor.bridge.compiler.executor import RECOMPUTE_FLAGS
from ms_symtensor.ops.registry import Rule, signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.recomputation import OUTSIDE, name_in_block
from ms_symtensor.program.settings import Recompute
from ms_symtensor.tensor.graph import Graph, Op, OpOutput
from ms_symtensor.tensor.names import path_of

_COMMUNICATION = (
    "recompute_comm_op"  # the mark of MindSpore that tells whether collectives around an operator are recomputed
)
_WORK = "recompute"  # the mark of an operator whose work is recomputed
_SLICES = "slice_activation"  # the mark of `recompute_slice_activation=True`


def recomputed_by_user(cell: Any, graph: Graph, rules: Mapping[str, Rule] | None = None) -> dict[str, Recompute]:
    """The blocks of `graph`, captured from `cell`, of which something is recomputed, and what is not. `OUTSIDE`: operators
    of no block whose primitives are recomputed.

    MindSpore computes again what stands in a cell with `recompute()`, but for what that cell returns, or whose primitive has it;
    a mark on the primitive comes first. The same for collectives with `recompute_comm_op`; before an operator without a mark,
    but for a Reshape, that of the operator which it reads counts.
    """
    cells = {tuple(path.split(".")) if path else (): found for path, found in cell.cells_and_names()}
    primitives = primitives_of(cell, graph)
    marked = {path for path, found in cells.items() if _is_marked(found)}
    blocks: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.block is not None:
            blocks.setdefault(op.block, []).append(op)
    found = {}
    for block, ops in blocks.items():
        work = {op.name: _recomputes_work(graph, op, primitives.get(op.name), marked) for op in ops}
        if any(work.values()):
            sent = {op.name: _recomputes_sends(graph, op, primitives, marked, rules) for op in ops}
            told = any(_COMMUNICATION in p.attrs for op in ops if (p := primitives.get(op.name)) is not None)
            is_marked = told or tuple(block.split(".")) not in marked
            found[block] = replace(
                _selection(graph, block, ops, work, sent), is_marked=is_marked, sliced=_sliced(ops, primitives)
            )
    alone = tuple(op.name for op in graph.ops if op.block is None and _is_alone(op, primitives.get(op.name)))
    return {**found, OUTSIDE: Recompute(only=alone)} if alone else found


def _selection(
    graph: Graph, block: str, ops: list[Op], work: Mapping[str, bool], sent: Mapping[str, bool]
) -> Recompute:
    """The selection that computes the operators of `work` again, and the collectives around those of `sent`."""
    communication = any(sent[op.name] for op in ops if op.primitive or not any(o.primitive for o in ops))
    leaving = {op.name for op in ops if _users_outside(graph, op, tuple(block.split(".")))}
    return Recompute(
        communication,
        tuple(dict.fromkeys(name_in_block(op) for op in ops if not work[op.name] and op.name not in leaving)),
        tuple(dict.fromkeys(name_in_block(op) for op in ops if communication and not sent[op.name])),
    )


def _is_alone(op: Op, primitive: Any) -> bool:
    """Whether the user recomputes the primitive of `op`; that of a Cast is known by what the captured operator holds."""
    return bool((dict(op.attributes) if primitive is None else primitive.attrs).get(_WORK))


def _sliced(ops: list[Op], primitives: Mapping[str, Any]) -> tuple[str, ...]:
    """The operators whose kept outputs are cut over the ranks that hold the same."""
    cut = [op for op in ops if op.name in primitives and primitives[op.name].attrs.get(_SLICES)]
    return tuple(dict.fromkeys(map(name_in_block, cut)))


def _is_marked(cell: Any) -> bool:
    """Whether `recompute()` was called on this very cell: its children have no such flag."""
    flags = cell.__dict__.get("_func_graph_flags") or {}
    return any(name in flags for name in RECOMPUTE_FLAGS)


def _recomputes_work(graph: Graph, op: Op, primitive: Any, marked: set[tuple[str, ...]]) -> bool:
    mark = None if primitive is None else primitive.attrs.get(_WORK)
    if mark is not None:
        return bool(mark)
    around = list(_marked_around(op, marked))
    return bool(around) and not any(_users_outside(graph, op, path) for path in around)


def _recomputes_sends(
    graph: Graph, op: Op, primitives: Mapping[str, Any], marked: set[tuple[str, ...]], rules: Mapping[str, Rule] | None
) -> bool:
    if op.type == "Reshape" and op.name in primitives and primitives[op.name].attrs.get(_WORK):
        return True  # what is moved before it comes with it
    for one in (op, *(() if op.type == "Reshape" else _read_by(graph, op, rules))):
        mark = primitives[one.name].attrs.get(_COMMUNICATION) if one.name in primitives else None
        if mark is not None:
            return bool(mark)
    return any(_marked_around(op, marked))


def _place(op: Op) -> tuple[str, ...]:
    """`path_of`; in its block where its name tells another, as that of a functional operator may, which all blocks share."""
    path, block = path_of(op), () if op.block is None else tuple(op.block.split("."))
    return path if path[: len(block)] == block else (*block, path[-1])


def _marked_around(op: Op, marked: set[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The cells with `recompute()` in which `op` stands."""
    path = _place(op)
    return (path[:depth] for depth in range(len(path)) if path[:depth] in marked)


def _users_outside(graph: Graph, op: Op, path: tuple[str, ...]) -> bool:
    """Whether an operator outside the cell at `path` reads a result of `op`."""
    return any(
        _place(user)[: len(path)] != path
        for index in range(len(op.outputs))
        for user, _ in graph.users.get(OpOutput(op.name, index), ())
    )


def _read_by(graph: Graph, op: Op, rules: Mapping[str, Rule] | None) -> Iterator[Op]:
    """The operators that lay out what `op` reads: MindSpore looks through those that leave a layout as it is."""
    for source in graph.tensor_inputs(op):
        while isinstance(source, OpOutput):
            read = graph.op_by_name[source.op]
            if read.type == "Reshape" or signature(view(graph, read), rules).shardable:
                yield read
                break
            source = graph.tensor_inputs(read)[0]
