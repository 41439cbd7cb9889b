"""Pins that no plan can obey are told before anything is searched."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.models import planned, resolve
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.possible import require_pinnable
from ms_symtensor.search.space.left import remaining
from ms_symtensor.tensor import graph_file
from tests.strategy.plans import small_graph

A2 = load("atlas_800t_a2")
CONFIGS = Path(__file__).parents[2] / "data/configs"
GRAPH = small_graph("llama2_7b", num_layers=3)


def check(*pairs, graph=GRAPH):
    request = Request(A2, 8, 8, 128, 1 << 60, limits=limits_of(pairs))
    require_pinnable(graph, request)
    remaining(graph, request)


@pytest.mark.parametrize(
    "pair",
    (
        ("*.query.matmul", "(8,1)(1,1)"), ("*.query.matmul", "(1,8)(1,8)->(8,1)"), ("query.matmul", "m/4,k/2"),
        ("*/attention/*", "dp,tp"), ("*.matmul", "m/2,*"), ("*.flash_attention", "b/2,n/4"), ("*.query.matmul", "whole"),
    ),
)  # fmt: skip
def test_what_can_be(pair):
    check(pair)


@pytest.mark.parametrize(
    "pair, message",
    (
        (("*/atention/*", "dp,tp"), r"no operator is called so; near are .*attention\.query\.matmul"),
        (("layers.0.*", "whole"), r"one strategy in all blocks that are alike.* \*\.attention_norm\.norm"),
        (("*.flash_attention", "m/8"), r"its dims are b \(\d+\), s \(\d+\), n \(\d+\), its layouts b/8 or"),
        (
            ("*.query.matmul", "(8,1)"),
            r"attention.query.matmul on 8 devices is so: .* has 1 entries for 2 tensor inputs",
        ),
        (("*.query.matmul", "n/3"), "attention.query.matmul on 8 devices is so: 3 does not divide n, of size 256"),
        (
            ("*.query.matmul", "m/4,n/4"),
            "attention.query.matmul on 8 devices is so: its 16 slices do not divide 8 devices",
        ),
        (("*.query.matmul", "d0/8"), "attention.query.matmul on 8 devices is so: it has no dim d0"),
        (("*.Reshape-op*", "whole"), "takes no strategy for these"),
        (("expert_parallel", 2), "expert_parallel = 2: the network has no experts"),
    ),
)
def test_what_cannot_be(pair, message):
    with pytest.raises(InputError, match=message):
        check(pair)


def test_pins_that_contradict_each_other():
    with pytest.raises(InputError, match=r"\*\.matmul = m/8; \*\.query\.matmul = n/8: no layout of attention\.query"):
        check(("*.matmul", "m/8"), ("*.query.matmul", "n/8"))


def test_an_operator_made_on_the_fly_can_be_pinned_to_nothing_else():
    ops = tuple(replace(op, cell=(), primitive="") if op.type == "SiLU" else op for op in GRAPH.ops)
    graph, rows = replace(GRAPH, ops=ops), GRAPH.ops[0].outputs[0].shape[0]
    check(("*.SiLU-op*", "d0/8"), graph=graph)
    with pytest.raises(
        InputError, match=r"its layouts d0/8 or d0/4 or .* \(without a primitive of its own .* its cell\)"
    ):
        check(("*.SiLU-op*", "d1/8"), graph=graph)
    assert rows % 8 == 0


@pytest.mark.parametrize("cell", ("DeltaCore", "MyRecurrence"))
def test_dims_that_a_cell_holds_whole_are_told(cell: str, tmp_path: Path):
    """What a cell is called decides nothing."""
    model = resolve(str(CONFIGS / "qwen3_next_80b_a3b.json"), 8, 256, {"num_layers": 4})
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(graph_file.to_json(model.graph)).replace("DeltaCore", cell))
    graph = resolve(str(file)).graph
    check(("*.rule.gram", "b1/4,*"), graph=graph)
    with pytest.raises(
        InputError, match=rf"core-{cell} is cut along samples \(b0\) and heads \(b1\) alone.*leave b2 whole"
    ):
        check(("*.rule.gram", "b2/4"), graph=graph)


def test_chunks_of_a_linear_attention_share_out_no_sequence():
    """Products inside the chunks of Qwen3-Next's linear attention see 64 tokens each."""
    model = resolve(str(CONFIGS / "qwen3_next_80b_a3b.json"), 8, 1024, dims=["num_hidden_layers=4"])
    pins = [("context_parallel", 2), ("pipeline_stages", 1), ("micro_batch_num", 1)]
    request = Request(A2, 4, 8, 1024, 1 << 40, model.name, model.source, limits_of(pins))
    assert planned(model, request)[0].context_parallel == 2
