import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from planned import SENS, OtherStep, network, plan_of, planned, summary
from training_cells import TransposedWeight

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell, set_stages, whole_batch
from ms_symtensor.bridge.apply.recompute import set_recompute
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiled.gradient_sums import gradient_sums
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.plugin.load_route import compile_loaded
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.settings import OptimizerLevel, Recompute
from ms_symtensor.strategy.file import save
from ms_symtensor.strategy.operator_json import operator_strategy, operator_strategy_text
from ms_symtensor.strategy.stages import pipeline_stages
from ms_symtensor.strategy.writing import json_text

BOTH = {"layers.0": Recompute(), "layers.1": Recompute()}


@pytest.mark.parametrize(
    ("name", "data", "tensor", "sequence", "level", "blocks"),
    [
        ("llama2_7b", 2, 4, True, 1, {}),
        pytest.param("gpt2_xl", 4, 2, True, 0, {}, marks=pytest.mark.matrix),
        pytest.param("bert_large", 2, 2, False, 3, {}, marks=pytest.mark.matrix),
        ("llama2_7b", 8, 1, False, 2, BOTH),
    ],
)
def test_loaded_strategies_compile_to_the_collectives_of_shard(name, data, tensor, sequence, level, blocks, tmp_path):
    num_layers = max(1, len(blocks))
    cell, inputs, graph, plan = planned(
        name, data, tensor, sequence, num_layers, optimizer_level=OptimizerLevel(level), recompute=blocks
    )
    apply(cell, graph, plan)
    device_num = data * tensor
    sharded = compile_rank(training_cell(cell), *inputs, SENS, device_num=device_num, parallel=parallel_config(plan))

    bare, inputs = network(name, num_layers=num_layers)
    for block in blocks:
        set_recompute(dict(bare.cells_and_names())[block], Recompute())
    file = tmp_path / "strategy.json"
    file.write_text(operator_strategy_text(graph, plan))
    loaded = compile_loaded(training_cell(bare), *inputs, SENS, file=file, plan=plan)
    assert summary(loaded) == summary(sharded)
    assert loaded.layout_by_name == sharded.layout_by_name
    sums = gradient_sums(loaded, [p.name for p in bare.trainable_params()])
    assert sums == {name: frozenset(lay.layout.copies.ranks()) for name, lay in loaded.layout_by_name.items()}


@pytest.mark.parametrize(
    ("name", "stage_num", "micro_batch_num", "sequence", "blocks", "rank"),
    [
        ("llama2_7b", 2, 3, True, {"layers.1": Recompute()}, 4),
        pytest.param("gpt2_xl", 1, 2, False, {}, 0, marks=pytest.mark.matrix),
    ],
)
def test_one_file_is_for_the_ranks_of_all_stages(name, stage_num, micro_batch_num, sequence, blocks, rank, tmp_path):
    cell, inputs, graph, plan = planned(name, 2, 2, sequence, recompute=blocks)
    stages, pipeline = pipeline_stages(
        graph, (2 // stage_num,) * stage_num, [plan.strategies] * stage_num, plan.settings, micro_batch_num
    )
    plan = replace(plan, stages=stages, pipeline=pipeline)
    batch = (*whole_batch(inputs, micro_batch_num), SENS)
    apply(cell, graph, plan)
    step = pipeline_training_cell(cell, pipeline)
    sharded = compile_rank(step, *batch, device_num=plan.device_num, rank=rank, parallel=parallel_config(plan))

    bare, _ = network(name)
    set_stages(bare, graph, pipeline)
    for block in blocks:
        set_recompute(dict(bare.cells_and_names())[block], blocks[block])
    file = tmp_path / "strategy.json"
    file.write_text(operator_strategy_text(graph, plan))
    loaded = compile_loaded(pipeline_training_cell(bare, pipeline), *batch, file=file, plan=plan, rank=rank)
    assert summary(loaded) == summary(sharded)
    assert loaded.layout_by_name == sharded.layout_by_name


def test_the_gradient_of_a_transposed_weight_is_lost_on_both_routes(tmp_path):
    """MindSpore puts no mirror behind a Transpose of a parameter: its gradient stays one device's own."""
    cell = TransposedWeight()
    x = ms.Tensor(np.zeros((16, 16), np.float32))
    graph = capture(cell, x)
    strategies = {
        "Default/Transpose-op0": OpStrategy(((1, 1),)),
        "Default/MatMul-op0": OpStrategy(((8, 1), (1, 1))),
        "Default/ReduceSum-op0": OpStrategy(((8, 1),)),
    }
    plan = plan_of(graph, strategies, 8)
    file = tmp_path / "strategy.json"
    file.write_text(operator_strategy_text(graph, plan))
    loaded = compile_loaded(training_cell(TransposedWeight()), x, SENS, file=file, plan=plan)
    apply(cell, graph, plan)
    sharded = compile_rank(training_cell(cell), x, SENS, device_num=8, parallel=parallel_config(plan))
    assert gradient_sums(loaded, ["weight"]) == gradient_sums(sharded, ["weight"]) == {"weight": frozenset({0})}


def test_the_step_around_the_network_is_part_of_the_names(tmp_path):
    _, _, graph, plan = planned("llama2_7b", 4, 2, num_layers=1)
    file = tmp_path / "strategy.json"
    file.write_text(json_text(operator_strategy(graph, plan.stage, ["network-OtherStep"])))
    bare, inputs = network(num_layers=1)
    program = compile_loaded(OtherStep(bare), *inputs, SENS, file=file, plan=plan)
    assert program.layout_by_name["output_table"].layout.cuts == (2, 1)


def test_mindspore_refuses_a_file_that_misses_an_operator(tmp_path):
    """In a process of its own: MindSpore remembers what it has loaded."""
    _, _, graph, plan = planned("llama2_7b", 2, 4, num_layers=1)
    save(plan, tmp_path)
    text = operator_strategy_text(graph, plan).replace("attention_norm-Norm/RmsNorm-op0", "elsewhere")
    (tmp_path / "strategy.json").write_text(text)
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from planned import SENS, network
from ms_symtensor.bridge.plugin.load_route import compile_loaded
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.strategy.file import load
cell, inputs = network(num_layers=1)
plan = load({str(tmp_path)!r})
file = {str(tmp_path / "strategy.json")!r}
compile_loaded(training_cell(cell), *inputs, SENS, file=file, plan=plan)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 1 and "CompilerError: MindSpore rejects AutoParallel: Load strategies failed" in done.stderr
    )
