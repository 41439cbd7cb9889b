"""Ranks that come together, and ranks that do not; what has to wait within a program."""

from typing import Any

import pytest

from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.proof.ordering import Meeting, order_collectives, require_meetings
from ms_symtensor.errors import ExecutionError


def meeting(name: str, *ranks: int) -> Meeting:
    return Meeting(name, "AllReduce", ranks)


def test_one_order_on_all_ranks_goes_through() -> None:
    both, left, right = meeting("both", 0, 1, 2), meeting("left", 0, 1), meeting("right", 1, 2)
    require_meetings([(left, both), (left, right, both), (right, both)])


def test_ranks_that_wait_for_each_other_are_named() -> None:
    first, second = meeting("first", 0, 1), meeting("second", 0, 1, 2)
    with pytest.raises(ExecutionError, match=r"for ever: rank 0 in first with ranks \(0, 1\); rank 1 in second"):
        require_meetings([(first, second), (second, first), (second,)])


def test_a_rank_that_never_comes_is_noticed() -> None:
    with pytest.raises(ExecutionError, match="rank 0 in sum"):
        require_meetings([(meeting("sum", 0, 1),), ()])


def program(*calls: tuple[str, str, str]) -> Any:
    """Calls of (output, operator, operands) on tensors of two elements, in MindSpore's protobuf; all have group `all`."""
    import_mindspore()
    from mindspore.train import mind_ir_pb2

    model = mind_ir_pb2.ModelProto()
    for name in sorted({kind for _, kind, _ in calls}):
        primitive = model.primitives.add()
        primitive.name = primitive.op_type = name
        group = primitive.attribute.add()
        group.name, group.s = "group", b"all"
    for name in ("sum", "x"):
        parameter = model.graph.parameter.add()
        parameter.name = name
        parameter.dims.append(2)
    for output, kind, operands in calls:
        node = model.graph.node.add()
        node.name, node.op_type = output, f"REF::{kind}"
        node.output.append(output)
        node.input.extend(operands.split())
        shape = node.attribute.add()
        shape.name = "shape"
        shape.tensors.add().dims.append(2)
    return model


def test_sums_in_place_and_collectives_wait_for_the_one_before() -> None:
    model = program(
        ("a", "AssignAdd", "sum x"), ("b", "AssignAdd", "sum x"), ("twice", "Add", "x x"), ("c", "AllReduce", "twice")
    )
    (found,) = order_collectives(model, {"all": (0, 1)})
    assert (found.kind, found.ranks) == ("AllReduce", (0, 1))
    by_name = {node.name: node for node in model.graph.node}
    assert list(by_name["a"].input) == ["sum", "x"]
    assert by_name["b"].input[0] == "sum"  # what it changes stays its operand; the addend waits
    assert list(by_name[by_name["b"].input[1]].input) == ["x", "a"]
    assert list(by_name[by_name["c"].input[0]].input) == ["twice", "b"]
    assert list(by_name["twice"].input) == ["x", "x"]


def test_a_constant_that_is_added_waits_too() -> None:
    """As the optimizer counts its steps."""
    model = program(("a", "AssignAdd", "sum x"), ("b", "AssignAdd", "sum one"))
    constant = type(model.graph.node[0])()
    constant.name = "one"
    constant.op_type = "Constant"
    constant.output.append("one")
    constant.attribute.add().tensors.add().dims.append(2)
    model.graph.node.insert(0, constant)
    assert order_collectives(model, {}) == ()
    by_name = {node.name: node for node in model.graph.node}
    waits = by_name[by_name["b"].input[1]]
    assert list(waits.input) == ["one", "a"]
    assert list(waits.attribute[0].tensors[0].dims) == [2]
