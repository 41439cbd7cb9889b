"""The order of a compiled stage, and what is alive in it, on programs small enough to count by hand."""

from ms_symtensor.bridge.compiled.compiled_stage_memory import compiled_stage_peak_B, execution_order
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.node_graph import Node, NodeGraph
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.tensor.graph import Constant, OpOutput, ParameterRef, TensorType

HUNDRED_B = TensorType((25,), "float32")


def node(name, kind, *reads, after=(), micro=None, recomputation=False):
    inputs = tuple(ParameterRef(r) if r.startswith("accu_grads") else OpOutput(r) for r in reads)
    marks = (*((("micro", micro),) if micro is not None else ()), *((("duplicated", True),) if recomputation else ()))
    return Node(name, kind, "", inputs, (HUNDRED_B,), (), marks, after)


def program(*nodes):
    graph = NodeGraph(nodes, (), (), Constant())
    return CompiledProgram(graph, 2, 0, ParallelConfig(), (), {}, 0.0, "")


def passes(number, *, after):
    """The forward and the backward pass of one micro-batch: an activation, its gradient, and a weight's."""
    return (
        node(f"forward{number}", "SiLU", micro=number, after=after[0]),
        node(f"Gradients/back{number}", "SiLUGrad", f"forward{number}", micro=number, after=after[1]),
    )


def sums(number):
    return (
        node(f"Gradients/weight{number}", "MatMul", f"forward{number}", micro=number),
        node(f"Gradients/add{number}", "AssignAdd", "accu_grads.w", f"Gradients/weight{number}"),
    )


def names(found):
    return [one.name.removeprefix("Gradients/") for one in execution_order(found)]


def test_control_edges_order_the_passes_and_weight_gradients_are_not_put_off():
    first, back_first = passes(0, after=((), ("forward1",)))
    second, back_second = passes(1, after=((), ("Gradients/back0",)))
    found = program(first, second, back_first, back_second, *sums(0), *sums(1))
    order = names(found)
    assert order.index("forward1") < order.index("back0") < order.index("back1")
    assert order.index("add0") < order.index("back1")


def test_what_is_transposed_for_the_gradient_of_a_weight_does_not_put_it_off():
    """As `Grad_Dense` is compiled: the gradient of the input is listed first."""
    found = program(
        node("forward", "SiLU", micro=0),
        node("Gradients/back", "SiLUGrad", micro=0, after=("forward",)),
        node("Gradients/input", "MatMulExt", "Gradients/back", micro=0),
        node("Gradients/shaped", "Reshape", "forward", micro=0),
        node("Gradients/transposed", "Transpose", "Gradients/shaped", micro=0),
        node("Gradients/weight", "MatMulExt", "Gradients/transposed", "Gradients/back", micro=0),
        node("Gradients/turned", "Transpose", "Gradients/weight", micro=0),
        node("Gradients/add", "AssignAdd", "accu_grads.w", "Gradients/turned"),
    )
    assert names(found) == ["forward", "back", "shaped", "transposed", "weight", "turned", "add", "input"]


def test_what_is_in_flight_counts():
    def peak_B(waits):
        first, back_first = passes(0, after=((), ("forward1",) if not waits else ()))
        second, back_second = passes(1, after=(("Gradients/back0",) if waits else (), ()))
        listed = (first, back_first, second, back_second) if waits else (first, second, back_first, back_second)
        return compiled_stage_peak_B(program(*listed, *sums(0), *sums(1)))

    assert peak_B(waits=True) == 200  # one activation and a gradient
    assert peak_B(waits=False) == 300


def test_copies_come_right_before_their_reader_and_wait_with_it():
    found = program(
        node("forward", "SiLU", micro=0),
        node("Gradients/arrives", "Receive", micro=0, after=("forward",)),
        node("recomputation", "SiLU", micro=0, recomputation=True, after=("Gradients/arrives",)),
        node("Gradients/back", "SiLUGrad", "recomputation", micro=0),
    )
    assert names(found) == ["forward", "arrives", "recomputation", "back"]


def test_what_nothing_but_copies_read_is_a_copy():
    """As a move that is recomputed in an interleaved stage, of a tensor that is kept: it has no mark."""
    found = program(
        node("sent", "Receive", micro=0),
        node("forward", "SiLU", "sent", micro=0),
        node("again", "AllGather", "forward", micro=0),
        node("Gradients/arrives", "Receive", micro=0, after=("forward",)),
        node("recomputation", "SiLU", "again", micro=0, recomputation=True, after=("Gradients/arrives",)),
        node("Gradients/back", "SiLUGrad", "recomputation", micro=0),
    )
    assert names(found) == ["sent", "forward", "arrives", "again", "recomputation", "back"]


def test_a_gathered_weight_is_of_no_micro_batch():
    """MindSpore marks its gather with the last one."""
    gather = Node("gather", "AllGather", "", (ParameterRef("w"),), (HUNDRED_B,), (), (("micro", 1),), ())
    found = program(
        gather,
        node("begins", "SiLU", micro=0),
        node("next", "SiLU", micro=1),
        node("goes_on", "MatMul", "begins", "gather"),
        node("Gradients/back", "SiLUGrad", "goes_on", micro=0, after=("begins", "next")),
    )
    assert names(found) == ["gather", "begins", "goes_on", "next", "back"]
