"""Copies of tensors, which are made after a program is partitioned."""

from ms_symtensor.bridge.capture.copies import without_copies
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.tensor.graph import InputRef, OpOutput, ParameterRef, Source, TensorType, TupleInput

KIND = TensorType((8, 8), "float32")


def node(name: str, type_: str, *inputs: Source) -> Node:
    return Node(name, type_, "", inputs, (KIND,), ())


def graph(*nodes: Node) -> NodeGraph:
    return NodeGraph(nodes, (("x", KIND),), (("w", KIND),), OpOutput(nodes[-1].name))


def test_a_copy_of_a_parameter_is_the_parameter():
    copy = node("copy", "TensorMove", ParameterRef("w"))
    product = node("product", "MatMul", InputRef("x"), OpOutput("copy"))
    joined = node("joined", "Concat", TupleInput((OpOutput("product"), OpOutput("copy"))))
    found = without_copies(graph(copy, product, joined))
    assert [n.name for n in found.nodes] == ["product", "joined"]
    assert found.nodes[0].inputs == (InputRef("x"), ParameterRef("w"))
    assert found.nodes[1].inputs == (TupleInput((OpOutput("product"), ParameterRef("w"))),)


def test_a_copy_of_a_copy_is_the_tensor():
    copies = node("first", "TensorMove", InputRef("x")), node("second", "TensorMove", OpOutput("first"))
    assert without_copies(graph(*copies, node("relu", "ReLU", OpOutput("second")))).nodes[0].inputs == (InputRef("x"),)
