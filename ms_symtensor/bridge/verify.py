"""Verify: let MindSpore's own compiler judge a plan."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from ms_symtensor.bridge.apply import apply, parallel_config
from ms_symtensor.bridge.capture import capture
from ms_symtensor.bridge.comparison import Comparison, compare
from ms_symtensor.bridge.compile import CompiledProgram, compile_rank
from ms_symtensor.bridge.host import ascend_compiler, import_mindspore
from ms_symtensor.bridge.load_network import load_network
from ms_symtensor.bridge.parallel_context import ParallelConfig
from ms_symtensor.bridge.scopes import fresh_scopes
from ms_symtensor.bridge.training import training_cell
from ms_symtensor.errors import CompilerError, InputError
from ms_symtensor.program.partition import partition
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Verdict:
    """What MindSpore's compiler says of a strategy on one rank.

    `comparison` is None, and `rejection` MindSpore's reason, where the program was not accepted.
    """

    rank: int
    mindspore: str
    compile_time_s: float
    comparison: Comparison | None = None
    rejection: str = ""

    @property
    def accepted(self) -> bool:
        return self.comparison is not None

    @property
    def passed(self) -> bool:
        """Accepted, every gradient summed over the right ranks, and everything as predicted."""
        found = self.comparison
        return found is not None and found.equal and not found.unsynchronised


def verify(plan: Plan, planned: Graph | None = None, rank: int = 0) -> Verdict:
    """Build the network of `plan`, apply the plan, compile rank `rank` and compare with the prediction.

    `planned`, the graph that was saved with the plan, makes a mismatch easier to explain. InputError: the plan is for another
    network, or there is no such rank. CompilerError: MindSpore cannot be driven here at all.
    """
    require_rank(rank, plan.device_num)
    require_compiler(plan.device_num, rank)
    cell, inputs = load_network(plan.source)
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    apply(cell, graph, plan, planned)
    predicted = partition(graph, plan.stage)
    compiled = compile_step(cell, inputs, graph, plan.device_num, rank, parallel_config(plan))
    if isinstance(compiled, Verdict):
        return compiled
    return Verdict(rank, compiled.mindspore, compiled.seconds, compare(graph, predicted, compiled))


def compile_step(
    cell: Any, inputs: Sequence[Any], graph: Graph, device_num: int, rank: int, parallel: ParallelConfig
) -> CompiledProgram | Verdict:
    """The program of `rank` for a training step of `cell`, of which `graph` was captured; a Verdict if it is rejected."""
    mindspore = import_mindspore()
    loss = graph.type_of(graph.output)
    if loss is None or "float" not in loss.dtype:
        raise InputError(f"{graph.name} must return its loss, one tensor of floats: return nothing beside it")
    sens = mindspore.Tensor(numpy.ones(loss.shape, numpy.float32), getattr(mindspore, loss.dtype))
    start = time.perf_counter()
    try:
        return compile_rank(training_cell(cell), *inputs, sens, device_num=device_num, rank=rank, parallel=parallel)
    except CompilerError as error:
        return Verdict(rank, mindspore.__version__, time.perf_counter() - start, rejection=str(error))


def require_rank(rank: int, device_num: int) -> None:
    """InputError unless `rank` is one of `device_num` devices."""
    if not 0 <= rank < device_num:
        raise InputError(f"there is no rank {rank} among {device_num} devices: give one from 0 to {device_num - 1}")


def require_compiler(device_num: int, rank: int) -> None:
    """CompilerError if MindSpore's compiler cannot be driven on this machine."""
    with ascend_compiler(device_num, rank):
        pass

