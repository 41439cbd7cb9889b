"""The forward pass in the order in which MindSpore lists it; that this is the order is shown where peaks are compared."""

from hypothesis import given
from hypothesis import strategies as st

from ms_symtensor.program.listing import depth_first
from ms_symtensor.program.program import Node, Phase, Role


def _node(kind, inputs, outputs, phase=Phase.FORWARD):
    return Node(kind, tuple(inputs), tuple(outputs), Role.WORK, phase, kind)


def test_the_move_of_a_first_input_stands_before_what_makes_the_second_one():
    nodes = [
        _node("MatMul", [0], [1]),
        _node("Exp", [0], [2]),
        _node("AllGather", [1], [3]),
        _node("AllGather", [2], [4]),
        _node("Sub", [3, 4], [5]),
    ]
    assert [n.outputs for n in depth_first(nodes)] == [(1,), (3,), (2,), (4,), (5,)]


def test_what_is_computed_later_stays_where_it_is():
    nodes = [
        _node("Exp", [0], [1]),
        _node("MatMul", [0], [2]),
        _node("ExpGrad", [1], [6], Phase.BACKWARD),
        _node("Mul", [2, 1], [3]),
    ]
    assert [n.outputs for n in depth_first(nodes)] == [(2,), (1,), (6,), (3,)]


@given(st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=30))
def test_every_node_stands_once_and_behind_what_it_reads(read):
    nodes = [_node("Add", sorted({t % (i + 1) for t in of}), [i + 1]) for i, of in enumerate(read)]
    listed = depth_first(nodes)
    assert sorted(n.outputs for n in listed) == sorted(n.outputs for n in nodes)
    made = {0}
    for node in listed:
        assert made.issuperset(node.inputs)
        made.update(node.outputs)
    assert depth_first(listed) == listed
