"""The strategy checkpoint that the strategy room writes, against the one that MindSpore saves itself."""

import json
from dataclasses import replace

import pytest
from planned import SENS, planned

from model_zoo.network import optimizer
from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.program.partition import partition
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.strategy.checkpoint import checkpoint_json, checkpoint_protobuf, strategy_checkpoint

STATES = ("adam_m", "adam_v")


def saved_by_mindspore(cell, inputs, plan, path):
    step = training_cell(cell, optimizer(cell.trainable_params()))
    parallel = replace(
        parallel_config(plan), strategy_ckpt_config={"save_file": str(path), "only_trainable_params": False}
    )
    compile_rank(step, *inputs, SENS, device_num=plan.device_num, parallel=parallel)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "data", "tensor", "sequence", "settings"),
    [
        ("llama2_7b", 2, 4, True, {"optimizer_level": OptimizerLevel.LEVEL1}),
        ("gpt2_xl", 4, 2, False, {"optimizer_level": OptimizerLevel.LEVEL3, "parallel_optimizer_threshold_KB": 0}),
        ("bert_large", 2, 4, True, {}),
    ],
)
def test_json_equals_mindspores(name, data, tensor, sequence, settings, tmp_path):
    num_layers = 2 if name == "llama2_7b" else 1
    cell, inputs, graph, plan = planned(name, data, tensor, sequence, num_layers, **settings)
    apply(cell, graph, plan)
    theirs = json.loads(saved_by_mindspore(cell, inputs, plan, tmp_path / "strategy.json"))
    ours = json.loads(
        checkpoint_json(strategy_checkpoint(graph, plan.stage, partition(graph, plan.stage).parameters, STATES))
    )
    del theirs["current_stage"], ours["current_stage"]  # counts the saves of the process
    assert ours == theirs


def test_protobuf_equals_mindspores(tmp_path):
    from mindspore.train.node_strategy_pb2 import ParallelStrategyMap

    cell, inputs, graph, plan = planned("llama2_7b", 2, 4, num_layers=1, optimizer_level=OptimizerLevel.LEVEL2)
    apply(cell, graph, plan)
    theirs, ours = ParallelStrategyMap(), ParallelStrategyMap()
    theirs.ParseFromString(saved_by_mindspore(cell, inputs, plan, tmp_path / "strategy.ckpt"))
    written = checkpoint_protobuf(
        strategy_checkpoint(graph, plan.stage, partition(graph, plan.stage).parameters, STATES)
    )
    ours.ParseFromString(written)
    assert ours.SerializeToString() == written
    # MindSpore writes the items in the order of its hash maps.
    for items in ("parallel_layout_item", "parallel_strategy_item"):
        assert sorted(map(str, getattr(ours, items))) == sorted(map(str, getattr(theirs, items)))
