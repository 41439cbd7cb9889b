"""Verify a plan of several pipeline stages: one rank of every stage is compiled and compared."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.load_network import load_with_graph, whole_graph
from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell, whole_batch
from ms_symtensor.bridge.apply.whole_count import set_factors
from ms_symtensor.bridge.compiler.compile import compile_rank
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.judge.comparison import compare
from ms_symtensor.bridge.judge.verify import Verdict, require_compiler, require_loss, require_rank
from ms_symtensor.errors import CompilerError, InputError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.micro_loss import Factor
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.tensor.graph import Graph


def verify_stages(
    plan: Plan, planned: Graph | None = None, rank: int | None = None, rules: Mapping[str, Rule] | None = None
) -> tuple[Verdict, ...]:
    """The verdicts on one rank of every stage of `plan`, a pipeline, or on `rank` alone.

    Each stage is seen by another place in it, so that groups of all positions are compared. Errors: as of `verify`.
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
    return tuple(judge_rank(cell, inputs, graph, plan, programs, one) for one in ranks)


def judge_rank(
    cell: Any, inputs: Sequence[Any], graph: Graph, plan: Plan, programs: Sequence[StageProgram], rank: int
) -> Verdict:
    """The verdict on `rank`, whose stage is one of `programs`; `cell` carries `plan`, `inputs` are those of a micro-batch."""
    mindspore = import_mindspore()
    loss = require_loss(graph)
    sens = mindspore.Tensor(numpy.ones(loss.shape, numpy.float32), getattr(mindspore, loss.dtype))
    assert plan.pipeline is not None
    step = pipeline_training_cell(cell, plan.pipeline)
    start = time.perf_counter()
    try:
        compiled = compile_rank(
            step, *whole_batch(inputs, plan.micro_batch_num), sens, device_num=plan.device_num, rank=rank,
            parallel=parallel_config(plan),
        )  # fmt: skip
    except CompilerError as error:
        return Verdict(rank, mindspore.__version__, time.perf_counter() - start, accepted=False, reason=str(error))
    program = next(p for p in programs if rank in p.ranks)
    found = compare(graph, program, compiled)
    return Verdict(rank, compiled.mindspore, compiled.seconds, True, "", found.unsynchronised, found)
