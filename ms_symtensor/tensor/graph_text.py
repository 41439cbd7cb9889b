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

    def once(value: Any, to_data: Callable[[Any], Any]) -> str:
        if (text := known.get(id(value))) is None:
            text = known[id(value)] = _json(to_data(value))
        return text

    def source_of(source: Source) -> str:
        if isinstance(source, OpOutput):
            index = f'"index": {source.index}, ' if source.index else ""
            return f'{{{index}"op": {quoted(source.op)}}}'
        if isinstance(source, ParameterRef):
            return f'{{"parameter": {quoted(source.name)}}}'
        return once(source, source_to_json)

    def text_of(op: Op) -> str:
        if op.body is not None or op.block is None:
            return _json(op_to_json(op))
        fields = [f'"attributes": {once(op.attributes, attributes_to_json)}'] if op.attributes else []
        fields.append(f'"block": {quoted(op.block)}')
        if op.cell:
            fields.append(f'"cell": [{", ".join(map(quoted, op.cell))}]')
        fields.append(f'"inputs": [{", ".join(map(source_of, op.inputs))}], "name": {quoted(op.name)}')
        fields.append(f'"outputs": {once(op.outputs, types_to_json)}')
        if op.primitive:
            fields.append(f'"primitive": {quoted(op.primitive)}')
        return "{" + ", ".join(fields) + f', "type": {quoted(op.type)}' + "}"

    around = to_json(Graph(graph.name, graph.inputs, graph.parameters, (), graph.output, graph.attributes))
    ops = {"ops": "[" + ", ".join(map(text_of, graph.ops)) + "]"}
    return "{" + ", ".join(f"{quoted(key)}: {ops.get(key) or _json(around[key])}" for key in sorted(around)) + "}"


def _json(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
