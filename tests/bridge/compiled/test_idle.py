"""Collectives of a compiled step that move zeros."""

from ms_symtensor.bridge.compiled.idle import collectives_of_zeros
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.tensor.graph import Constant, InputRef, OpOutput, TensorType

ONE = TensorType((4,), "float32")
AGAIN = (("duplicated", True),)


def node(name: str, kind: str, *inputs, attributes=()) -> Node:
    return Node(name=name, type=kind, inputs=inputs, outputs=(ONE,), attributes=attributes, instance="")


def of(*names: str) -> tuple[OpOutput, ...]:
    return tuple(OpOutput(name) for name in names)


def test_what_no_gradient_of_the_loss_reads_moves_zeros():
    """The block returns a mean that the loss does not depend on: its gradient is of a constant, and reads a gather made again."""
    x, sens = InputRef("x"), InputRef("sens")
    nodes = (
        node("gather", "AllGather", x),
        node("product", "MatMul", *of("gather")),
        node("Gradients/loss", "Mul", sens, *of("product")),
        node("gather_again", "AllGather", x, attributes=AGAIN),
        node("mean_again", "AllGather", x, attributes=AGAIN),
        node("square_again", "Square", *of("mean_again"), attributes=AGAIN),
        node("Gradients/zero", "AllReduce", Constant(tensor=ONE)),
        node("Gradients/mean", "Mul", *of("Gradients/zero", "square_again")),
        node("Gradients/product", "MatMul", *of("Gradients/loss", "gather_again")),
        node("Gradients/sum", "AllReduce", *of("Gradients/product")),
    )
    graph = NodeGraph(nodes, (("x", ONE), ("sens", ONE)), (), OpOutput("Gradients/sum"))
    program = CompiledProgram(graph, 8, 0, ParallelConfig(), (), {}, 0.0, "")
    assert collectives_of_zeros(program) == {"mean_again", "Gradients/zero"}
