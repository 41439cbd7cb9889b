"""What a model of the zoo is built from is kept in the plan, so that `verify` builds the same network."""

import json
import re
from dataclasses import replace

import pytest

from model_zoo import dimensions_of
from model_zoo.builder import build_graph
from ms_symtensor.bridge.apply.load_network import zoo_options
from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InputError
from ms_symtensor.models import planned, replanner, resolve
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.tensor.graph_file import to_json


def test_the_room_of_experts_is_part_of_the_source():
    size = {"num_layers": 1}
    for asked in ({"experts": "dropless"}, {"load_imbalance": 1.5}, {"token_groups": 2}):
        model = resolve("mixtral_8x7b", 2, 64, size | asked)
        assert model.source.items() >= {name: str(value) for name, value in asked.items()}.items()
        assert build_graph(dimensions_of("mixtral_8x7b", **zoo_options(model.source))) == model.graph
        assert model.graph_at(1, 1) == build_graph(dimensions_of("mixtral_8x7b", 1, 64, 1, **asked))
    assert {"experts", "load_imbalance", "token_groups"}.isdisjoint(resolve("mixtral_8x7b", 2, 64, size).source)


@pytest.mark.parametrize("stages", (1, 2))
def test_a_plan_is_not_compared_with_another_network(stages):
    """Its file may be edited, or its network be another one by now."""
    model = resolve("llama2_7b", 8, 64, {"num_layers": 2})
    request = Request(
        load("atlas_800t_a2"), 4, 8, 64, 1 << 36, "llama2_7b", model.source, limits_of([("pipeline_stages", stages)])
    )
    plan, graph = planned(model, request)
    assert replanner(plan, graph)(request.limits, 1 << 36).stages == plan.stages
    deeper = replace(plan, source={**plan.source, "num_layers": "3"})
    with pytest.raises(InputError, match="the plan is for graph .*first difference"):
        replanner(deeper, graph)
    for other in (
        replace(plan, seq_length=128),
        replace(plan, global_batch_size=16),
        replace(plan, source={**plan.source, "seq_length": "128"}),
    ):
        with pytest.raises(InputError, match="the plan's source says .*: one was changed; plan again"):
            replanner(other, graph)
    with pytest.raises(
        InputError, match="samples of 128 in .* micro-batches, its graph has .* of 64: one of them was changed"
    ):
        replanner(replace(plan, source={}, seq_length=128), graph)


@pytest.mark.parametrize(
    ("operator", "changes", "said"),
    [
        ("Cast", {"inputs": []}, "Cast-op0: 0 tensor inputs and 1 outputs do not fit"),
        ("MatMul", {"outputs": []}, "is a damaged graph (output 0 of *MatMul* is used before it exists)"),
        ("MatMul", {"inputs": [{"constant": 1}]}, "MatMul-op0: 0 tensor inputs and 1 outputs do not fit"),
        ("Gather", {"outputs": [["float32", [0, 512]]]}, "operator Gather (*) has a tensor without elements, float32[0, 512]"),
    ],
)  # fmt: skip
def test_a_saved_graph_with_an_operator_that_cannot_be_is_told_in_a_line(operator, changes, said, tmp_path):
    data = to_json(resolve("gpt2_xl", 4, 512, {"num_layers": 1}).graph)
    next(op for op in data["ops"] if op["type"] == operator).update(changes)
    (tmp_path / "graph.json").write_text(json.dumps(data))
    pattern = ".*".join(map(re.escape, said.split("*")))
    with pytest.raises(InputError, match=pattern) as error:
        model = resolve(str(tmp_path / "graph.json"))
        planned(model, Request(load("atlas_800t_a2"), 4, 4, 512, 50 << 30))
    assert len(str(error.value)) <= 450
