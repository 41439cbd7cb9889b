"""Capture: the operator graph of a network, with the very names that MindSpore uses, and no weight materialised."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ms_symtensor.bridge.anf import AnfGraph, Node, read_graph
from ms_symtensor.bridge.executor import front_end, without_lazy_inline
from ms_symtensor.bridge.host import import_mindspore
from ms_symtensor.bridge.output_types import complete
from ms_symtensor.bridge.parallel_context import stand_alone_context
from ms_symtensor.tensor.graph import Graph, InputRef, Op, Parameter, Source, TensorType, TupleInput

_TAG = "symtensor_id"  # a primitive attribute, present during a capture only
_BOOKKEEPING_ATTRIBUTES = {_TAG, "input_names", "output_names", "in_strategy", "out_strategy", "self_define_shard"}


def capture(cell: Any, *inputs: Any, name: str | None = None) -> Graph:
    """The operator graph of `cell(*inputs)`, a forward network (with its loss, to be planned for training).

    `inputs` may be shape-only tensors: `Tensor(shape=(2, 4096), dtype=mindspore.int32, init=Zero())`. Operators of cells
    decorated with `@lazy_inline` are included. The cell and the process are afterwards as before. CompilerError, with
    the line of the network, if MindSpore rejects it.
    """
    import_mindspore()
    from mindspore import context

    mode = context.get_context("mode")
    with stand_alone_context(), without_lazy_inline(cell), _tagged_primitives(cell) as owners:
        context.set_context(mode=context.GRAPH_MODE)
        try:
            model, _ = front_end(cell, inputs, "capture")
        finally:
            context.set_context(mode=mode)
    weights = {p.name: p for p in cell.get_parameters()}
    graph = read_graph(model, set(weights))
    rename = _argument_names(cell, graph)
    types = dict(graph.parameters)
    return Graph(
        name=name or type(cell).__name__,
        inputs=tuple((rename[input_name], input_type) for input_name, input_type in graph.inputs),
        parameters=tuple(Parameter(p.name, types[p.name], p.requires_grad) for p in weights.values() if p.name in types),
        ops=tuple(_ops(graph, owners, rename)),
        output=_renamed(graph.output, rename),
    )


def primitive_of(cell: Any, op: Op) -> Any:
    """The Python primitive behind `op` of the graph captured from `cell`: the object that takes `shard()`. None if it has none."""
    if not op.primitive:
        return None
    owner = cell
    for part in op.cell:
        owner = owner[int(part)] if part.isdigit() and not hasattr(owner, part) else getattr(owner, part)
    return _members(owner)[op.primitive]


def _ops(graph: AnfGraph, owners: dict[int, tuple[tuple[str, ...], str]], rename: dict[str, str]) -> Iterator[Op]:
    known: dict[str, Node] = {}
    for node in graph.nodes:
        known[node.name] = node
        tag = node.attribute(_TAG)
        path, primitive = owners.get(tag, ((), "")) if isinstance(tag, int) else ((), "")
        yield Op(
            name=node.name,
            type=node.type,
            inputs=tuple(_renamed(source, rename) for source in node.inputs),
            outputs=complete(node, graph),
            attributes=tuple(sorted(a for a in node.attributes if a[0] not in _BOOKKEEPING_ATTRIBUTES)),
            cell=path,
            primitive=primitive,
            block=_block(path or _scope_path(node.scope)),
        )


def _renamed(source: Source, rename: dict[str, str]) -> Source:
    match source:
        case InputRef(name):
            return InputRef(rename[name])
        case TupleInput(items):
            return TupleInput(tuple(_renamed(item, rename) for item in items))
    return source


def _argument_names(cell: Any, graph: AnfGraph) -> dict[str, str]:
    """Names of the graph's inputs as the network's `construct` spells them; MindSpore keeps them, except for `*args`."""
    return {name: name for name, _ in graph.inputs}


def _block(path: tuple[str, ...]) -> str | None:
    """`"layers.3"` for anything inside `layers[3]`: the first numbered child on the way, which is a repeated block's."""
    for depth, part in enumerate(path):
        if part.isdigit() and depth:
            return ".".join(path[: depth + 1])
    return None


def _scope_path(scope: str) -> tuple[str, ...]:
    """Attribute names from a scope such as `Default/layers-CellList/0-Block`."""
    return tuple(part.split("-", 1)[0] for part in scope.split("/")[1:])


@contextmanager
def _tagged_primitives(cell: Any) -> Iterator[dict[int, tuple[tuple[str, ...], str]]]:
    """Every primitive that a cell owns carries a number while this is open, and so do its operators in the graph."""
    from mindspore.ops import Primitive

    owners: dict[int, tuple[tuple[str, ...], str]] = {}
    tagged: list[Any] = []
    seen: set[int] = set()
    for path, owner in _cells(cell):
        for attribute, value in _members(owner).items():
            if isinstance(value, Primitive) and id(value) not in seen:
                seen.add(id(value))
                value.add_prim_attr(_TAG, len(tagged))
                owners[len(tagged)] = (path, attribute)
                tagged.append(value)
    try:
        yield owners
    finally:
        for primitive in tagged:
            primitive.del_prim_attr(_TAG)


def _cells(cell: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for dotted, owner in cell.cells_and_names():
        yield tuple(dotted.split(".")) if dotted else (), owner


def _members(owner: Any) -> dict[str, Any]:
    return {**owner.__dict__.get("_primitives", {}), **owner.__dict__}
