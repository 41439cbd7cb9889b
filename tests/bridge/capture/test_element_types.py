"""Types that a Morph's own inference tells wrongly are put right, as far as they are handed on."""

from ms_symtensor.bridge.capture.element_types import with_types_of_bodies
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, ParameterRef, TensorType

INT, FLOAT, HALF = (TensorType((4, 8), dtype) for dtype in ("int32", "float32", "float16"))


def _graph(told: TensorType) -> Graph:
    look_up = Op("look_up", "Gather", (ParameterRef("w"), InputRef("x")), (FLOAT,))
    body = Graph("body", (("x", INT),), (), (look_up,), OpOutput("look_up"))
    ops = (
        Op("embedding", "Morph", (InputRef("x"),), (told,), body=body),
        Op("transpose", "Transpose", (OpOutput("embedding"),), (told,)),
        Op("cast", "Cast", (OpOutput("transpose"),), (HALF,)),
        Op("indices", "Neg", (InputRef("x"),), (INT,)),
    )
    return Graph("net", (("x", INT),), (), ops, OpOutput("cast"))


def test_the_type_of_the_body_goes_on_until_a_cast():
    assert [op.outputs for op in with_types_of_bodies(_graph(INT)).ops] == [(FLOAT,), (FLOAT,), (HALF,), (INT,)]


def test_a_right_type_changes_nothing():
    graph = _graph(FLOAT)
    assert with_types_of_bodies(graph) is graph
