"""Capture: the operator graph of a network, with the very names that MindSpore uses, and no weight materialised."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ms_symtensor.bridge.capture.blocks import block_of_ops, block_of_path, in_block_order
from ms_symtensor.bridge.capture.copies import without_copies, without_generators
from ms_symtensor.bridge.capture.element_types import with_types_of_bodies
from ms_symtensor.bridge.capture.given import require_forward, require_network
from ms_symtensor.bridge.capture.idle_reshapes import with_idle_reshapes
from ms_symtensor.bridge.capture.in_place import require_one_name
from ms_symtensor.bridge.capture.lone_blocks import without_lone_blocks
from ms_symtensor.bridge.capture.merging import merged, unmerged
from ms_symtensor.bridge.capture.morph import Body, body_of, is_morph, opaque
from ms_symtensor.bridge.capture.own_backward import read_by
from ms_symtensor.bridge.capture.scopes import fresh_scopes
from ms_symtensor.bridge.compiler.executor import (
    front_end,
    lazily_inlined,
    parameters_of_shared_blocks,
    without_lazy_inline,
)
from ms_symtensor.bridge.compiler.host import ascend_target, import_mindspore
from ms_symtensor.bridge.compiler.mindir import read_graph
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.parallel_context import stand_alone_context
from ms_symtensor.bridge.compiler.search_mode import capturing
from ms_symtensor.bridge.compiler.stop_gradient import STAND_IN, visible
from ms_symtensor.errors import CompilerError, InputError
from ms_symtensor.tensor.copies import COPIES
from ms_symtensor.tensor.graph import BPROP, LAZY_INLINE, Attribute, Graph, Op, Parameter, ParameterRef, flat
from ms_symtensor.tensor.names import scope_of

_TAG = "symtensor_id"  # a primitive attribute, present during a capture only
_LEFT_OUT = {_TAG, "input_names", "output_names", "in_strategy", "out_strategy", "self_define_shard"}
# What a partitioned compile leaves on primitives that all networks of the process share (those of `ops.masked_fill`, …).
_LEFT_OUT |= {"gen_strategy", "keep_alive"}
# MindSpore merges equal operators on equal inputs, and a tag would keep it from that: these take no strategy anyway.
_UNTAGGED = {"Cast", STAND_IN}

Owner = tuple[tuple[str, ...], str]  # path of the cell, attribute of the primitive


def capture(cell: Any, *inputs: Any, name: str | None = None, lone_blocks: bool = False) -> Graph:
    """The operator graph of `cell(*inputs)`, a forward network with its loss, as it is in training.

    Operators of cells that are decorated with `@lazy_inline` are included. Cell and process are as they were afterwards.

    Args:
        cell: The forward network with its loss.
        inputs: Global shapes; they may be without values: `Tensor(shape=(2, 4096), dtype=mindspore.int32, init=Zero())`.
        name: A name for the graph; None: that of the cell's class.
        lone_blocks: Cells of lists in which nothing repeats are blocks too, which a user may recompute by hand.

    Returns:
        The graph, frozen: operators, parameters, types.

    Raises:
        CompilerError: MindSpore rejects the network; the message has the line of it.
        InputError: The network reads a parameter of no cell or computes gradients, inputs have dynamic shapes, or this is no
            cell.
    """
    import_mindspore()
    require_network(cell, inputs)
    shared, inlined = parameters_of_shared_blocks(cell), lazily_inlined(cell)
    with ExitStack() as stack:
        stack.enter_context(ascend_target())
        stack.enter_context(stand_alone_context())
        stack.enter_context(capturing())
        stack.enter_context(_graph_mode())
        stack.enter_context(_training_mode(cell))
        stack.enter_context(without_lazy_inline(cell))
        stack.enter_context(fresh_scopes(cell))  # names without the marks of recompute, which is a plan's to choose
        stack.enter_context(opaque([p for _, _, p in _primitives(cell)]))
        stack.enter_context(visible([c for _, c in _cells(cell)]))
        owners = stack.enter_context(_tagged_primitives(cell))
        stack.enter_context(unmerged([p for _, _, p in _primitives(cell)]))
        model, _ = front_end(cell, inputs, "capture")
    written = without_generators(read_graph(model))
    require_one_name(written)
    trained = {p.name for p in cell.get_parameters() if p.requires_grad}
    graph, copies = merged(without_copies(written), trained)
    types = dict(graph.parameters)
    require_forward(cell, graph)
    _require_own(cell, graph)
    by_node = {node.name: _owner(node, owners) for node in graph.nodes}
    custom = {path: read_by(owner.bprop) for path, owner in _cells(cell) if hasattr(owner, "bprop")}
    roaming = _in_several_blocks(cell)
    certain = {node: () if owner in roaming else owner[0] for node, owner in by_node.items()}
    blocks = block_of_ops(graph.nodes, certain, _homes(cell))
    with visible([c for _, c in _cells(cell)]):
        bodies = _bodies(cell, graph, by_node)
    captured = Graph(
        name=name or type(cell).__name__,
        inputs=graph.inputs,
        parameters=tuple(
            Parameter(p.name, types[p.name], bool(p.requires_grad), bool(p.parallel_optimizer), p.name in shared)
            for p in cell.get_parameters()
            if p.name in types
        ),
        ops=tuple(
            Op(
                name=node.name,
                type=node.type,
                inputs=node.inputs,
                outputs=node.outputs,
                attributes=_attributes(node, bodies, _backward_of(node, by_node[node.name][0], custom)),
                cell=by_node[node.name][0],
                primitive=by_node[node.name][1],
                block=blocks[node.name],
                body=bodies[node.name][1] if node.name in bodies else None,
            )
            for node in in_block_order(graph.nodes, blocks)
        ),
        output=graph.output,
        attributes=(
            *(((LAZY_INLINE, " ".join(inlined)),) if inlined and bodies else ()),
            *(((COPIES, copies),) if copies else ()),
        ),
    )
    captured = with_idle_reshapes(with_types_of_bodies(captured) if bodies else captured)
    return captured if lone_blocks else without_lone_blocks(captured)


def _require_own(cell: Any, graph: NodeGraph) -> None:
    """InputError if an operator reads a parameter that no cell of the network owns."""
    own = {p.name for p in cell.get_parameters()}
    for node in graph.nodes:
        read = [s.name for s in flat(node.inputs) if isinstance(s, ParameterRef) and s.name not in own]
        if read:
            raise InputError(
                f"{node.name} ({node.type}) reads parameter {read[0]!r}, which no cell of {type(cell).__name__} owns: make it an"
                " attribute of a cell, or a Tensor"
            )


def _homes(cell: Any) -> dict[str, tuple[str, ...]]:
    """The path of the first cell that owns each parameter: its name need not tell."""
    found: dict[str, tuple[str, ...]] = {}
    for path, owner in _cells(cell):
        for parameter in owner.get_parameters(expand=False):
            found.setdefault(parameter.name, path)
    return found


def primitive_of(cell: Any, op: Op) -> Any:
    """The Python primitive behind `op` of the graph captured from `cell`, which takes `shard()`; None if it has none.

    CompilerError if `cell` has no such primitive: it is not the network that was captured.
    """
    return _primitive(dict(_cells(cell)), type(cell).__name__, op) if op.primitive else None


def primitives_of(cell: Any, graph: Graph) -> dict[str, Any]:
    """`primitive_of` for all operators of `graph` that have one, by operator name."""
    cells = dict(_cells(cell))
    return {op.name: _primitive(cells, type(cell).__name__, op) for op in graph.ops if op.primitive}


def _primitive(cells: dict[tuple[str, ...], Any], network: str, op: Op) -> Any:
    primitive = _members(cells[op.cell]).get(op.primitive) if op.cell in cells else None
    if getattr(primitive, "name", None) != op.type:
        place = ".".join((*op.cell, op.primitive))
        raise CompilerError(f"{network} has no {op.type} at {place}: give the network that the graph was captured from")
    return primitive


def _owner(node: Node, owners: list[Owner]) -> Owner:
    tag = node.attribute(_TAG)
    return owners[tag] if isinstance(tag, int) and 0 <= tag < len(owners) else ((), "")


def _attributes(
    node: Node, bodies: dict[str, Body], own_backward: list[tuple[str, Attribute]]
) -> tuple[tuple[str, Attribute], ...]:
    layouts = bodies[node.name][0] if node.name in bodies else ()
    return tuple(sorted([*(a for a in node.attributes if a[0] not in _LEFT_OUT), *layouts, *own_backward]))


def _backward_of(
    node: Node, owner: tuple[str, ...], custom: Mapping[tuple[str, ...], tuple[str, ...]]
) -> list[tuple[str, Attribute]]:
    """The attributes that tell the cell with a backward pass of its own (`bprop`) that `node` is in; `custom`: all such cells by
    path, and what they read.
    """
    path = owner or scope_of(node.name)
    around = (path[:depth] for depth in range(len(path) + 1))
    found = next((cell for cell in around if cell in custom), None)
    return [] if found is None else [(BPROP, ".".join(found)), *((name, True) for name in custom[found])]


def _bodies(cell: Any, graph: NodeGraph, owners: dict[str, Owner]) -> dict[str, Body]:
    """Layouts and body of every Morph in `graph`, by name."""
    primitives = {(path, attribute): p for path, attribute, p in _primitives(cell) if is_morph(p)}
    morphs = [n for n in graph.nodes if owners[n.name] in primitives]
    known: dict[tuple, Body] = {}
    found = {}
    for node in morphs:
        primitive, given = primitives[owners[node.name]], tuple(graph.type_of(s) for s in node.inputs)
        key = (id(primitive), given, tuple(s for s, t in zip(node.inputs, given, strict=True) if t is None))
        if key not in known:
            known[key] = body_of(primitive, node, given)
        found[node.name] = known[key]
    return found


@contextmanager
def _tagged_primitives(cell: Any) -> Iterator[list[Owner]]:
    """Every primitive that a cell owns carries a number while this is open, and so do its operators in the graph."""
    owners: list[Owner] = []
    tagged: list[Any] = []
    for path, attribute, value in _primitives(cell):
        if value.name not in _UNTAGGED:
            value.add_prim_attr(_TAG, len(tagged))
            owners.append((path, attribute))
            tagged.append(value)
    try:
        yield owners
    finally:
        for primitive in tagged:
            primitive.del_prim_attr(_TAG)


@contextmanager
def _graph_mode() -> Iterator[None]:
    from mindspore import context

    mode = context.get_context("mode")
    context.set_context(mode=context.GRAPH_MODE)
    try:
        yield
    finally:
        context.set_context(mode=mode)


@contextmanager
def _training_mode(cell: Any) -> Iterator[None]:
    before = [(owner, bool(owner.training)) for _, owner in _cells(cell)]
    cell.set_train(True)
    try:
        yield
    finally:
        for owner, training in before:  # parents come before their children, whose mode they set too
            if bool(owner.training) != training:
                owner.set_train(training)


def _primitives(cell: Any) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """The primitives that `cell` and its children own, each once: path of the owner, attribute, primitive."""
    from mindspore.ops import Primitive

    seen: set[int] = set()
    for path, owner in _cells(cell):
        for attribute, value in _members(owner).items():
            if isinstance(value, Primitive) and id(value) not in seen:
                seen.add(id(value))
                yield path, attribute, value


def _in_several_blocks(cell: Any) -> frozenset[Owner]:
    """The first owners of primitives that cells of several blocks own: they do not tell where an operator is."""
    from mindspore.ops import Primitive

    first: dict[int, Owner] = {}
    found = set()
    for path, owner in _cells(cell):
        for attribute, value in _members(owner).items():
            if isinstance(value, Primitive):
                known = first.setdefault(id(value), (path, attribute))
                if block_of_path(known[0]) != block_of_path(path):
                    found.add(known)
    return frozenset(found)


def _cells(cell: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    for dotted, owner in cell.cells_and_names():
        yield tuple(dotted.split(".")) if dotted else (), owner


def _members(owner: Any) -> dict[str, Any]:
    return {**owner.__dict__.get("_primitives", {}), **owner.__dict__}
