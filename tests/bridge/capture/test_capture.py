"""Captured graphs of real networks."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import context
from mindspore.nn.utils import no_init_parameters

from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture, primitive_of, primitives_of
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.errors import CompilerError
from ms_symtensor.tensor.graph import Constant, InputRef, OpOutput, ParameterRef, TensorType, TupleInput
from tests.bridge.networks import HIDDEN, INNER, LAYERS, TOKENS, Branching, Mixed, Net, Wrong, empty


@pytest.fixture(scope="module")
def net():
    with no_init_parameters():
        return Net()


@pytest.fixture(scope="module")
def graph(net):
    return capture(net, empty(TOKENS, dtype=ms.int32))


def test_lazy_inline_blocks_are_included_in_order(graph):
    in_block = ["RmsNorm", "MatMul", "ReLU", "MatMul", "Add"]
    assert [op.type for op in graph.ops] == ["Gather", *in_block * LAYERS, "Cast", "ReduceMean"]
    blocks = [f"layers.{i}" for i in range(LAYERS) for _ in in_block]
    assert [op.block for op in graph.ops] == [None, *blocks, None, None]


def test_names_types_and_edges(graph):
    up = graph.op_by_name["Default/layers-CellList/1-Block/MatMul-op0"]
    norm = "Default/layers-CellList/1-Block/RmsNorm-op0"
    assert up.inputs == (OpOutput(norm), ParameterRef("layers.1.up_weight"), Constant(False), Constant(True))
    assert up.outputs == (TensorType((TOKENS, INNER), "float16"),)
    assert (up.cell, up.primitive) == (("layers", "1"), "up")
    assert graph.op_by_name[norm].outputs == (
        TensorType((TOKENS, HIDDEN), "float16"),
        TensorType((TOKENS, 1), "float32"),
    )
    assert graph.inputs == (("tokens", TensorType((TOKENS,), "int32")),)
    assert graph.output == OpOutput("Default/ReduceMean-op0")
    assert graph.name == "Net"
    assert not any("strategy" in name or "symtensor" in name for op in graph.ops for name, _ in op.attributes)


def test_parameters(graph):
    assert len(graph.parameters) == 1 + 3 * LAYERS
    assert graph.parameter_by_name["layers.2.down_weight"].type == TensorType((HIDDEN, INNER), "float16")


def test_primitives_lead_back_to_the_network(net, graph):
    found = primitives_of(net, graph)
    down = graph.op_by_name["Default/layers-CellList/2-Block/MatMul-op1"]
    assert found[down.name] is net.layers[2].down
    assert primitive_of(net, down) is net.layers[2].down
    assert primitive_of(net, graph.op_by_name["Default/Cast-op0"]) is None
    assert "Default/Cast-op0" not in found


def test_primitive_of_another_network_is_an_error(graph):
    with pytest.raises(CompilerError, match="Wrong has no Gather at gather"):
        primitive_of(Wrong(), graph.ops[0])


def test_everything_is_as_before(net):
    mode, phases = context.get_context("mode"), dict(net.phase_cache)
    strategies = [dict(layer.up.attrs) for layer in net.layers]
    marks = [layer.cell_init_args for layer in net.layers]
    net.set_train(False)
    net.layers[1].set_train(True)
    first = capture(net, empty(TOKENS, dtype=ms.int32))
    second = capture(net, empty(TOKENS, dtype=ms.int32))
    assert first == second
    assert context.get_context("mode") == mode
    assert context.get_auto_parallel_context("parallel_mode") == "stand_alone"
    assert net.phase_cache == phases
    assert [dict(layer.up.attrs) for layer in net.layers] == strategies
    assert [layer.cell_init_args for layer in net.layers] == marks
    assert [net.training, *(layer.training for layer in net.layers)] == [False, False, True, False]
    assert "init_parameters_data" not in net.__dict__
    assert all(parameter.has_init for parameter in net.get_parameters())


def test_names_do_not_depend_on_what_was_compiled_before(graph):
    with no_init_parameters():
        net = Net()
    compile_rank(training_cell(net), empty(TOKENS, dtype=ms.int32), ms.Tensor(np.float32(1)), device_num=8)
    assert capture(net, empty(TOKENS, dtype=ms.int32)) == graph


def test_recompute_does_not_change_the_graph(graph):
    with no_init_parameters():
        net = Net()
    net.layers[1].recompute()
    assert capture(net, empty(TOKENS, dtype=ms.int32)) == graph
    assert net.layers[1].get_scope() == "recompute_"


def test_parallel_settings_of_the_user_survive(net):
    context.set_auto_parallel_context(
        parallel_mode="semi_auto_parallel", dataset_strategy=((2, 1),), gradients_mean=True
    )
    try:
        capture(net, empty(TOKENS, dtype=ms.int32))
        assert context.get_auto_parallel_context("parallel_mode") == "semi_auto_parallel"
        assert context.get_auto_parallel_context("gradients_mean")
        assert tuple(map(tuple, context.get_auto_parallel_context("dataset_strategy"))) == ((2, 1),)
    finally:
        context.reset_auto_parallel_context()


@pytest.fixture(scope="module")
def mixed():
    return capture(Mixed(), empty(8, 16, dtype=ms.float32), empty(8, 1, dtype=ms.float32), name="mixed")


def test_tuples(mixed):
    concat = mixed.op_by_name["Default/Concat-op0"]
    assert concat.inputs[0] == TupleInput((OpOutput("Default/Split-op0", 1), OpOutput("Default/Split-op0", 0)))
    assert mixed.op_by_name["Default/Split-op0"].outputs == (TensorType((8, 8), "float32"),) * 2
    assert mixed.op_by_name["Default/TopK-op0"].outputs == (TensorType((8, 4), "float32"), TensorType((8, 4), "int32"))


def test_one_primitive_used_twice_gives_two_operators(mixed):
    twice = [op for op in mixed.ops if op.primitive == "mul"]
    assert [op.cell for op in twice] == [(), ()]
    assert twice[1].inputs == (OpOutput(twice[0].name), InputRef("scale"))


def test_operators_made_on_the_fly_have_no_owner(mixed):
    add = next(op for op in mixed.ops if op.type == "Add")
    assert (add.cell, add.primitive, add.block) == ((), "", None)


def test_capture_is_of_training(mixed):
    assert [op.block for op in mixed.ops if op.type == "Dropout"] == ["blocks.0", "blocks.1"]


def test_frozen_parameters_and_argument_names(mixed):
    assert [p.name for p in mixed.parameters if not p.requires_grad] == ["frozen"]
    assert [name for name, _ in mixed.inputs] == ["x", "scale"]
    assert mixed.name == "mixed"


def test_mistakes_are_told_with_the_line_of_the_network():
    with pytest.raises(CompilerError, match=r"MindSpore rejects Wrong: For 'MatMul'.*networks\.py:\d+") as caught:
        capture(Wrong(), empty(8, 16))
    assert "\n" not in str(caught.value)


class _BroadcastProduct(ms.nn.Cell):
    """What Ascend allows and a CPU does not: a BatchMatMul whose second matrix has fewer dims."""

    def __init__(self):
        super().__init__()
        self.matmul = ms.ops.BatchMatMul()

    def construct(self, x, y):
        return self.matmul(x, y)


def test_shapes_are_those_that_ascend_allows():
    graph = capture(_BroadcastProduct(), empty(2, 4, 8, 16), empty(16, 16))
    assert [op.outputs[0].shape for op in graph.ops] == [(2, 4, 8, 16)]
    assert context.get_context("device_target") == "CPU"


def test_control_flow_is_refused():
    with pytest.raises(CompilerError, match="branches on a tensor"):
        capture(Branching(), empty(8, 16))


def test_no_file_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompilerError):
        capture(Wrong(), empty(8, 16))
    assert list(tmp_path.iterdir()) == []
