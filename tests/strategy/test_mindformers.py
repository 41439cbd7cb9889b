from dataclasses import replace

import pytest
import yaml
from plans import hand_written, small_graph

from ms_symtensor.program.settings import Recompute
from ms_symtensor.strategy.mindformers import mindformers_yaml, settings_of
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.tensor.graph import Graph


def on_stages(layers: tuple[int, ...], again: tuple[int, ...], interleave: int = 1) -> tuple[Plan, Graph]:
    """A plan of `small` Llama-2 with 7 blocks, of which `again` are recomputed."""
    graph = small_graph("llama2_7b", attention="self", num_layers=sum(layers))
    _, plan = hand_written("llama2_7b", 4, 2, sequence=True, attention="self", num_layers=sum(layers))
    stages_num = len(layers) // interleave
    settings = replace(plan.settings, recompute={f"layers.{n}": Recompute() for n in again})
    stages, pipeline = pipeline_stages(graph, layers, [plan.strategies] * stages_num, settings, 8, interleave)
    return replace(plan, stages=stages, pipeline=pipeline, global_batch_size=64), graph


def test_the_degrees_of_a_plan_of_one_stage():
    graph, plan = hand_written("llama2_7b", 2, 4, sequence=True, recompute=True, attention="self")
    found = settings_of(replace(plan, sequence_parallel=True), graph)
    assert found["parallel_config"] == {
        "data_parallel": 2, "model_parallel": 4, "context_parallel": 1, "expert_parallel": 1, "pipeline_stage": 1,
        "micro_batch_num": 1, "use_seq_parallel": True,
    }  # fmt: skip
    assert found["recompute_config"]["recompute"] is True
    assert found["runner_config"] == {"batch_size": plan.global_batch_size // 2}
    assert "model" not in found


def test_blocks_of_uneven_stages():
    plan, graph = on_stages((3, 2, 2), again=(0, 1, 3))
    found = settings_of(plan, graph)
    assert found["recompute_config"]["recompute"] == [2, 1, 0]
    assert found["model"]["model_config"] == {"offset": [1, 0, 0]}
    assert found["parallel_config"]["micro_batch_num"] == 8


def test_interleaved_stages_are_told_run_by_run():
    """MindFormers' lists have a row for every run, with a number for every stage."""
    plan, graph = on_stages((2, 1, 1, 1), again=(0, 4), interleave=2)
    model = settings_of(plan, graph)["model"]["model_config"]
    assert model == {"pp_interleave_num": 2, "offset": [[1, 0], [0, 0]]}
    assert settings_of(plan, graph)["recompute_config"]["recompute"] == [[1, 0], [0, 1]]


def test_the_file_says_what_it_leaves_out():
    graph, plan = hand_written("llama2_7b", 2, 4, sequence=True, attention="self")
    text = mindformers_yaml(plan, graph)
    assert yaml.safe_load(text) == settings_of(plan, graph)
    assert "cannot be told" not in text
    other = replace(plan, data_parallel=1)
    assert "pipeline_stage is 4, not 8 devices" in mindformers_yaml(other, graph)


@pytest.mark.parametrize("kept", [(), ("attention.core.softmax",)])
def test_blocks_that_are_recomputed_in_part_are_named(kept):
    graph, plan = hand_written("llama2_7b", 2, 4, recompute=True, attention="self")
    (stage,) = plan.stages
    again = {name: Recompute(kept=kept) for name in stage.settings.recompute}
    plan = replace(plan, stages=(replace(stage, settings=replace(stage.settings, recompute=again)),))
    assert ("selective recomputation" in mindformers_yaml(plan, graph)) == bool(kept)


def test_swapped_optimizer_states():
    graph, plan = hand_written("llama2_7b", 2, 4)
    assert "optimizer" not in settings_of(plan, graph)
    (stage,) = plan.stages
    swapped = replace(plan, stages=(replace(stage, settings=replace(stage.settings, swap_optimizer=True)),))
    assert settings_of(swapped, graph)["optimizer"] == {"type": "AdamW", "swap": True}
    assert "MS_DEV_RUNTIME_CONF" in mindformers_yaml(swapped, graph)
