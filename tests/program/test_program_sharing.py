"""Equal gradients are one; of MindSpore's own: tests/bridge/judge/test_equal_gradients.py."""

from collections import Counter
from dataclasses import replace

import pytest

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of
from ms_symtensor.program.program import Phase, Role
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.program.stage_program import partition_stages
from ms_symtensor.tensor.copies import COPIES
from ms_symtensor.tensor.graph import Constant, Graph, InputRef, Op, OpOutput, Parameter, ParameterRef, TensorType

ROWS, SQUARE, SCALAR = (TensorType(shape, "float32") for shape in ((16, 8), (8, 8), ()))
ALL = Constant((0, 1))


def op(name, kind, *inputs, to=ROWS, block=None):
    return Op(name, kind, inputs, (to,), cell=(name,), primitive="op", block=block)


def product(name, source, block=None):
    inputs = source, ParameterRef(name), Constant(False), Constant(False)
    return op(name, "MatMul", *inputs, block=block)


def network(*ops, weights):
    parameters = tuple(Parameter(name, SQUARE) for name in weights)
    return Graph("Net", (("x", ROWS),), parameters, ops, OpOutput(ops[-1].name))


def plan(graph):
    cuts = {"MatMul": ((4, 1), (1, 1)), "Add": ((4, 1), (4, 1)), "Muls": ((),)}
    return StagePlan({o.name: OpStrategy(cuts.get(o.type, ((4, 1),))) for o in graph.ops}, Settings(4))


def two_products(factor, adds="Add"):
    """`x @ a + x @ b`, or with another factor at `b`."""
    ops = [
        op("relu", "ReLU", InputRef("x"), block="layers.0"),
        product("a", OpOutput("relu")),
        product("b", OpOutput("relu")),
        op("scaled", "Muls", OpOutput("b"), Constant(factor)),
        op("other", "Muls", OpOutput("a"), Constant(2.0)),
        op("sum", adds, OpOutput("other"), OpOutput("scaled")),
        op("loss", "ReduceSum", OpOutput("sum"), ALL, Constant(False), to=SCALAR),
    ]
    graph = network(*ops, weights="ab")
    rows = {name: OpStrategy(((4, 1),)) for name in ("scaled", "other")}
    return graph, StagePlan({**plan(graph).strategies, **rows}, Settings(4))


@pytest.mark.parametrize(("factor", "sums"), [(2.0, 1), (3.0, 2)])
def test_weights_whose_gradients_are_equal_are_summed_at_once(factor, sums):
    found = partition(*two_products(factor))
    assert [n.kind for n in found.nodes if n.role is Role.SYNC] == ["AllReduce"] * sums
    assert [n.kind for n in found.nodes if n.phase is Phase.BACKWARD].count("MatMulGrad") == sums


@pytest.mark.parametrize(("others", "sums"), [((2.0,), 1), ((3.0,), 2), (None, 2)])
def test_equal_scalars_are_one_tensor(others, sums):
    """`2 (x @ a) + c (x @ b)`: where c is 2 as well, the gradients of both products are one."""
    graph, of = two_products(2.0)
    scalars = {"other": (2.0,), "scaled": others}
    ops = [
        replace(o, type="Mul", inputs=(o.inputs[0], Constant(tensor=SCALAR, elements=scalars[o.name])))
        if o.name in scalars
        else o
        for o in graph.ops
    ]
    of.strategies.update(dict.fromkeys(scalars, OpStrategy(((4, 1), ()))))
    found = partition(replace(graph, ops=tuple(ops)), of)
    assert [n.kind for n in found.nodes].count("MatMulGrad") == sums


@pytest.mark.parametrize("adds", ["Add", "InplaceAddExt"])
def test_the_gradient_of_a_sum_is_that_of_its_addends(adds):
    graph, of = two_products(2.0, adds)
    of.strategies["sum"] = OpStrategy(((4, 1), (4, 1)))
    assert [n.kind for n in partition(graph, of).nodes].count("MatMulGrad") == 1


def test_between_micro_batches_every_gradient_adds_up_by_itself():
    graph, of = two_products(2.0)
    (found,) = partition_stages(graph, (of,), Pipeline(runs_of((1,)), 2))
    assert {c.parameter for c in found.collectives(0) if c.parameter} == {"a", "b"}
    assert [n.kind for n in found.micro.nodes].count("MatMulGrad") == 1
    assert Counter(c.phase for c in found.collectives(0) if not c.parameter) == {Phase.FORWARD: 2, Phase.BACKWARD: 1}


@pytest.mark.parametrize(("counted", "sums"), [(False, 1), (True, 2)])
def test_a_loss_that_is_counted_over_the_batch_sends_another_gradient_to_every_micro_batch(counted, sums):
    graph, of = two_products(2.0)
    (found,) = partition_stages(graph, (of,), Pipeline(runs_of((1,)), 2), counted=counted)
    assert [c.phase for c in found.collectives(0) if not c.parameter].count(Phase.BACKWARD) == sums


def test_quotients_by_the_same_send_back_the_same():
    """Two losses, each divided by how many samples count."""
    ops = [op("count", "ReduceSum", InputRef("x"), ALL, Constant(False), to=SCALAR)]
    for name in "ab":
        ops += [product(name, InputRef("x"))]
        ops += [op(f"sum_{name}", "ReduceSum", OpOutput(name), ALL, Constant(False), to=SCALAR)]
        ops += [op(f"mean_{name}", "Div", OpOutput(f"sum_{name}"), OpOutput("count"), to=SCALAR)]
    ops += [op("total", "Add", OpOutput("mean_a"), OpOutput("mean_b"), to=SCALAR)]
    graph = network(*ops, weights="ab")
    of = plan(graph)
    of.strategies.update({name: OpStrategy(((), ())) for name in ("mean_a", "mean_b", "total")})
    found = partition(graph, of)
    assert [n.kind for n in found.nodes if n.phase is Phase.BACKWARD].count("DivGrad") == 1
    assert [n.phase for n in found.nodes if n.role is Role.COMBINE].count(Phase.BACKWARD) == 1


def test_what_goes_back_to_every_term_of_a_sum_goes_once():
    ops, total = [], None
    for name in "ab":
        ops += [product(name, InputRef("x") if total is None else OpOutput("a"))]
        ops += [op(f"sum_{name}", "ReduceSum", OpOutput(name), ALL, Constant(False), to=SCALAR)]
        ops += [op(f"times_{name}", "Muls", OpOutput(f"sum_{name}"), Constant(4), to=SCALAR)]
        total = OpOutput(f"times_{name}")
    ops += [op("total", "Add", OpOutput("times_a"), OpOutput("times_b"), to=SCALAR)]
    graph = network(*ops, weights="ab")
    of = plan(graph)
    of.strategies["total"] = OpStrategy(((), ()))
    found = partition(graph, of)
    sums = [n for n in found.nodes if n.role is Role.COMBINE]
    assert [n.phase for n in sums].count(Phase.FORWARD) == 2
    assert [n.phase for n in sums].count(Phase.BACKWARD) == 1


@pytest.mark.parametrize(("reshapes", "moves"), [(False, 1), (True, 2)])
def test_what_a_reshape_moves_is_not_one_with_what_another_reader_moves(reshapes, moves):
    """As MindSpore 2.10.0 compiles the experts of DeepSeek-V3 beside the shared one: tests/bridge/judge/test_merged_moves.py."""
    deep = TensorType((2, 8, 8), "float32")
    first = [op("deep", "Reshape", OpOutput("relu"), Constant(deep.shape), to=deep)] if reshapes else []
    ops = [
        op("relu", "ReLU", InputRef("x")),
        *first,
        op("abs", "Abs", OpOutput("deep" if reshapes else "relu"), to=deep if reshapes else ROWS),
        op("exp", "Exp", OpOutput("relu")),
        op(
            "one", "ReduceSum", OpOutput("abs"), Constant((0, 1, 2) if reshapes else (0, 1)), Constant(False), to=SCALAR
        ),
        op("two", "ReduceSum", OpOutput("exp"), ALL, Constant(False), to=SCALAR),
        op("sum", "Add", OpOutput("one"), OpOutput("two"), to=SCALAR),
    ]
    cuts = {"relu": ((4, 1),), "abs": ((2, 1, 2) if reshapes else (2, 2),), "exp": ((2, 2),), "sum": ((), ())}
    strategies = {name: OpStrategy(cut) for name, cut in cuts.items()}
    strategies |= {"one": OpStrategy(cuts["abs"]), "two": OpStrategy(cuts["exp"])}
    found = partition(network(*ops, weights=""), StagePlan(strategies, Settings(4, enable_alltoall=True)))
    forward = [n.kind for n in found.nodes if n.phase is Phase.FORWARD and n.role is Role.MOVE]
    assert forward.count("AlltoAll") == moves


def test_equal_operators_have_a_gradient_each_and_are_merged_afterwards():
    """Two equal transposes: MindSpore transposes and gathers once, and scatters and transposes two gradients."""
    turned = TensorType((8, 16), "float32")
    ops = [
        product("a", InputRef("x")),
        op("turned", "Transpose", OpOutput("a"), Constant((1, 0)), to=turned),
        op("one", "ReLU", OpOutput("turned"), to=turned),
        op("two", "Sigmoid", OpOutput("turned"), to=turned),
        op("sum", "Add", OpOutput("one"), OpOutput("two"), to=turned),
        op("loss", "ReduceSum", OpOutput("sum"), ALL, Constant(False), to=SCALAR),
    ]
    once = network(*ops, weights="a")
    twice = replace(once, attributes=((COPIES, (("turned", ("two",)),)),))
    whole = ((1, 1),)
    kinds = {"ReLU": whole, "Sigmoid": whole, "Add": whole * 2, "ReduceSum": whole, "Transpose": ((4, 1),)}
    of = StagePlan({o.name: OpStrategy(kinds.get(o.type, ((4, 1), (1, 1)))) for o in ops}, Settings(4))

    def count(graph, kind):
        return [n.kind for n in partition(graph, of).nodes].count(kind)

    assert [count(once, kind) for kind in ("AllGather", "Transpose", "TransposeGrad", "ReduceScatter")] == [1, 1, 1, 1]
    assert [count(twice, kind) for kind in ("AllGather", "Transpose", "TransposeGrad", "ReduceScatter")] == [1, 1, 2, 2]
    assert {n.op for n in partition(twice, of).nodes} <= {*once.op_by_name, "a"}


def test_the_bias_of_a_product_reads_no_factor():
    """`dense(x) + dense(relu(x))`: both biases have one gradient, and one sum."""
    bias = TensorType((8,), "float32")
    ops = [
        op("relu", "ReLU", InputRef("x")),
        op("one", "Dense", InputRef("x"), ParameterRef("a"), ParameterRef("s")),
        op("two", "Dense", OpOutput("relu"), ParameterRef("b"), ParameterRef("t")),
        op("sum", "Add", OpOutput("one"), OpOutput("two")),
        op("loss", "ReduceSum", OpOutput("sum"), ALL, Constant(False), to=SCALAR),
    ]
    graph = network(*ops, weights="ab")
    graph = replace(graph, parameters=(*graph.parameters, Parameter("s", bias), Parameter("t", bias)))
    kinds = {"Dense": ((4, 1), (1, 1), (1,)), "Add": ((4, 1), (4, 1))}
    of = StagePlan({o.name: OpStrategy(kinds.get(o.type, ((4, 1),))) for o in ops}, Settings(4))
    assert sorted(n.parameter for n in partition(graph, of).nodes if n.kind == "AllReduce" and n.role is Role.SYNC) in (
        ["a", "b", "s"],
        ["a", "b", "t"],
    )


def test_a_mean_and_a_sum_are_not_one():
    """The gradient of a mean over a cut dim is divided before it is summed."""
    ops = [
        product("a", InputRef("x")),
        op("mean", "ReduceMean", OpOutput("a"), ALL, Constant(False), to=SCALAR),
        op("total", "ReduceSum", OpOutput("a"), ALL, Constant(False), to=SCALAR),
        op("loss", "Add", OpOutput("mean"), OpOutput("total"), to=SCALAR),
    ]
    graph = network(*ops, weights="a")
    kinds = {"MatMul": ((4, 1), (1, 1)), "Add": ((), ())}
    of = StagePlan({o.name: OpStrategy(kinds.get(o.type, ((4, 1),))) for o in ops}, Settings(4))
    assert [n.kind for n in partition(graph, of).nodes if n.role is Role.COMBINE] == ["AllReduce"] * 4
