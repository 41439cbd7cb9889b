"""The explained formulas: they are what the price of a step is made of."""

from dataclasses import replace

import pytest

from ms_symtensor.algebra.text import plain
from ms_symtensor.cluster.load import load
from ms_symtensor.cost.explain import explain_step
from ms_symtensor.cost.step import MEMORIES, TIMES
from tests.strategy.plans import hand_written

A2 = load("atlas_800t_a2")


def case(model="llama2_7b", data=2, tensor=4, **more):
    graph, plan = hand_written(model, data, tensor, **more)
    return graph, plan.stage


def explained(graph, stage, name):
    return next(operator for operator in explain_step(graph, stage, A2).operators if name in operator.names)


@pytest.mark.parametrize("level", (0, 1, 3))
@pytest.mark.parametrize("recompute", (False, True))
@pytest.mark.parametrize(
    ("model", "data", "tensor", "sequence"),
    [
        ("llama2_7b", 2, 4, True),
        pytest.param("llama3_8b", 4, 4, False, marks=pytest.mark.matrix),
        ("gpt2_xl", 8, 1, False),
        pytest.param("bert_large", 1, 8, True, marks=pytest.mark.matrix),
    ],
)
def test_the_terms_add_up_to_the_price(model, data, tensor, sequence, level, recompute):
    graph, stage = case(model, data, tensor, sequence=sequence, level=level, recompute=recompute)
    found = explain_step(graph, stage, A2)
    for part in TIMES:
        assert found.total(part) == pytest.approx(found.cost.time_s[part], rel=1e-12, abs=1e-18), part
    for part in ("parameters", "gradients", "optimizer_states"):
        assert found.total(part) == found.cost.memory_B[part]
    assert 0 < found.total("activations") <= found.cost.memory_B["activations"]
    assert found.buffers.value == found.cost.memory_B["buffers"]
    assert {t.part for o in found.operators for t in o.terms} <= {"work", *TIMES, *MEMORIES}


def test_every_operator_is_explained_once():
    graph, stage = case()
    names = [name for o in explain_step(graph, stage, A2).operators for name in o.names]
    assert len(names) == len(set(names))
    assert {op.name for op in graph.ops if op.type == "MatMul"} <= set(names)


def test_the_all_reduce_of_a_row_cut_product():
    graph, stage = case()
    down = next(op.name for op in graph.ops if op.type == "MatMul" and op.cell[-1] == "down")
    found = explained(graph, stage, down)
    assert found.signature == "m k, n k -> m n"
    assert dict(found.cuts) == {"m": 2, "k": 4}
    (forward,) = [t for t in found.terms if t.label.startswith("forward AllReduce")]
    assert (forward.part, forward.unit, forward.count) == ("communication", "s", 1)
    assert forward.label == "forward AllReduce, partial sums over 4 ranks (Mesh)"
    assert plain(forward.expression) == (
        "2·N_m·N_n·gamma·(p_node - 1)/(c_m·c_n·p_node) + 2·alpha_node + t_coll + 4·N_m·N_n/(B_node·c_m·c_n·p_node)"
    )
    (weight,) = [t for t in found.terms if t.part == "parameters"]
    assert plain(weight.expression) == "4·N_k·N_n/(c_k·c_n)"
    assert weight.value == 4 * 512 * 256 / 4


def test_optimizer_sharding_shows_in_the_formulas():
    graph, stage = case(level=1)
    down = next(op.name for op in graph.ops if op.type == "MatMul" and op.cell[-1] == "down")
    found = explained(graph, stage, down)
    expressions = {t.part: plain(t.expression) for t in found.terms if t.unit == "B"}
    assert expressions["optimizer_states"] == "8·N_k·N_n/(c_k·c_n·z)"
    assert any(t.label.startswith("backward ReduceScatter, gradient over 2 ranks") for t in found.terms)


def test_states_on_the_host():
    graph, stage = case(level=1)
    stage = replace(stage, settings=replace(stage.settings, swap_optimizer=True))
    found = explain_step(graph, stage, A2)
    for part in ("optimizer", "optimizer_states"):
        of = found.cost.time_s if part in TIMES else found.cost.memory_B
        assert found.total(part) == pytest.approx(of[part], rel=1e-12)
    copies = [t for o in found.operators for t in o.terms if "from the host and back" in t.label]
    assert plain(copies[-1].expression) == "t_op + 16·N_k·N_n/(B_host·c_k·c_n·z)"
