"""Which operators are known."""

import pytest

from ms_symtensor.errors import InputError, UnknownOperatorError
from ms_symtensor.ops.registry import merge, register, require_known, rules, signature
from ms_symtensor.ops.rule import bind
from ms_symtensor.tensor.graph import Graph, InputRef, Op, OpOutput, TensorType
from tests.ops.views import make

OF_TRANSFORMERS = (
    "MatMul", "BatchMatMul", "Dense", "Add", "AddExt", "Sub", "SubExt", "Mul", "Muls", "Div", "RealDiv", "Neg", "Exp",
    "Log", "Sqrt", "Rsqrt", "Square", "Cos", "Sin", "Sigmoid", "SiLU", "Swiglu", "GeLU", "FastGeLU", "ReLU", "Tanh",
    "Dropout", "Cast", "Reshape", "Transpose", "ExpandDims", "Squeeze", "StridedSlice", "Split", "SplitWithSize",
    "Concat", "Stack", "Tile", "BroadcastTo", "Outer", "RmsNorm", "LayerNorm", "Softmax", "LogSoftmax",
    "FlashAttentionScore", "Gather", "GatherD", "Embedding", "OneHot", "OneHotExt", "ReduceSum", "SumExt",
    "ReduceMean", "MeanExt", "ReduceMax", "ArgMaxWithValue", "TopK", "TopkExt", "NotEqual", "Equal", "Less",
    "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot", "Select", "MaskedFill",
    "SoftmaxCrossEntropyWithLogits", "AssignAdd", "Pow", "Maximum", "Minimum", "AddN", "StopGradient", "Erf", "Abs",
    "ReduceAny", "ReduceAll",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_operators_of_transformers_are_known(name):
    assert name in rules()


def test_an_unknown_operator_is_an_error_that_tells_what_to_do():
    op = make("FancyNorm", "float16[8, 4] -> float16[8, 4]")
    with pytest.raises(
        UnknownOperatorError, match=r"FancyNorm \(Default/FancyNorm-op0\).*float16\[8, 4\].*ms_symtensor.register"
    ):
        signature(op)


def test_a_piece_of_a_split_may_have_no_elements():
    op = make("SplitWithSize", "float32[8, 64] -> float32[8, 0], float32[8, 64]", sizes=(0, 64), dim=1)
    assert signature(op).outputs[1][0] == signature(op).inputs[0][0]
    with pytest.raises(InputError, match=r"has a tensor without elements, float32\[8, 0\]"):
        signature(make("ReLU", "float32[8, 0] -> float32[8, 0]"))


def test_a_way_round_is_told_where_one_is_known():
    with pytest.raises(UnknownOperatorError, match="Write nn.GroupNorm with as many groups as channels, or"):
        signature(make("InstanceNorm", "float32[8, 4, 2, 2] -> float32[8, 4, 2, 2]"))


def test_an_operator_whose_result_has_any_size_is_told_apart():
    with pytest.raises(UnknownOperatorError, match=r"Unique.*int32\[-1\].*size only a run tells"):
        signature(make("Unique", "int32[32] -> int32[-1], int32[32]"))


def test_a_rule_of_the_user_comes_first():
    op = make("FancyNorm", "float16[8, 4] -> float16[8, 4]")
    sig = signature(op, {"FancyNorm": lambda o: bind("a b! -> a b!", o.inputs, o.outputs, o.name)})
    assert sig.cuttable == ("a",)


def test_two_rules_for_one_operator_are_refused():
    with pytest.raises(InputError, match="'Add' has two"):
        merge({"Add": rules()["Add"]}, {"Add": rules()["Mul"]})


@pytest.mark.parametrize(
    ("name", "rule", "properties", "told"),
    [
        ("", "a -> a", {}, "operator '': give the name of its primitive"),
        (3, "a -> a", {}, "operator 3: give the name of its primitive"),
        ("Mine", 3, {}, "operator 'Mine': 3 is no rule: give a line such as"),
        ("Mine", "a -> a -> a", {}, "signature 'a -> a -> a': exactly one '->'"),
        ("Mine", "a -> a", {"keeps_input": (0,)}, "operator 'Mine': unknown property 'keeps_input'; known: mesh"),
        ("Mine", print, {"keeps_inputs": (0,)}, "operator 'Mine': keeps_inputs belongs to a line"),
        ("Mine", print, {"batch_only": True}, "operator 'Mine': batch_only belongs to a line"),
    ],
)
def test_what_is_no_signature_is_refused_when_it_is_registered(name, rule, properties, told):
    with pytest.raises(InputError, match=told):
        register(name, rule, **properties)


def test_all_unknown_operators_are_named_at_once():
    with pytest.raises(
        UnknownOperatorError, match=r"operator Strange \(strange\) has no signature.*Nor have Odd\. Write other"
    ):
        require_known(graph_of("Strange", "ReLU", "Odd", "Strange"))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("InstanceNorm", "nn.GroupNorm"),
        ("ExtractImagePatches", "mint.nn.Unfold"),
        ("InplaceBernoulliScalar", "nn.Dropout2d"),
    ],
)
def test_what_computes_the_same_is_named(name, instead):
    with pytest.raises(UnknownOperatorError, match=f"has no signature.*Write {instead}"):
        require_known(graph_of(name))


def test_an_output_that_no_rule_gives_is_not_read():
    kind = TensorType((8, 4), "float32")
    ops = (
        Op("two", "Mul", (InputRef("x"), InputRef("x")), (kind, kind)),
        Op("reader", "ReLU", (OpOutput("two", 1),), (kind,)),
    )
    with pytest.raises(InputError, match="reader reads output 1 of two, and the rule of Mul has 1"):
        require_known(Graph("Net", (("x", kind),), (), ops, OpOutput("reader")))


def graph_of(*types):
    kind = TensorType((8, 4), "float32")
    ops = tuple(Op(f"{one.lower()}{i or ''}", one, (InputRef("x"),), (kind,)) for i, one in enumerate(types))
    return Graph("Net", (("x", kind),), (), ops, OpOutput(ops[-1].name))
