"""Equal operators on equal inputs: MindSpore merges them, but after it has differentiated, so that each has its own gradient.

A capture is never differentiated, and would show the one operator that they become. So they are kept apart for a capture, merged
here, and a note of who reads which copy goes with the graph.
"""

import gc
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.stop_gradient import STAND_IN
from ms_symtensor.garbage_collection import has_frozen
from ms_symtensor.tensor.copies import Copies, copy_name
from ms_symtensor.tensor.graph import Attribute, OpOutput, ParameterRef, Source, flat, replaced

_HIDDEN = "side_effect_hidden"  # what MindSpore's elimination of common sub-expressions leaves alone
_OURS = 1  # what primitives have there for a capture alone; those that MindSpore marks have True
_EFFECTS = ("side_effect_mem", "side_effect_io", "side_effect_backprop", _HIDDEN)
_ALIKE = {"Cast", STAND_IN}  # they lie as their input does: that they are several makes no difference
_LEFT_ALONE = {*_ALIKE, "Morph"}


@contextmanager
def unmerged(primitives: Iterable[Any]) -> Iterator[None]:
    """While open, MindSpore merges no operators of `primitives`, of its own modules, or of primitives that are made meanwhile.

    Those that only MindSpore's C++ makes (some Reshapes) are merged all the same.
    """
    from mindspore.ops import Primitive

    marked: list[Any] = []

    def mark(primitive: Any) -> None:
        if primitive.name not in _LEFT_ALONE and not any(name in primitive.attrs for name in _EFFECTS):
            primitive.add_prim_attr(_HIDDEN, _OURS)
            marked.append(primitive)

    made = Primitive.__init__

    def init(primitive: Any, *arguments: Any, **named: Any) -> None:
        made(primitive, *arguments, **named)
        _of_functions().add(primitive)
        mark(primitive)

    for primitive in {id(p): p for p in (*_of_functions(), *primitives)}.values():
        mark(primitive)
    Primitive.__init__ = init
    try:
        yield
    finally:
        Primitive.__init__ = made
        for primitive in marked:
            if primitive.attrs.get(_HIDDEN) is not True:
                primitive.del_prim_attr(_HIDDEN)


@lru_cache(maxsize=1)
def _of_functions() -> "weakref.WeakSet[Any]":
    """The primitives that are there when a network is first captured, and those that captures make."""
    from mindspore.ops import Primitive

    return weakref.WeakSet(one for one in _objects() if issubclass(type(one), Primitive))


def _objects() -> list[Any]:
    """All objects: Python lists none that is frozen (`gc.freeze`)."""
    is_frozen = has_frozen()
    gc.unfreeze()
    found = gc.get_objects()
    if is_frozen:
        gc.freeze()
    return found


def merged(graph: NodeGraph, trained: Collection[str]) -> tuple[NodeGraph, Copies]:
    """`graph` with equal operators merged; who reads which copy, of those that gradients of parameters `trained` go through."""
    ordered = any(node.after for node in graph.nodes)  # a parameter may have been changed between two readers
    same: dict[str, str] = {}
    known: dict[tuple, str] = {}
    copies: dict[str, list[str]] = {}
    trains: set[str] = set()
    kept = []
    for node in graph.nodes:
        node = replace(node, inputs=tuple(replaced(source, lambda s: _read(s, same)) for source in node.inputs))
        sources = tuple(flat(node.inputs))
        apart = not _may_merge(node) or (ordered and any(isinstance(s, ParameterRef) for s in sources))
        form = (node.name,) if apart else (node.type, node.attributes, node.inputs, node.outputs)
        first = known.setdefault(form, node.name)
        if first != node.name:
            same[node.name] = first
            if first in trains and node.type not in _ALIKE:
                copies.setdefault(first, []).append(node.name)
            continue
        if any(_trains(source, trains, trained) for source in sources):
            trains.add(node.name)
        kept.append(replace(node, attributes=tuple(a for a in node.attributes if not _is_ours(a))))
    output = replaced(graph.output, lambda s: _read(s, same))
    return replace(graph, nodes=tuple(kept), output=output), _noted(graph, same, copies)


def _noted(graph: NodeGraph, same: dict[str, str], copies: dict[str, list[str]]) -> Copies:
    named = {name: copy_name(first, i) for first, names in copies.items() for i, name in enumerate(names, 1)}
    readers: dict[str, list[str]] = {}
    for node in graph.nodes:
        name = named.get(node.name, same.get(node.name, node.name))
        for source in flat(node.inputs):
            if isinstance(source, OpOutput) and source.op in named:
                readers.setdefault(named[source.op], []).append(name)
    return tuple(
        (first, *(tuple(dict.fromkeys(readers.get(named[name], ()))) for name in names))
        for first, names in copies.items()
    )


def _trains(source: Source, trains: Collection[str], trained: Collection[str]) -> bool:
    if isinstance(source, OpOutput):
        return source.op in trains
    return isinstance(source, ParameterRef) and source.name in trained


def _may_merge(node: Node) -> bool:
    return node.type in _ALIKE or any(map(_is_ours, node.attributes))


def _is_ours(attribute: tuple[str, Attribute]) -> bool:
    return attribute[0] == _HIDDEN and attribute[1] is not True


def _read(source: Source, same: dict[str, str]) -> Source:
    if isinstance(source, OpOutput) and source.op in same:
        return replace(source, op=same[source.op])
    return source
