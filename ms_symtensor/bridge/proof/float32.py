"""A program in float32 throughout, so that what is left of a difference is an error and not rounding."""

from typing import Any

import numpy

_HALVES = {"FLOAT16", "BFLOAT16"}
_HALF_TYPE_IDS, _FLOAT32_TYPE_ID = {42, 45}, 43  # MindSpore's numbers of element types, as Cast takes them
_TAKES_TYPE_ID = {"Cast": 1}
"""Operators with an element type among their operands, and its position."""


def to_float32(model: Any) -> bool:
    """Make every half-precision tensor of `model` (a `mind_ir_pb2.ModelProto`) float32, in place.

    Tells whether there was one.
    """
    graphs = [model.graph, *model.functions]
    protos = [*graphs, *model.primitives]
    found = any([_convert(proto) for proto in protos])
    return found | _retarget_casts(model, graphs)


def _convert(proto: Any) -> bool:
    """Every TensorProto inside `proto`, whatever message holds it."""
    if proto.DESCRIPTOR.name == "TensorProto":
        return _convert_tensor(proto)
    found = False
    for field, value in proto.ListFields():
        if field.message_type is not None:
            for item in (value,) if hasattr(value, "ListFields") else value:
                found |= _convert(item)
    return found


def _convert_tensor(tensor: Any) -> bool:
    kinds = tensor.DataType
    if kinds.Name(tensor.data_type) not in _HALVES:
        return False
    if tensor.raw_data:
        if tensor.data_type == kinds.Value("FLOAT16"):
            values = numpy.frombuffer(tensor.raw_data, numpy.float16).astype(numpy.float32)
        else:  # bfloat16 is the upper half of a float32
            values = (numpy.frombuffer(tensor.raw_data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        tensor.raw_data = values.tobytes()
    tensor.data_type = kinds.Value("FLOAT")
    return True


def _retarget_casts(model: Any, graphs: list[Any]) -> bool:
    """Casts to a half-precision type become casts to float32. Constants are shared, so a new one serves them."""
    kinds = {primitive.name: primitive.op_type for primitive in model.primitives}
    constants = {node.output[0]: node for graph in graphs for node in graph.node if node.op_type == "Constant"}
    found = False
    for graph in graphs:
        added: list[Any] = []
        for node in graph.node:
            position = _TAKES_TYPE_ID.get(kinds.get(node.op_type.removeprefix("REF::"), ""))
            if position is None or position >= len(node.input):
                continue
            constant = constants.get(node.input[position])
            if constant is None or constant.attribute[0].i not in _HALF_TYPE_IDS:
                continue
            if not added:
                fresh = type(node)()
                fresh.CopyFrom(constant)
                fresh.name = fresh.output[0] = f"symtensor_float32_{graph.name}"
                fresh.attribute[0].i = _FLOAT32_TYPE_ID
                added.append(fresh)
            node.input[position] = added[0].output[0]
            found = True
        for fresh in added:
            graph.node.insert(0, fresh)
    return found
