"""MindSpore's operator-strategy file: a plan in a form that MindSpore loads itself, without ms_symtensor.

It is read by `AutoParallel(net, parallel_mode="sharding_propagation").load_operator_strategy_file(path)`, for networks
without a single `shard()`. MindSpore takes it all or not at all: every operator that it has a distributed
implementation of must be listed, those that take no strategy from the user too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ms_symtensor.errors import InputError
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.ops.registry import signatures
from ms_symtensor.program.meanings import default_strategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.writing import json_text
from ms_symtensor.tensor.graph import Graph, TensorType

CAPTURED_SCOPE = "Default"
"""What the names of a captured graph begin with."""
RECOMPUTE_MARK = "recompute_"
"""What MindSpore puts before the scope of everything in a cell with `recompute()`."""
Degrees = tuple[tuple[int, ...], ...]


STEPS = ("network-GradientStep", "network-TrainOneStepCell", "network-AutoParallel")
"""What stands around a network that takes the batch as a whole, as `attribute-Class`: in `AutoParallel(training_cell(net))`;
`AutoParallel(TrainOneStepCell(net, optimizer))`; `Model(AutoParallel(net), optimizer=…)`, which becomes
`TrainOneStepCell(AutoParallel(net))`. The outermost cell of all has no name of its own: MindSpore calls it "Default"."""
ACCUMULATING_STEPS = ("network-AccumulationStep", "network-_TrainGradAccuStepCell", "network-AutoParallel")
"""The same around a `PipelineCell` or `GradAccumulationCell`: in `AutoParallel(pipeline_training_cell(net, pipeline))`, in
MindSpore's own step in an `AutoParallel`, and in a `Model`."""


def training_scope(graph: Graph, *wrappers: str) -> str:
    """The scope of the network of `graph` inside `wrappers`, its enclosing cells as `attribute-Class`, outermost first and
    without the outermost of all; ("network-TrainOneStepCell",) for example.
    """
    return "/".join((CAPTURED_SCOPE, *wrappers, f"network-{graph.name}"))


def operator_strategy(graph: Graph, plan: StagePlan, steps: Sequence[str] = STEPS) -> dict[str, Any]:
    """The data of the file for `graph` under `plan`, for a network inside any of the `steps`: MindSpore names operators by the
    cells in which they stand, and passes over names that it does not find.
    """
    names = [_names(graph, plan, training_scope(graph, step)) for step in steps]
    return _data(graph, plan, {op.name: tuple(of_step[op.name] for of_step in names) for op in graph.ops}, ())


def pipeline_operator_strategy(graph: Graph, plan: Plan, steps: Sequence[str] = ACCUMULATING_STEPS) -> dict[str, Any]:
    """The data of the file for `plan`, which takes micro-batches, and `graph`, the network at the size of one of them.

    One file is for the ranks of all stages: MindSpore loads it before it divides the network among them, and calls what it
    says stage 0. `steps`: as of `operator_strategy`. Errors: InputError unless `plan` takes micro-batches, and for
    interleaved stages, of which MindSpore was not seen to load any.
    """
    pipeline = plan.pipeline
    if pipeline is None:
        raise InputError("the plan takes the batch as a whole: use operator_strategy")
    if pipeline.needs_config:
        raise InputError("there is no file for interleaved stages: apply the plan (load_plan), or use shard.py")
    whole = StagePlan(plan.strategies, plan.settings)
    around = [(step, f"network-{pipeline.wrapper}") for step in steps]
    scopes = [training_scope(graph, *wrappers) for wrappers in around]
    names = [_copies(_names(graph, whole, scope), scope, pipeline) for scope in scopes]
    return _data(
        graph,
        whole,
        {op.name: tuple(name for of_step in names for name in of_step[op.name]) for op in graph.ops},
        (one for wrappers in around for one in _micro_batches(graph, "/".join((CAPTURED_SCOPE, *wrappers)), pipeline)),
    )


def operator_strategy_text(graph: Graph, plan: Plan) -> str:
    """The file itself, for the usual training steps."""
    if plan.pipeline is None:
        return json_text(operator_strategy(graph, plan.stage))
    return json_text(pipeline_operator_strategy(graph, plan))


def _data(
    graph: Graph, plan: StagePlan, names: Mapping[str, tuple[str, ...]], others: Iterable[tuple[str, Degrees]]
) -> dict[str, Any]:
    inputs: dict[str, Any] = {f"{CAPTURED_SCOPE}/_VirtualDataset-op0": _item(_whole(kind for _, kind in graph.inputs))}
    inputs |= {name: _item(degrees) for name, degrees in others}
    outputs: dict[str, Any] = {}
    for op, (seen, sig) in zip(graph.ops, signatures(graph).values(), strict=True):
        if op.type == "Reshape":
            # MindSpore wants an entry, and then takes the layouts of a Reshape from its neighbours.
            strategy = OpStrategy(_whole(seen.inputs))
        elif sig.shardable and op.body is None:
            strategy = plan.strategies.get(op.name) or default_strategy(seen, sig, plan.settings.device_num)
        else:
            continue
        for name in names[op.name]:
            inputs[name] = _item(strategy.inputs)
            if strategy.outputs is not None:
                outputs[name] = _item(strategy.outputs)
    data = {"current_stage": 0, "parallel_strategy_item": inputs}
    return data | {"parallel_out_strategy_item": outputs} if outputs else data


def _names(graph: Graph, plan: StagePlan, scope: str) -> dict[str, str]:
    """The name of every operator in the cell that is compiled, by its name in the graph."""
    marked = {name for name, recomputation in plan.settings.recompute.items() if not recomputation.only}
    return {
        op.name: (RECOMPUTE_MARK if op.block in marked else "") + scope + op.name.removeprefix(CAPTURED_SCOPE)
        for op in graph.ops
    }


def _copies(names: Mapping[str, str], scope: str, pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """All names of every operator: MindSpore numbers the copies for further micro-batches on, type by type in every cell.

    On one stage it copies all operators, on several only those of the network's own `construct`, outside any cell in it.
    """
    count = Counter(_series(full) for full in names.values())
    found = {}
    for name, full in names.items():
        series, number = _series(full), int(full.removeprefix(_series(full)))
        copied = pipeline.stage_num == 1 or series.rpartition("/")[0] == scope
        numbers = range(number, number + count[series] * (pipeline.micro_batch_num if copied else 1), count[series])
        found[name] = tuple(f"{series}{one}" for one in numbers)
    return found


def _series(name: str) -> str:
    """The name of an operator without its number."""
    return name.rstrip("0123456789")


def _micro_batches(graph: Graph, scope: str, pipeline: Pipeline) -> Iterator[tuple[str, Degrees]]:
    """What cuts the batch into micro-batches and adds up their losses, in the cell of `scope` around the network."""
    for number in range(pipeline.micro_batch_num):
        for place, (_, kind) in enumerate(graph.inputs):
            yield f"{scope}/micro_inputs-CellList/{number}-_MicroBatch/StridedSlice-op{place}", _whole((kind,))
    for number in range(pipeline.micro_batch_num - 1):
        yield f"{scope}/Add-op{number}", ((), ())


def _whole(kinds: Iterable[TensorType]) -> Degrees:
    return tuple((1,) * len(kind.shape) for kind in kinds)


def _item(degrees: Degrees) -> dict[str, Any]:
    return {"parallel_strategy": [list(d) for d in degrees], "stage": 0}
