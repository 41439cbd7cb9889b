"""`partition(graph, plan)`: the program that MindSpore's compiler will write for every rank."""

from collections.abc import Mapping
from dataclasses import replace

from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.backward import backward
from ms_symtensor.program.borders import NO_BORDERS, Borders
from ms_symtensor.program.casts_first import cast_first
from ms_symtensor.program.effects import read_from_outside
from ms_symtensor.program.forward import forward
from ms_symtensor.program.kept_slices import keep_slices, sliced_operators
from ms_symtensor.program.listing import depth_first
from ms_symtensor.program.liveness import node_steps, schedule
from ms_symtensor.program.meanings import Meanings, meanings
from ms_symtensor.program.program import COLLECTIVES, Program
from ms_symtensor.program.settings import OptimizerLevel, StagePlan
from ms_symtensor.program.sharing import merge_gathers, share_equal
from ms_symtensor.tensor.copies import with_copies
from ms_symtensor.tensor.graph import Graph


def partition(
    graph: Graph,
    plan: StagePlan,
    rules: Mapping[str, Rule] | None = None,
    known: Meanings | None = None,
    borders: Borders = NO_BORDERS,
) -> Program:
    """The training program of one step of `graph` under `plan`, optimizer update left out.

    `known` saves finding the operators' meanings again where one graph is partitioned many times. `borders`: the graph is
    what one stage of a pipeline runs for one micro-batch.

    Errors: UnknownOperatorError, InvalidStrategyError (naming the operator).
    """
    known = meanings(graph, rules) if known is None else known
    graph, plan, known, copies = _with_copies(graph, plan, known)
    half = forward(graph, plan, known, borders)
    built = half.builder
    outside = read_from_outside(graph)
    in_pipeline = borders is not NO_BORDERS
    built.nodes = merge_gathers(built.nodes, built.tensors, half.loss, outside, borders.is_interleaved)
    backward(half, plan.settings, in_pipeline)
    if plan.settings.optimizer_level is OptimizerLevel.LEVEL3:
        in_shared = {name for name, placed in half.parameters.items() if placed.in_shared_block}
        built.nodes = cast_first(built.nodes, built.tensors, in_shared) if in_shared else built.nodes
    # Between micro-batches gradients add up, of every parameter by itself; with level2 they are scattered before.
    scattered = {"ReduceScatter"} if plan.settings.optimizer_level is OptimizerLevel.LEVEL2 else set()
    apart = COLLECTIVES - scattered if in_pipeline else frozenset()
    reshapes = {op.name for op in graph.ops if op.type == "Reshape"}
    shared = share_equal(
        built.nodes, built.tensors, built.recomputed, half.signatures, reshapes, apart, outside, copies
    )
    sliced = sliced_operators(graph, plan.settings)
    if sliced:
        shared = keep_slices(shared, built.tensors, sliced, half.placements, built.tensor)
    nodes = depth_first(shared)
    ordered = tuple(nodes[i] for i in schedule(node_steps(nodes), built.kept))
    kept, given, held = (frozenset(tensors) for tensors in (built.kept, built.given, built.held))
    tensors = tuple(built.tensors)
    again = frozenset(block for block, chosen in plan.settings.recompute.items() if not chosen.only)
    return Program(plan.settings.device_num, tensors, ordered, half.parameters, kept, given, held, built.seed, again)


def _with_copies(
    graph: Graph, plan: StagePlan, known: Meanings
) -> tuple[Graph, StagePlan, Meanings, Mapping[str, str]]:
    """All of it with what MindSpore differentiates several times as several operators, and these by the names of their copies."""
    written, origins = with_copies(graph)
    if not origins:
        return graph, plan, known, origins
    strategies = {copy: plan.strategies[name] for copy, name in origins.items() if name in plan.strategies}
    meant = {copy: known[name] for copy, name in origins.items()}
    return written, replace(plan, strategies={**plan.strategies, **strategies}), {**known, **meant}, origins
