"""What users write themselves is predicted as MindSpore compiles it."""

from functools import partial

import mindspore as ms
import pytest
from mindspore.common.initializer import Zero
from mindspore.communication import create_group

from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiler.host import ascend_compiler
from ms_symtensor.bridge.judge.audit import audit
from ms_symtensor.errors import UnknownOperatorError
from ms_symtensor.ops.rule import bind
from ms_symtensor.ops.undistributed import cut_along_batch
from ms_symtensor.report.verdict_report import audit_json, audit_text
from ms_symtensor.tensor.graph_file import from_json, to_json
from tests.bridge import written_networks as networks


def audited(make, x, device_num=8, rank=5, **more):
    with ascend_compiler(device_num, rank):
        return audit(make(), x, device_num=device_num, rank=rank, **more)


def float32(*shape):
    return ms.Tensor(shape=shape, dtype=ms.float32, init=Zero())


def with_group(make, ranks, *arguments):
    create_group("written", list(ranks))
    return make(*arguments)


@pytest.mark.parametrize(
    ("dp", "cp", "tp", "rank", "scatters"),
    [(1, 2, 4, 5, True), (2, 2, 2, 3, False), (2, 2, 2, 6, True), (1, 1, 4, 2, True)],
)
def test_linear_layers_with_collectives_inside(dp, cp, tp, rank, scatters):
    first = rank // tp * tp

    def make():
        create_group(f"tp{first}of{tp}", list(range(first, first + tp)))
        return networks.FeedForward(dp, cp, tp, f"tp{first}of{tp}", scatters)

    x = ms.Tensor(shape=(32, 4, 64), dtype=ms.float16, init=Zero())
    found = audited(make, x, dp * cp * tp, rank)
    assert found.verdict.passed, found.verdict
    inside = {(c.kind, c.phase) for c in found.costs if "row-Row" in c.operator and "/Morph-op0/" in c.operator}
    expected = {("ReduceScatter", "forward"), ("AllGather", "backward")}
    assert inside == (expected if scatters else {("AllReduce", "forward"), ("AllReduce", "backward")})
    comparison = found.verdict.comparison
    assert comparison.predicted_activations_B == comparison.compiled_activations_B


def test_the_captured_graph_keeps_layouts_and_body():
    with ascend_compiler(8, 5):
        create_group("of4", [4, 5, 6, 7])
        net = networks.FeedForward(1, 2, 4, "of4", True)
        before = dict(net.row.morph.attrs)
        graph = capture(net, ms.Tensor(shape=(32, 4, 64), dtype=ms.float16, init=Zero()))
    assert net.row.morph.attrs == before
    morph = graph.op_by_name["Default/row-RowLinear/Morph-op0"]
    assert morph.attribute("out_layout") == (((1, 2, 4), ((1, 0), 2, -1)),)
    assert [op.type for op in morph.body.ops] == ["Reshape", "MatMul", "ReduceScatter", "Reshape"]
    assert morph.body.ops[2].attribute("ranks") == (4, 5, 6, 7)
    assert from_json(to_json(graph)) == graph


def test_experts_in_a_morph_and_layouts_of_arguments_that_are_no_tensors():
    x, groups = float32(8, 16, 64), ms.Tensor(shape=(4,), dtype=ms.int64, init=Zero())
    with ascend_compiler(8, 5):
        found = audit(networks.Routed(), x, groups, device_num=8, rank=5)
    assert found.verdict.passed, found.verdict
    assert {row["kind"] for row in audit_json(found)["costs"]} == {"AllReduce"}


def test_a_weight_that_a_lazy_block_reads_twice_is_summed_twice():
    found = audited(networks.Chain, float32(64, 64), rank=0)
    assert found.verdict.passed, found.verdict
    sums = {row["operator"]: row["count"] for row in audit_json(found)["costs"] if row["operator"].endswith("weight")}
    assert sums == {"blocks.0.weight": 2, "blocks.1.weight": 2}


def test_all_to_all():
    found = audited(partial(with_group, networks.Exchange, (4, 5), "written", True), float32(32, 64))
    assert found.verdict.passed, found.verdict


def test_all_to_all_of_computed_sizes():
    found = audited(partial(with_group, networks.Exchange, (4, 5), "written", False), float32(32, 64))
    assert found.verdict.passed, found.verdict
    unknown = [c for c in audit_json(found)["costs"] if c["kind"] == "AlltoAllV"]
    assert [(c["size_B"], c["time_s"]) for c in unknown] == [(None, None)] * 2
    assert "not compared: some sizes are known at run time only" in audit_text(found)


def test_collectives_outside_a_morph():
    found = audited(partial(with_group, networks.Outside, (4, 5, 6, 7), "written"), float32(32, 64))
    assert not found.verdict.accepted
    assert "can not contain communication op" in found.verdict.reason


def test_strategies_as_layout_objects():
    found = audited(networks.LaidOut, float32(32, 64))
    assert found.verdict.passed, found.verdict
    assert ("ReduceScatter", "forward") in {(c.kind, c.phase) for c in found.costs}


def test_layouts_that_are_not_predicted_say_so():
    found = audited(partial(networks.LaidOut, ("cp", "dp")), float32(32, 64))
    assert found.verdict.accepted
    assert "no neighbours in order" in found.verdict.reason


STOPPED = [n for n in vars(networks) if n.startswith("Stopped") and n != "Stopped"]


@pytest.mark.parametrize("name", STOPPED)
def test_gradients_end_where_they_are_stopped(name):
    found = audited(getattr(networks, name), float32(32, 64))
    assert found.verdict.passed, found.verdict
    reached = {c.operator for c in found.costs if c.phase == "backward"} & {"w", "v"}
    assert reached == ({"v"} if name == "StoppedBefore" else {"w", "v"})


def test_nothing_stands_in_for_stop_gradient_after_a_capture():
    net = networks.StoppedByAttribute()
    capture(net, float32(32, 64))
    assert type(net.stop) is ms.ops.StopGradient
    assert type(networks.GLOBAL_STOP) is ms.ops.StopGradient
    assert ms.ops.StopGradient.__module__.startswith("mindspore")


def scale(op):
    line = bind("b h, h -> b h", op.inputs, op.outputs, op.name, keeps_inputs=(0, 1), bilinear=True)
    return cut_along_batch(op, line)


def test_a_rule_makes_an_operator_of_ones_own_known():
    with pytest.raises(UnknownOperatorError, match=r'ms_symtensor.register\("Scale", line\)'):
        audited(networks.Scaled, float32(32, 64))
    found = audited(networks.Scaled, float32(32, 64), rules={"Scale": scale})
    assert found.verdict.passed, found.verdict


class _Means(ms.nn.Cell):
    """Operators without a strategy on dims that 8 devices do not divide: 4, and 1."""

    def __init__(self):
        super().__init__()
        self.slice, self.sum, self.add, self.one = ms.ops.StridedSlice(), ms.ops.ReduceSum(), ms.ops.Add(), ms.ops.Mul()

    def construct(self, x):
        x = self.slice(x, (0, 0), (4, 16), (1, 1))
        return self.one(self.add(self.sum(x, ()), ms.Tensor([1.0])), ms.Tensor([2.0]))


def test_what_has_no_strategy_is_cut_as_far_as_it_divides():
    found = audited(_Means, float32(4, 24))
    assert found.verdict.passed, found.verdict


def test_a_backward_pass_of_its_own_has_no_collectives_of_the_forward_one():
    found = audited(lambda: networks.OwnBackward(8), float32(16, 32))
    assert found.verdict.passed, found.verdict
    forward = [c.operator for c in found.costs if c.kind == "AllReduce" and c.phase == "forward"]
    assert sum("log_softmax" in name for name in forward) == 2
    assert not any("log_softmax" in c.operator for c in found.costs if c.phase == "backward")


def test_layouts_of_a_tuple_of_tensors():
    found = audited(networks.JoinedLayouts, float32(16, 32))
    assert found.verdict.passed, found.verdict
