"""What a report says of operators that cannot be cut freely."""

from dataclasses import replace

from ms_symtensor.report.bound_operators import bound_operators_text
from tests.strategy.plans import small_graph


def test_a_network_whose_operators_have_their_own_primitives_has_none():
    assert bound_operators_text(small_graph("llama2_7b", attention="self")) == ""


def test_operators_on_the_fly_and_shared_primitives_are_named():
    graph = small_graph("llama2_7b", attention="self")
    ops = []
    for op in graph.ops:
        if op.type == "Softmax":
            op = replace(op, cell=(), primitive="")
        elif op.type == "Transpose":
            op = replace(op, primitive="transpose", cell=op.cell[:2])
        ops.append(op)
    first, second, third = bound_operators_text(replace(graph, ops=tuple(ops))).splitlines()
    assert first == "Bound by how the network is written"
    assert second.startswith("  2 operators are functional") and second.endswith(": 2 Softmax")
    assert "one strategy" in third and "layers.0.transpose (" in third and "layers.1" not in third


def test_a_look_up_by_64_bit_indices_is_named():
    graph = small_graph("llama2_7b")
    wide = tuple((name, replace(kind, dtype="int64") if "int" in kind.dtype else kind) for name, kind in graph.inputs)
    _, line = bound_operators_text(replace(graph, inputs=wide)).splitlines()
    assert "for 32-bit indices alone" in line and "word_embedding" in line
