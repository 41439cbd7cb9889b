"""Operators of a graph that MindSpore differentiates several times: equal ones, which it merges afterwards."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ms_symtensor.tensor.graph import Graph, Op, OpOutput, Source, replaced

COPIES = "copies"
"""A graph's attribute: its `Copies`."""

Copies = tuple[tuple[str | tuple[str, ...], ...], ...]
"""For every such operator its name, and of each further copy who reads it; all others read the first one."""

_KEY = "with_copies"


def copy_name(name: str, number: int) -> str:
    """What copy `number` of operator `name` is called; the first is the operator itself."""
    return f"{name}~{number}"


def with_copies(graph: Graph) -> tuple[Graph, Mapping[str, str]]:
    """`graph` with every copy as an operator behind the first one, and what these are copies of, by their names.

    Errors: ValueError where the attribute is no `Copies`.
    """
    if not any(name == COPIES for name, _ in graph.attributes):
        return graph, {}
    if _KEY not in graph.derived:
        graph.derived[_KEY] = _with_copies(graph)
    found: tuple[Graph, Mapping[str, str]] = graph.derived[_KEY]
    return found


def _with_copies(graph: Graph) -> tuple[Graph, dict[str, str]]:
    numbers: dict[str, int] = {}
    reads: dict[tuple[str, str], str] = {}
    for first, readers in _noted(graph):
        if first in graph.op_by_name:
            numbers[first] = len(readers)
            reads |= {(one, first): copy_name(first, i) for i, names in enumerate(readers, 1) for one in names}

    def written(op: Op, name: str) -> Op:
        def read(source: Source) -> Source:
            copy = reads.get((name, source.op)) if isinstance(source, OpOutput) else None
            return source if copy is None else OpOutput(copy, source.index)  # type: ignore[union-attr]

        return replace(op, name=name, inputs=tuple(replaced(source, read) for source in op.inputs))

    ops, origins = [], {}
    for op in graph.ops:
        ops.append(written(op, op.name))
        for number in range(1, numbers.get(op.name, 0) + 1):
            copy = copy_name(op.name, number)
            origins[copy] = op.name
            ops.append(written(op, copy))
    return replace(graph, ops=tuple(ops)), origins


def _noted(graph: Graph) -> Iterator[tuple[str, tuple[tuple[str, ...], ...]]]:
    noted = dict(graph.attributes)[COPIES]
    for one in noted if isinstance(noted, tuple) else (None,):
        first, *readers = one if isinstance(one, tuple) and one else (None,)
        names = tuple(tuple(n for n in r if isinstance(n, str)) if isinstance(r, tuple) else None for r in readers)
        if not isinstance(first, str) or None in names or names != tuple(readers):
            raise ValueError(f"{COPIES!r} is no list of operators and of who reads their copies")
        yield first, names  # type: ignore[misc]
