"""The canonical text of a graph: the JSON of `graph_file.to_json` with sorted keys, of which its hash is made."""

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from ms_symtensor.tensor.graph import Graph, Op, OpOutput, ParameterRef, Source
from ms_symtensor.tensor.graph_file import attributes_to_json, op_to_json, source_to_json, to_json, types_to_json


def canonical_text(graph: Graph) -> str:
    """What `json.dumps(to_json(graph), sort_keys=True)` gives, operators in a third of the time.

    Those of identical blocks share their attributes, types and constants, which are written down once.
    """
    known: dict[int, str] = {}
    made: dict[str, str] = {}  # the first output of every operator
    cells: dict[tuple[str, ...], str] = {}

    def once(value: Any, to_data: Callable[[Any], Any]) -> str:
        if (text := known.get(id(value))) is None:
            text = known[id(value)] = _json(to_data(value))
        return text

    def cell_of(op: Op) -> str:
        if (text := cells.get(op.cell)) is None:
            text = cells[op.cell] = f'"cell": [{", ".join(map(quoted, op.cell))}], ' if op.cell else ""
        return text

    def source_of(source: Source) -> str:
        if isinstance(source, OpOutput):
            return made[source.op] if not source.index else f'{{"index": {source.index}, "op": {quoted(source.op)}}}'
        if isinstance(source, ParameterRef):
            return f'{{"parameter": {quoted(source.name)}}}'
        return once(source, source_to_json)

    def text_of(op: Op) -> str:
        name = quoted(op.name)
        made[op.name] = f'{{"op": {name}}}'
        if op.body is not None or op.block is None:
            return _json(op_to_json(op))
        attributes = f'"attributes": {once(op.attributes, attributes_to_json)}, ' if op.attributes else ""
        primitive = f'"primitive": {quoted(op.primitive)}, ' if op.primitive else ""
        return (
            f'{{{attributes}"block": {quoted(op.block)}, {cell_of(op)}"inputs": [{", ".join(map(source_of, op.inputs))}], '
            f'"name": {name}, "outputs": {once(op.outputs, types_to_json)}, {primitive}"type": {quoted(op.type)}}}'
        )

    around = to_json(Graph(graph.name, graph.inputs, graph.parameters, (), graph.output, graph.attributes))
    ops = {"ops": "[" + ", ".join(map(text_of, graph.ops)) + "]"}
    return "{" + ", ".join(f"{quoted(key)}: {ops.get(key) or _json(around[key])}" for key in sorted(around)) + "}"


def _json(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
