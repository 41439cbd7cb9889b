"""Which layouts are made to fit first, where blocks are recomputed in part."""

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.models import resolve
from ms_symtensor.search.asked.limits import limits_of
from ms_symtensor.search.asked.request import Request
from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.in_part import fit_of, promised_in_part
from ms_symtensor.search.pipelined import Pipelined, pipelined_plan
from ms_symtensor.search.stages import whole
from ms_symtensor.search.stages.network import Network, network
from ms_symtensor.search.stages.whole import as_estimated, fitting

CLUSTER = load("atlas_800t_a2")


@pytest.fixture(scope="module")
def of() -> Network:
    model = resolve("llama3_70b", 2048, None, {"num_layers": 128})
    assert model.graph_at is not None
    return network(model.graph, model.graph_at)


@pytest.fixture(scope="module")
def request_() -> Request:
    return Request(CLUSTER, 2048, 2048, 8192, int(CLUSTER.device.hbm_usable_B), "llama3_70b")


def test_shapes_that_promise_more_in_part_are_tried_first(of: Network, request_: Request):
    """As whole blocks are recomputed, four stages are faster; in part, eight with more recomputation."""
    asked = []

    def found(in_part: bool) -> Pipelined:
        ranked = promised_in_part(of, request_, Fronts()) if in_part else as_estimated

        def promised(outcome, estimates):
            asked.append((ranked(outcome, estimates), as_estimated(outcome, estimates)))
            return asked[-1][0]

        return pipelined_plan(of, request_, fit=fit_of(request_), promised=promised)

    first, estimated = found(in_part=True), found(in_part=False)
    assert first.time_s < estimated.time_s
    assert first.whole is not None and first.whole.mixes
    promises, estimates = asked[0]
    mine = promises[: len(promises) - len(estimates)]
    assert [s for s, _ in mine] == sorted(s for s, _ in mine)
    assert {rows[0].shape for _, rows in mine} == {rows[0].shape for _, rows in estimates}
    # In the end all layouts of all shapes, whatever they promise.
    assert [[id(row) for row in rows] for _, rows in promises[len(mine) :]] == [
        [id(row) for row in rows] for _, rows in estimates
    ]
    # What recomputes nothing keeps its estimate.
    assert {s for s, _ in mine} & {s for s, _ in estimates}


def test_where_layouts_do_not_keep_what_they_promise_all_of_their_shape_are_tried(monkeypatch: pytest.MonkeyPatch):
    """Of frozen weights, in half the memory: what lives for a moment is much, and no promise knows of it."""
    model = resolve("qwen_7b_lora", 512, None, {})
    assert model.graph_at is not None
    of, limit_B = network(model.graph, model.graph_at), int(CLUSTER.device.hbm_usable_B / 2)
    request = Request(CLUSTER, 512, 512, model.seq_length, limit_B, model.name)

    def found_s() -> float:
        promised = promised_in_part(of, request, Fronts())
        return pipelined_plan(of, request, fit=fit_of(request), promised=promised).time_s

    all_s = found_s()
    monkeypatch.setattr(whole, "MISPRICED", 10.0)  # as if they kept it
    assert all_s < found_s()


def test_where_it_is_pinned_how_many_blocks_are_recomputed_none_is_in_part(request_: Request):
    pinned = Request(CLUSTER, 8, 16, 4096, 1 << 34, limits=limits_of([("recompute", "4")], ()))
    assert fit_of(pinned) is fitting
    assert fit_of(request_) is not fitting
