"""MindSpore's operator-strategy file: a plan in a form that MindSpore loads itself, without ms_symtensor.

It is read by `AutoParallel(net, parallel_mode="sharding_propagation").load_operator_strategy_file(path)`, for networks
without a single `shard()`. MindSpore takes it all or not at all: every operator that it has a distributed
implementation of must be listed, those that take no strategy from the user too.
"""

from typing import Any

from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import signature
from ms_symtensor.ops.signature import view
from ms_symtensor.program.forward import default_strategy
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.writing import json_text
from ms_symtensor.tensor.graph import Graph

CAPTURED_SCOPE = "Default"
"""What the names of a captured graph begin with."""
RECOMPUTE_MARK = "recompute_"
"""What MindSpore puts before the scope of everything in a cell with `recompute()`."""


def training_scope(graph: Graph, wrappers: tuple[str, ...] = ("network-GradientStep",)) -> str:
    """The scope of the network of `graph` inside `wrappers`, its enclosing cells as `attribute-Class`, outermost first.

    The outermost cell of all has no name of its own: MindSpore calls it "Default". So
    `AutoParallel(TrainOneStepCell(net, optimizer))` has the wrappers ("network-TrainOneStepCell",), and
    `Model(AutoParallel(net), optimizer=...)`, which becomes `TrainOneStepCell(AutoParallel(net))`, has
    ("network-AutoParallel",).
    """
    return "/".join((CAPTURED_SCOPE, *wrappers, f"network-{graph.name}"))


def operator_strategy(graph: Graph, plan: StagePlan, scope: str | None = None, stage: int = 0) -> dict[str, Any]:
    """The data of the file for `graph` under `plan`; for the part of a network that pipeline stage `stage` runs, its own.

    `scope` is where the network stands in the cell that is compiled: MindSpore names operators by their cells. Default:
    `training_scope(graph)`, that is `AutoParallel(training_cell(net))`.
    """
    names = _names(graph, plan, training_scope(graph) if scope is None else scope)
    inputs: dict[str, Any] = {
        f"{CAPTURED_SCOPE}/_VirtualDataset-op0": _item(tuple((1,) * len(kind.shape) for _, kind in graph.inputs), stage)
    }
    outputs: dict[str, Any] = {}
    for op in graph.ops:
        seen = view(graph, op)
        sig = signature(seen)
        if op.type == "Reshape":
            # MindSpore wants an entry, and then takes the layouts of a Reshape from its neighbours.
            strategy = OpStrategy(tuple((1,) * len(t.shape) for t in seen.inputs))
        elif sig.shardable and op.body is None:
            strategy = plan.strategies.get(op.name) or default_strategy(seen, sig, plan.settings.device_num)
        else:
            continue
        inputs[names[op.name]] = _item(strategy.inputs, stage)
        if strategy.outputs is not None:
            outputs[names[op.name]] = _item(strategy.outputs, stage)
    data = {"current_stage": stage, "parallel_strategy_item": inputs}
    return data | {"parallel_out_strategy_item": outputs} if outputs else data


def operator_strategy_text(graph: Graph, plan: StagePlan, scope: str | None = None, stage: int = 0) -> str:
    """The file itself."""
    return json_text(operator_strategy(graph, plan, scope, stage))


def _names(graph: Graph, plan: StagePlan, scope: str) -> dict[str, str]:
    """The name of every operator in the cell that is compiled, by its name in the graph."""
    return {
        op.name: (RECOMPUTE_MARK if op.block in plan.settings.recompute else "")
        + scope
        + op.name.removeprefix(CAPTURED_SCOPE)
        for op in graph.ops
    }


def _item(degrees: tuple[tuple[int, ...], ...], stage: int) -> dict[str, Any]:
    return {"parallel_strategy": [list(d) for d in degrees], "stage": stage}
