"""A weight that several operators read has one layout."""

from dataclasses import replace

import pytest

from benchmarks.small_networks import ORDER, Network
from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.found import as_priced, plan_of, searched
from ms_symtensor.search.plan import plan
from ms_symtensor.search.stages.network import network
from ms_symtensor.tensor.graph import Constant, TensorType

A2 = load("atlas_800t_a2")
ROWS, VECTOR, SCALAR = (TensorType(shape, "float32") for shape in ((8, 16, 32), (32,), ()))


def mixed(on_the_fly):
    """mean(x m + x (1 - m)), as RWKV mixes tokens."""
    net = Network()
    x, m = net.input(*ROWS.shape, dtype="float32"), net.weight(*VECTOR.shape, dtype="float32")
    (first,) = net.op("Mul", "first", (x, m), ROWS)
    (rest,) = net.op("Sub", "rest", (Constant(None, SCALAR), m), VECTOR)
    (second,) = net.op("Mul", "second", (x, rest), ROWS)
    (mean,) = net.op("ReduceMean", "mean", (net.binary("Add", first, second), Constant(()), Constant(False)), SCALAR)
    graph = net.emit.graph("Mixed", mean, ORDER)
    return replace(graph, ops=tuple(replace(op, primitive="") for op in graph.ops)) if on_the_fly else graph


def test_operators_that_can_choose_agree():
    found = plan(mixed(False), A2, device_num=4, global_batch_size=8, seq_length=16)
    cuts = {
        s.inputs[-1]
        for name, s in found.stage.strategies.items()
        if name.endswith(("first1", "rest1", "Mul-op0", "Sub-op0"))
    }
    assert len(cuts) == 1, found.stage.strategies


def test_operators_made_on_the_fly_that_cannot_are_named():
    with pytest.raises(
        InvalidStrategyError, match=r"w0 has one layout, but .*Mul.* slices of \[32\] and .*Sub.* of \[8\]"
    ):
        plan(mixed(True), A2, device_num=4, global_batch_size=8, seq_length=16)


def test_what_stages_send_of_a_weight_that_first_and_last_share_is_known_to_the_search():
    sizes = dimensions_of("gpt2_xl", num_layers=8, batch_size=16)

    def graph_at(batch, layers):
        return build_graph(replace(sizes, batch_size=batch, num_layers=layers or 8))

    of = network(graph_at(16, None), graph_at)
    limits = limits_of([("pipeline_stages", 2), ("micro_batch_num", 4)])
    request = Request(A2, 8, 16, sizes.seq_length, 1 << 40, limits=limits)
    searched_for = plan_of(of, request, searched(of, request))
    step_s = as_priced(searched_for, graph_at(4, None), request).prediction.step_time_s
    assert searched_for.prediction.step_time_s == pytest.approx(step_s, rel=1e-3)
