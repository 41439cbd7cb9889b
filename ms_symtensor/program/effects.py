"""Cells with side effects, and who reads from outside what they make.

MindSpore takes a `Morph` to have side effects, and what a cell with side effects returns is read outside behind a `Depend` on
them. It drops these Depends where the effects turn out to be none. Inside a cell of `@lazy_inline` it keeps them, because the
state of effects is a parameter of that graph: there a tensor and the tensor behind a Depend are two, and moves of both are
never made one. Depends behind each other are one.
"""

from collections.abc import Callable

from ms_symtensor.tensor.graph import LAZY_INLINE, Graph
from ms_symtensor.tensor.names import scope_of


def read_from_outside(graph: Graph) -> Callable[[str, str], bool] | None:
    """Whether the second operator reads what the first one makes behind a Depend, by names; None where nothing is."""
    paths = dict(graph.attributes).get(LAZY_INLINE)
    inlined = [tuple(filter(None, path.split("."))) for path in paths.split(" ")] if isinstance(paths, str) else []
    inside = {
        scope[:depth]
        for scope in (scope_of(op.name) for op in graph.ops if op.body is not None)
        for cell in inlined
        if scope[: len(cell)] == cell
        for depth in range(len(cell) + 1, len(scope) + 1)
    }
    if not inside:
        return None

    def is_outside(maker: str, reader: str) -> bool:
        made, read = scope_of(maker), scope_of(reader)
        return any(made[:d] in inside and read[:d] != made[:d] for d in range(1, len(made) + 1))

    return is_outside
