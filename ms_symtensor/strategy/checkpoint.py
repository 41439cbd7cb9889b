"""MindSpore's strategy checkpoint: how every parameter lies on the devices, for MindSpore's resharding of checkpoints.

It is what `set_auto_parallel_context(strategy_ckpt_config={"save_file": ...})` makes MindSpore write at a compile, and
what `rank_list_for_transform`, `transform_checkpoints` and `load_distributed_checkpoint` read. MindSpore chooses the form
by the file's ending: JSON for ".json", otherwise a protobuf with the messages of `mindspore.train.node_strategy_pb2`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ms_symtensor.ops.registry import signatures
from ms_symtensor.program.meanings import default_strategy
from ms_symtensor.program.program import ParameterPlacement
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.writing import json_text
from ms_symtensor.tensor.graph import Graph, OpOutput, ParameterRef, Source

_SAVES = 2  # per compile


def strategy_checkpoint(
    graph: Graph,
    plan: StagePlan,
    placements: Mapping[str, ParameterPlacement],
    optimizer_states: Iterable[str] = (),
    stage: int = 0,
) -> dict[str, Any]:
    """The checkpoint of `graph` under `plan` as plain data, keys sorted; `placements` are where its parameters lie
    (`Program.parameters`). For pipeline stage `stage`, `graph` is its part of the network.

    `optimizer_states` are the names that an optimizer puts before those of the parameters for its states: "adam_m" and
    "adam_v" for AdamWeightDecay; states lie as their parameters do. `current_stage` is a count of saves in MindSpore: 2
    after the first compile of a process.
    """
    layouts = {}
    for name, placement in placements.items():
        item = layout_item(placement, plan)
        layouts[name] = item
        if placement.requires_grad:
            layouts |= {f"{state}.{name}": item for state in optimizer_states}
    return {
        "current_stage": _SAVES,
        "parallel_layout_item": dict(sorted(layouts.items())),
        "parallel_strategy_item": dict(sorted(_strategies(graph, plan, stage).items())),
    }


def merged(stages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The checkpoint of all pipeline stages, as `merge_pipeline_strategys` makes it of one for each: names of parameters have
    their stage before them.
    """
    if len(stages) == 1:
        return stages[0]
    layouts = {
        f"{n}-{name}": item for n, one in enumerate(stages) for name, item in one["parallel_layout_item"].items()
    }
    strategies = {name: item for one in stages for name, item in one["parallel_strategy_item"].items()}
    return {"current_stage": 1, "parallel_layout_item": layouts, "parallel_strategy_item": strategies}


def checkpoint_json(checkpoint: dict[str, Any]) -> str:
    """The JSON form."""
    return json_text(checkpoint)


def checkpoint_protobuf(checkpoint: dict[str, Any]) -> bytes:
    """The protobuf form: a `ParallelStrategyMap`."""
    strategies = b"".join(
        _message(2, _text(1, name) + _message(2, _number(1, item["stage"]) + b"".join(
            _message(2, _numbers(1, degrees)) for degrees in item["parallel_strategy"]
        )))
        for name, item in checkpoint["parallel_strategy_item"].items()
    )  # fmt: skip
    items = checkpoint["parallel_layout_item"]
    written = {id(item): item for item in items.values()}  # one for a parameter and its states
    message = {key: _message(2, _layout(item)) for key, item in written.items()}
    layouts = b"".join(_message(3, _text(1, name) + message[id(item)]) for name, item in items.items())
    return _number(1, checkpoint["current_stage"]) + strategies + layouts


def _layout(item: dict[str, Any]) -> bytes:
    return b"".join((
        _message(1, _numbers(1, item["dev_matrix"])),
        _message(2, _numbers(1, item["tensor_map"])),
        _message(3, b""),  # for embeddings that are cut by hand into unequal parts: empty here
        _message(4, b""),
        _number(5, item["field"]),
        _number(6, item["opt_weight_shard_step"]),
        _number(7, item["opt_weight_shard_size"]),
    ))  # fmt: skip


def layout_item(placement: ParameterPlacement, plan: StagePlan) -> dict[str, Any]:
    """A parameter's entry; MindSpore leaves axes of size one out of the device matrix."""
    layout = placement.layout
    kept = [axis for axis, size in enumerate(layout.device_matrix) if size > 1]
    from_right = {len(layout.device_matrix) - 1 - axis: len(kept) - 1 - i for i, axis in enumerate(kept)}
    size = step = 0
    if placement.gather is not None:
        ranks = placement.gather.ranks()
        size, step = plan.settings.optimizer_weight_shard_size, ranks[1] - ranks[0]
    return {
        "dev_matrix": [layout.device_matrix[axis] for axis in kept] or [1],
        "field": 0,
        "opt_weight_shard_size": size,
        "opt_weight_shard_step": step,
        "tensor_map": [from_right.get(axis, -1) for axis in layout.tensor_map],
        "tensor_shape": list(layout.shape),
    }


def _strategies(graph: Graph, plan: StagePlan, stage: int) -> dict[str, Any]:
    """The strategies of the operators that read a parameter, under their type and the name of the first one they
    read.
    """
    found = {}
    for op, (seen, sig) in zip(graph.ops, signatures(graph).values(), strict=True):
        if not sig.shardable or op.body is not None:
            continue
        read = [root.name for s in graph.tensor_inputs(op) if isinstance(root := _root(graph, s), ParameterRef)]
        if read:
            strategy = plan.strategies.get(op.name) or default_strategy(seen, sig, plan.settings.device_num)
            found[f"{op.type}_{read[0]}"] = {"parallel_strategy": [list(d) for d in strategy.inputs], "stage": stage}
    return found


def _root(graph: Graph, source: Source) -> Source:
    """The source behind casts."""
    while isinstance(source, OpOutput) and graph.op_by_name[source.op].type == "Cast":
        source = graph.tensor_inputs(graph.op_by_name[source.op])[0]
    return source


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative number is written as its two's complement in 64 bits
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _numbers(field: int, values: Iterable[int]) -> bytes:
    return b"".join(_number(field, value) for value in values)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
