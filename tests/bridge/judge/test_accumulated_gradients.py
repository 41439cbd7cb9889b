"""Where the gradients of micro-batches add up in a compiled stage: as often, and of the shape, that is predicted."""

from collections import Counter

import pytest

import ms_symtensor.bridge.judge.verify_stages as judge
from benchmarks.pipeline_cases import SAMPLE_LAYERS, micro_config
from benchmarks.pipelines import run_model
from ms_symtensor.cost.stage_memory import stage_memory_B


@pytest.mark.parametrize(
    ("model", "number"),
    [
        pytest.param("llama2_7b", 1, marks=pytest.mark.matrix),
        ("llama2_7b", 6),
        pytest.param("gpt2_xl", 4, marks=pytest.mark.matrix),
    ],
    ids=("level 1", "level 2", "tied"),
)
def test_every_gradient_is_added_once_for_each_micro_batch(model, number, monkeypatch):
    """That of a tied embedding on either stage; the first one adds what it receives once."""
    compare, stages = judge.compare, []

    def seen(graph, program, compiled):
        micro = program.micro
        predicted = Counter()
        for node in micro.nodes:
            if node.kind == "AssignAdd":
                predicted[node.parameter, str(micro.tensors[node.outputs[0]])] += program.times(node)
        adding = [node for node in compiled.nodes if node.type == "AssignAdd"]
        names = [node.inputs[0].name.removeprefix("accu_grads.") for node in adding]
        stages.append((predicted, Counter(zip(names, (str(n.outputs[0]) for n in adding), strict=True))))
        sums_B = sum(one.slice_type.size_B for one in compiled.layouts if one.name.startswith("accu_grads."))
        assert stage_memory_B(micro, 2, program.scatters_gradients, 0, {}, {})["gradients"] == sums_B > 0
        return compare(graph, program, compiled)

    monkeypatch.setattr(judge, "compare", seen)
    (_,) = run_model(model, (number,), micro_config(model, small=True, num_layers=SAMPLE_LAYERS))
    assert len(stages) == 2
    for predicted, compiled in stages:
        assert compiled and predicted == compiled
