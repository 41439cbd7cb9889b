"""The files of a resharding: the strategy checkpoints that MindSpore's `transform_checkpoints` reads, and the moves.

`transform_checkpoints(src, dst, prefix, "from.ckpt", "to.ckpt")`; MindRLHF's `TransformParametersD2D` takes the same two as
merged strategies. Ranks are those of the plans: which device each runs on is `alignment` of `reshard.json`.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ms_symtensor.files.folder import write_named
from ms_symtensor.program.program import ParameterPlacement, Program
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.reshard.slices import STATES, Side
from ms_symtensor.strategy.checkpoint import (
    checkpoint_json,
    checkpoint_protobuf,
    layout_item,
    merged,
    strategy_checkpoint,
)
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.writing import json_text
from ms_symtensor.tensor.graph import Graph

NAMES = ("from.json", "from.ckpt", "to.json", "to.ckpt", "reshard.json", "reshard.txt")


def checkpoint_of(
    plan: Plan, graph: Graph, programs: Sequence[Program | StageProgram], side: Side, has_states: bool
) -> dict[str, Any]:
    """The merged strategy checkpoint of what `side` holds of `plan`."""
    states = STATES if has_states else ()
    is_whole = side.replicas > 1 or not any(slices.gather for held in side.tensors for _, slices in held.stages)
    stages = []
    for program, stage in zip(programs, plan.stages, strict=True):
        here, number = (program.graph, program.stage) if isinstance(program, StageProgram) else (graph, 0)
        places = program.parameters
        if is_whole:
            places = {name: _whole(place, side.replicas) for name, place in places.items()}
        stages.append(strategy_checkpoint(here, _repeated(stage, side.replicas), places, states, number))
    return merged(stages)


def checkpoint_of_side(side: Side) -> dict[str, Any]:
    """The merged strategy checkpoint of weights that no optimizer shards; without a plan it has no operator's strategy."""
    stages = []
    for stage in range(side.stage_num):
        of_stage = StagePlan({}, Settings(side.replicas * side.stage_ranks))
        places = {
            held.name: _whole(ParameterPlacement(slices.layout, held.dtype, False), side.replicas)
            for held in side.tensors
            for number, slices in held.stages
            if number == stage
        }
        items = {name: layout_item(place, of_stage) for name, place in sorted(places.items())}
        stages.append({"current_stage": 2, "parallel_layout_item": items, "parallel_strategy_item": {}})
    return merged(stages)


def write_reshard(
    directory: str | os.PathLike[str], source: dict[str, Any], target: dict[str, Any], data: dict[str, Any], text: str
) -> tuple[str, ...]:
    """Write the two checkpoints in both forms, `data` and `text`; the names of the files. InputError if that is impossible."""
    files: dict[str, str | bytes] = {}
    for name, checkpoint in (("from", source), ("to", target)):
        files |= {f"{name}.json": checkpoint_json(checkpoint), f"{name}.ckpt": checkpoint_protobuf(checkpoint)}
    files |= {"reshard.json": json_text(data), "reshard.txt": text + "\n"}
    write_named(directory, files, NAMES)
    return tuple(files)


def _whole(place: ParameterPlacement, replicas: int) -> ParameterPlacement:
    layout = replace(place.layout, device_matrix=(replicas, *place.layout.device_matrix), fine=None)
    return replace(place, layout=layout, shard=1, gather=None)


def _repeated(stage: StagePlan, replicas: int) -> StagePlan:
    return replace(stage, settings=replace(stage.settings, device_num=stage.settings.device_num * replicas))
