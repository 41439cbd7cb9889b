"""Verify a plan of several pipeline stages: one rank of every stage is compiled and compared."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.load_network import load_with_graph, whole_graph
from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell, whole_batch
from ms_symtensor.bridge.apply.whole_count import set_factors
from ms_symtensor.bridge.compiler.compile import CompiledProgram
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.judge.comparison import compare
from ms_symtensor.bridge.judge.verify import Verdict, compile_or_reject, ones_of_loss, require_compiler, require_rank
from ms_symtensor.errors import InputError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.micro_loss import Factor
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.tensor.graph import Graph


def verify_stages(
    plan: Plan,
    planned: Graph | None = None,
    rank: int | None = None,
    rules: Mapping[str, Rule] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Verdict, ...]:
    """The verdicts on one rank of every stage of `plan`, a pipeline, or on `rank` alone.

    Each stage is seen by another place in it, so that groups of all positions are compared. `progress` is told which rank is
    compiled. Errors: as of `verify`.
    """
    if plan.pipeline is None:
        raise InputError("the plan has one stage: verify it as such")
    require_rank(rank or 0, plan.device_num)
    require_compiler(plan.device_num, rank or 0)
    cell, inputs, graph = load_with_graph(plan)
    apply(cell, graph, plan, planned, rules)
    factors: tuple[Factor, ...] = ()
    if plan.loss is not MicroBatchLoss.EACH:
        factors = set_factors(cell, graph, whole_graph(plan))
    counted = any(factor.count is not None for factor in factors)
    programs = partition_stages(graph, plan.stages, plan.pipeline, rules, counted=counted)
    ranks = [program.ranks[program.stage % len(program.ranks)] for program in programs] if rank is None else [rank]
    verdicts = list[Verdict]()
    for one in ranks:
        progress(f"compile rank {one}, {len(verdicts) + 1} of {len(ranks)}")
        verdicts.append(judge_rank(cell, inputs, graph, plan, programs, one))
    return tuple(verdicts)


def judge_rank(
    cell: Any, inputs: Sequence[Any], graph: Graph, plan: Plan, programs: Sequence[StageProgram], rank: int
) -> Verdict:
    """The verdict on `rank`, whose stage is one of `programs`; `cell` carries `plan`, `inputs` are those of a micro-batch."""
    assert plan.pipeline is not None
    program = next(p for p in programs if rank in p.ranks)
    compiled = compile_stage(cell, inputs, graph, plan.pipeline, parallel_config(plan), plan.device_num, rank)
    return compiled if isinstance(compiled, Verdict) else judge_stage(graph, program, compiled)


def compile_stage(
    cell: Any,
    inputs: Sequence[Any],
    graph: Graph,
    pipeline: Pipeline,
    parallel: ParallelConfig,
    device_num: int,
    rank: int,
) -> CompiledProgram | Verdict:
    """The program of `rank` for a step of `cell` over micro-batches like `inputs`, or the verdict that MindSpore rejects it."""
    whole = whole_batch(inputs, pipeline.micro_batch_num)
    step = pipeline_training_cell(cell, pipeline)
    return compile_or_reject(step, (*whole, ones_of_loss(graph)), device_num, rank, parallel)


def judge_stage(graph: Graph, program: StageProgram, compiled: CompiledProgram) -> Verdict:
    """The verdict on a compiled rank of the stage of `program`."""
    found = compare(graph, program, compiled)
    return Verdict(compiled.rank, compiled.mindspore, compiled.seconds, True, "", found.unsynchronised, found)
