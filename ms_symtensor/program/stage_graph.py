"""The part of a network that one pipeline stage runs, and what crosses its borders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.errors import InvalidStrategyError
from ms_symtensor.ops.placement import place
from ms_symtensor.program.borders import Borders, Received, why_not_sent
from ms_symtensor.program.gradients import differentiable_sources
from ms_symtensor.program.meanings import Meanings, default_strategy
from ms_symtensor.program.pipeline import Pipeline, runs_of_ops
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.tensor.graph import (
    LAZY_INLINE,
    Constant,
    Graph,
    InputRef,
    Op,
    OpOutput,
    ParameterRef,
    Source,
    flat,
    makers_of,
    replaced,
)
from ms_symtensor.tensor.layout import Layout


@dataclass(frozen=True)
class StageGraph:
    """What stage `stage` runs for one micro-batch: received tensors are inputs of `graph`, under their operator's name."""

    stage: int
    graph: Graph
    borders: Borders


@dataclass(frozen=True)
class Crossing:
    """A tensor that run `sender` makes and run `receiver`, on another stage, reads."""

    source: OpOutput
    sender: int
    receiver: int


def stage_graphs(
    graph: Graph,
    stages: Sequence[StagePlan],
    pipeline: Pipeline,
    known: Meanings,
    wanted: Sequence[int] | None = None,
) -> tuple[StageGraph, ...]:
    """The parts of `graph`, the network at the size of one micro-batch, that the stages of `pipeline` run: those of the stages
    `wanted`, or of all.

    `known`: what the operators of `graph` mean. Errors: those of `runs_of_ops`; InvalidStrategyError where MindSpore cannot
    cut the network.
    """
    runs = runs_of_ops(graph, pipeline)
    crossings = _crossings(graph, runs, pipeline.stage_num)
    trained = differentiable_sources(graph, {name: sig for name, (_, sig) in known.items()})
    readers = _readers(graph, runs, pipeline.stage_num)
    parts = _known_parts(graph, pipeline)
    found = []
    for stage in range(pipeline.stage_num) if wanted is None else wanted:
        arriving = {
            c.source: Received(
                c.sender % pipeline.stage_num,
                _layout(graph, known, stages[c.sender % pipeline.stage_num], c.source),
                c.source in trained,
            )
            for c in crossings
            if c.receiver % pipeline.stage_num == stage
        }
        leaving = [c for c in crossings if c.sender % pipeline.stage_num == stage]
        borders = Borders(
            received={_name(source): received for source, received in arriving.items()},
            sent=tuple(dict.fromkeys((c.source, c.receiver % pipeline.stage_num) for c in leaving)),
            parameters_received={name: on[0] for name, on in readers.items() if stage in on[1:]},
            parameters_sent={name: on[1:] for name, on in readers.items() if on[0] == stage and len(on) > 1},
            results=frozenset(c.source.op for c in leaving),
            gathered=frozenset(p.name for p in graph.parameters if graph.is_lazy_inline),
            is_interleaved=pipeline.interleave > 1,
        )
        if stage not in parts:
            ops = [op for op in graph.ops if any(run % pipeline.stage_num == stage for run in runs[op.name])]
            parts[stage] = _part(graph, ops, arriving, pipeline.stage_num)
        part = parts[stage]
        if not stage and graph.is_trained and not any(parameter.requires_grad for parameter in part.parameters):
            raise InvalidStrategyError("no weight of the first stage trains, which MindSpore rejects; use fewer stages")
        found.append(StageGraph(stage, part, borders))
    return tuple(found)


def _known_parts(graph: Graph, pipeline: Pipeline) -> dict[int, Graph]:
    """Where the parts of `graph` by stages are kept for other strategies: those of one pipeline, the last that was asked for."""
    lie = pipeline.layers, pipeline.head_run
    if graph.derived.get("stages") != lie:
        graph.derived["stages"], graph.derived["parts"] = lie, {}
    parts: dict[int, Graph] = graph.derived["parts"]
    return parts


def _crossings(graph: Graph, runs: Mapping[str, frozenset[int]], stage_num: int) -> list[Crossing]:
    """What is sent from stage to stage, in the order in which it is made; a tensor goes to another stage once."""
    found: dict[tuple[OpOutput, int], Crossing] = {}
    for op in graph.ops:
        for source in graph.tensor_inputs(op):
            if not isinstance(source, OpOutput) or len(runs[source.op]) != 1 or len(runs[op.name]) != 1:
                continue
            (sender,), (receiver,) = runs[source.op], runs[op.name]
            if sender % stage_num != receiver % stage_num:
                found.setdefault((source, receiver % stage_num), Crossing(source, sender, receiver))
    order = {op.name: number for number, op in enumerate(graph.ops)}
    return sorted(found.values(), key=lambda c: (order[c.source.op], c.source.index, c.receiver))


def _readers(graph: Graph, runs: Mapping[str, frozenset[int]], stage_num: int) -> dict[str, tuple[int, ...]]:
    """The stages that read every parameter, the first of them first: it owns the parameter."""
    found: dict[str, set[int]] = {}
    for op in graph.ops:
        for source in graph.tensor_inputs(op):
            if isinstance(source, ParameterRef):
                found.setdefault(source.name, set()).update(run % stage_num for run in runs[op.name])
    return {name: tuple(sorted(stages)) for name, stages in found.items()}


def _layout(graph: Graph, known: Meanings, stage: StagePlan, source: OpOutput) -> Layout:
    """How the tensor lies on the stage that makes it; MindSpore sends it so."""
    name, index = source.op, source.index
    if why_not := why_not_sent(graph.op_by_name[name].outputs[index]):
        raise InvalidStrategyError(f"a pipeline cannot be cut behind {name} ({graph.op_by_name[name].type}): {why_not}")
    while not known[name][1].shardable and not graph.op_by_name[name].reshapes:
        (behind, *_) = graph.tensor_inputs(graph.op_by_name[name])
        if not isinstance(behind, OpOutput):
            break
        name, index = behind.op, behind.index
    seen, sig = known[name]
    if graph.op_by_name[name].reshapes or not sig.shardable:
        raise InvalidStrategyError(
            f"a pipeline cannot be cut behind {name} ({graph.op_by_name[name].type}): MindSpore sends results of operators"
            " that it can shard; lay the layers out so that another operator ends the stage"
        )
    strategy = stage.strategies.get(name) or default_strategy(seen, sig, stage.settings.device_num)
    return place(seen, sig, strategy, stage.settings.device_num).outputs[index]


def _name(source: OpOutput) -> str:
    return f"{source.op}:{source.index}"


def _part(graph: Graph, ops: list[Op], arriving: Mapping[OpOutput, Received], stage_num: int) -> Graph:
    """The graph of `ops`; what they read of others are inputs.

    With micro-batches `@lazy_inline` is of all of the network or of nothing (`bridge.apply.pipeline_network`). On several stages
    MindSpore casts and gathers the weights of `@lazy_inline` outside its graph, once for all micro-batches, as it does those of
    other networks.
    """

    def moved(source: Source) -> Source:
        return InputRef(_name(source)) if isinstance(source, OpOutput) and source in arriving else source

    makers = {source.op for source in arriving}
    there = tuple(
        op if makers.isdisjoint(makers_of(op)) else replace(op, inputs=tuple(replaced(s, moved) for s in op.inputs))
        for op in ops
    )
    names = {op.name for op in ops}
    used = set(flat(source for op in there for source in op.inputs))
    borders = tuple((_name(s), kind) for s in arriving if (kind := graph.type_of(s)) is not None)
    output = graph.output
    return replace(
        graph,
        inputs=(*((name, kind) for name, kind in graph.inputs if InputRef(name) in used), *borders),
        parameters=tuple(
            replace(p, in_shared_block=graph.is_lazy_inline and stage_num == 1)
            for p in graph.parameters
            if ParameterRef(p.name) in used
        ),
        ops=there,
        output=output if not isinstance(output, OpOutput) or output.op in names else Constant(),
        attributes=tuple((name, "" if name == LAZY_INLINE else value) for name, value in graph.attributes),
    )
