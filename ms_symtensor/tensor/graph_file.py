"""Graphs as JSON files, so that planning runs where no mindspore is installed."""

import json
import os
from pathlib import Path
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import parsed_json
from ms_symtensor.files.writing import write_file
from ms_symtensor.tensor.copies import with_copies
from ms_symtensor.tensor.graph import (
    Attribute,
    Constant,
    Graph,
    InputRef,
    Op,
    OpOutput,
    Parameter,
    ParameterRef,
    Source,
    TensorType,
    TupleInput,
)

FORMAT = "symtensor-graph"
VERSION = 1
_MOST = (1 << 64) - 1
"""MindSpore has no larger whole numbers."""


def to_json(graph: Graph) -> dict[str, Any]:
    """`graph` as plain JSON data; equal graphs give equal data."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "inputs": [{"name": name, "type": _type_to_json(tensor)} for name, tensor in graph.inputs],
        "parameters": [_parameter_to_json(p) for p in graph.parameters],
        "ops": [op_to_json(op) for op in graph.ops],
        "output": source_to_json(graph.output),
        "attributes": attributes_to_json(graph.attributes),
    }


def from_json(data: Any, origin: str = "the data") -> Graph:
    """The graph behind `to_json`'s data; InputError, naming `origin`, if it is something else."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(
            f"{origin} is not a graph of ms_symtensor (its format is not {FORMAT}): capture the network, or give a config.json"
            " (it has a model_type)"
        )
    version = data.get("version")
    if version != VERSION:
        remedy = (
            "upgrade ms_symtensor" if isinstance(version, int) and version > VERSION else "capture the network again"
        )
        raise InputError(f"{origin} has graph format version {version!r}, this ms_symtensor reads {VERSION}: {remedy}")
    try:
        graph = Graph(
            name=_text(data["name"]),
            inputs=tuple((_text(item["name"]), _type_from_json(item["type"])) for item in data["inputs"]),
            parameters=tuple(map(_parameter_from_json, data["parameters"])),
            ops=tuple(_op_from_json(op) for op in data["ops"]),
            output=_source_from_json(data["output"]),
            attributes=tuple((_text(name), _attribute_from_json(value)) for name, value in data["attributes"]),
        )
        _check(graph)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{origin} is a damaged graph ({what}): capture the network again") from error
    return graph


_PARAMETER_FLAGS = {"optimizer_shards": True, "in_shared_block": False}
"""Flags that are written only where they differ from these: graphs without them keep their files and hashes."""


def _parameter_to_json(parameter: Parameter) -> dict[str, Any]:
    flags = {name: getattr(parameter, name) for name in _PARAMETER_FLAGS}
    return {
        "name": parameter.name,
        "type": _type_to_json(parameter.type),
        "requires_grad": parameter.requires_grad,
        **{name: value for name, value in flags.items() if value != _PARAMETER_FLAGS[name]},
    }


def _parameter_from_json(data: Any) -> Parameter:
    flags = {name: bool(data.get(name, usual)) for name, usual in _PARAMETER_FLAGS.items()}
    return Parameter(_text(data["name"]), _type_from_json(data["type"]), bool(data["requires_grad"]), **flags)


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a file: all of it or nothing.

    Args:
        graph: What `capture` gives.
        path: The file, JSON.

    Raises:
        InputError: The file cannot be written.
    """
    if not (isinstance(graph, Graph) and isinstance(path, str | os.PathLike)):
        found = ", ".join(type(given).__name__ for given in (graph, path))
        raise InputError(f"save_graph takes (graph, path), and was given ({found})")
    write_file(path, json.dumps(to_json(graph), indent=1) + "\n")


def load(path: str | os.PathLike[str]) -> Graph:
    """The graph that `save_graph` or `symtensor capture` wrote.

    Args:
        path: The file.

    Returns:
        The graph.

    Raises:
        InputError: The file cannot be read, is truncated, foreign or too new.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"load_graph takes the path of a file, and was given {path!r}")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the graph {path} ({error.strerror}): check the path") from error
    return read(content, path)


def read(content: bytes, path: str | os.PathLike[str]) -> Graph:
    """The graph in `content`, that of the file `path`; InputError as of `load`."""
    return from_json(parsed_json(content, path, "a graph of ms_symtensor", "capture the network again"), str(path))


def op_to_json(op: Op) -> dict[str, Any]:
    """An operator as plain JSON data."""
    data: dict[str, Any] = {
        "name": op.name,
        "type": op.type,
        "inputs": [source_to_json(source) for source in op.inputs],
        "outputs": types_to_json(op.outputs),
    }
    if op.attributes:
        data["attributes"] = attributes_to_json(op.attributes)
    if op.cell:
        data["cell"] = list(op.cell)
    if op.primitive:
        data["primitive"] = op.primitive
    if op.block is not None:
        data["block"] = op.block
    if op.body is not None:
        data["body"] = to_json(op.body)
    return data


def _op_from_json(data: dict[str, Any]) -> Op:
    block = data.get("block")
    return Op(
        name=_text(data["name"]),
        type=_text(data["type"]),
        inputs=tuple(_source_from_json(source) for source in data["inputs"]),
        outputs=tuple(_type_from_json(tensor) for tensor in data["outputs"]),
        attributes=tuple((_text(name), _attribute_from_json(value)) for name, value in data.get("attributes", ())),
        cell=tuple(_text(part) for part in data.get("cell", ())),
        primitive=_text(data.get("primitive", "")),
        block=None if block is None else _text(block),
        body=from_json(data["body"], f"the body of {data['name']}") if "body" in data else None,
    )


def source_to_json(source: Source) -> Any:
    """What an operator reads, as plain JSON data."""
    match source:
        case OpOutput(op, index):
            return {"op": op, "index": index} if index else {"op": op}
        case ParameterRef(name):
            return {"parameter": name}
        case InputRef(name):
            return {"input": name}
        case Constant(value, tensor):
            return {"constant": _attribute_to_json(value)} | ({"tensor": _type_to_json(tensor)} if tensor else {})
        case TupleInput(items):
            return {"tuple": [source_to_json(item) for item in items]}


def _source_from_json(data: dict[str, Any]) -> Source:
    if "op" in data:
        return OpOutput(_text(data["op"]), _integer(data.get("index", 0)))
    if "parameter" in data:
        return ParameterRef(_text(data["parameter"]))
    if "input" in data:
        return InputRef(_text(data["input"]))
    if "tuple" in data:
        return TupleInput(tuple(_source_from_json(item) for item in data["tuple"]))
    tensor = data.get("tensor")
    return Constant(_attribute_from_json(data["constant"]), _type_from_json(tensor) if tensor else None)


def _type_to_json(tensor: TensorType) -> list[Any]:
    return [tensor.dtype, list(tensor.shape)]


def types_to_json(tensors: tuple[TensorType, ...]) -> list[Any]:
    """Tensor types as plain JSON data."""
    return [_type_to_json(tensor) for tensor in tensors]


def attributes_to_json(attributes: tuple[tuple[str, Attribute], ...]) -> list[Any]:
    """Attributes of an operator or a graph as plain JSON data."""
    return [[name, _attribute_to_json(value)] for name, value in attributes]


def _type_from_json(data: list[Any]) -> TensorType:
    dtype, shape = data
    return TensorType(tuple(_integer(size) for size in shape), _text(dtype))


def _attribute_to_json(value: Attribute) -> Any:
    if isinstance(value, tuple):
        return [_attribute_to_json(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}  # JSON has no such numbers
    return value


def _attribute_from_json(data: Any) -> Attribute:
    if isinstance(data, list):
        return tuple(_attribute_from_json(item) for item in data)
    if isinstance(data, dict):
        return float(data["float"])
    if isinstance(data, int) and not isinstance(data, bool):
        return _integer(data)
    if data is None or isinstance(data, bool | float | str):
        return data
    raise ValueError(f"unexpected value {_short(data)}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, found {_short(value)}")
    value.encode()  # halves of a character (surrogates) cannot be written again
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MOST:
        raise ValueError(f"expected a whole number, found {_short(value)}")
    return value


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _check(graph: Graph) -> None:
    """Names are unique, and every source exists before it is used."""
    inputs, parameters = set(graph.input_types), set(graph.parameter_by_name)
    if len(inputs) != len(graph.inputs) or len(parameters) != len(graph.parameters):
        raise ValueError("two inputs or parameters share a name")
    outputs: dict[str, int] = {}

    def check(source: Source) -> None:
        match source:
            case OpOutput(op, index) if not 0 <= index < outputs.get(op, 0):
                raise ValueError(f"output {index} of {op!r} is used before it exists")
            case ParameterRef(name) if name not in parameters:
                raise ValueError(f"parameter {name!r} does not exist")
            case InputRef(name) if name not in inputs:
                raise ValueError(f"input {name!r} does not exist")
            case TupleInput(items):
                for item in items:
                    check(item)

    for op in graph.ops:
        for source in op.inputs:
            check(source)
        if op.name in outputs:
            raise ValueError(f"two operators are named {op.name!r}")
        outputs[op.name] = len(op.outputs)
    check(graph.output)
    with_copies(graph)
