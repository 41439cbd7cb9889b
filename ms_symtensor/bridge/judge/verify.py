"""Verify: let MindSpore's own compiler judge a plan."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.load_network import load_with_graph
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.compiler.compile import CompiledProgram, compile_rank
from ms_symtensor.bridge.compiler.host import ascend_compiler, import_mindspore
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.judge.comparison import Comparison, compare, unsynchronised
from ms_symtensor.errors import CompilerError, InputError, InvalidStrategyError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.ops.registry import Rule
from ms_symtensor.program.gradients import require_loss
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph


@dataclass(frozen=True)
class Verdict:
    """What MindSpore's compiler says of a strategy on one rank.

    `reason` tells why it is not accepted (then there is no comparison), or why an accepted one could not be predicted.
    `unsynchronised` names trainable parameters whose gradient is not summed over exactly the ranks of their slice. `trained`:
    whether there are any gradients.
    """

    rank: int
    mindspore: str
    compile_time_s: float
    accepted: bool
    reason: str = ""
    unsynchronised: tuple[str, ...] = ()
    comparison: Comparison | None = None
    trained: bool = True

    @property
    def synchronised(self) -> bool:
        return self.accepted and not self.unsynchronised

    @property
    def passed(self) -> bool:
        """Accepted, every gradient summed over the right ranks, and everything as predicted."""
        return self.synchronised and self.comparison is not None and self.comparison.equal


def verify(plan: Plan, planned: Graph | None = None, rank: int = 0, rules: Mapping[str, Rule] | None = None) -> Verdict:
    """Build the network of `plan`, apply the plan, compile one rank and compare with the prediction.

    Args:
        plan: A plan of one stage whose network can be built: of the zoo or of a factory.
        planned: The graph that was saved with the plan; it makes a mismatch easier to explain.
        rank: Whose program is compiled.
        rules: Signatures of further operators, by primitive name; they come first.

    Returns:
        What was compared; `passed` if the program is accepted, synchronised and as predicted.

    Raises:
        InputError: The plan is for another network, there is no such rank, or the plan names a factory and is not trusted
            (`Plan.trusted`).
        CompilerError: MindSpore cannot be driven here at all.
    """
    if not isinstance(plan, Plan):
        raise InputError(f"found a {type(plan).__name__} in place of a plan: load_plan(directory) gives one")
    require_rank(rank, plan.device_num)
    require_compiler(plan.device_num, rank)
    cell, inputs, graph = load_with_graph(plan)
    apply(cell, graph, plan, planned, rules)
    verdict, _ = judge(cell, inputs, graph, plan.stage, parallel_config(plan), rank, rules)
    return verdict


@no_garbage_collection()
def judge(
    cell: Any,
    inputs: Sequence[Any],
    graph: Graph,
    stage: StagePlan,
    parallel: ParallelConfig,
    rank: int,
    rules: Mapping[str, Rule] | None = None,
) -> tuple[Verdict, Program | None]:
    """The verdict on `cell`, whose primitives carry the strategies of `stage`, and the predicted program if there is one.

    Of a program that MindSpore rejects there is none; what is wrong by our own rules is added to its reason.

    Errors: UnknownOperatorError; InputError if the network does not return its loss alone.
    """
    device_num = stage.settings.device_num
    compiled = _compile_step(cell, inputs, graph, device_num, rank, parallel)
    try:
        predicted = partition(graph, stage, rules)
    except InvalidStrategyError as error:
        if isinstance(compiled, Verdict):
            return replace(compiled, reason=f"{compiled.reason}; {error}"), None
        return _accepted(compiled, graph, f"not predicted: {error}"), None
    if isinstance(compiled, Verdict):
        return compiled, None
    return _accepted(compiled, graph, "", compare(graph, predicted, compiled)), predicted


def require_rank(rank: int, device_num: int) -> None:
    """InputError unless `rank` is one of `device_num` devices."""
    if device_num < 1:
        raise InputError(f"device_num is {device_num}: give at least 1")
    if not 0 <= rank < device_num:
        raise InputError(f"there is no rank {rank} among {device_num} devices: give one from 0 to {device_num - 1}")


def require_compiler(device_num: int, rank: int) -> None:
    """CompilerError if MindSpore's compiler cannot be driven on this machine."""
    with ascend_compiler(device_num, rank):
        pass


def _compile_step(
    cell: Any, inputs: Sequence[Any], graph: Graph, device_num: int, rank: int, parallel: ParallelConfig
) -> CompiledProgram | Verdict:
    """The program of `rank` for a training step of `cell`, or the verdict that MindSpore rejects it."""
    if not graph.is_trained:
        return compile_or_reject(cell, inputs, device_num, rank, parallel)
    return compile_or_reject(training_cell(cell), (*inputs, ones_of_loss(graph)), device_num, rank, parallel)


def ones_of_loss(graph: Graph) -> Any:
    """Ones of the type of the loss of `graph`: what a training step takes behind the inputs."""
    mindspore, loss = import_mindspore(), require_loss(graph)
    return mindspore.Tensor(numpy.ones(loss.shape, numpy.float32), getattr(mindspore, loss.dtype))


def compile_or_reject(
    step: Any, inputs: Sequence[Any], device_num: int, rank: int, parallel: ParallelConfig
) -> CompiledProgram | Verdict:
    """The program of `rank` for `step(*inputs)`, or the verdict that MindSpore rejects it."""
    start = time.perf_counter()
    try:
        return compile_rank(step, *inputs, device_num=device_num, rank=rank, parallel=parallel)
    except CompilerError as error:
        version = import_mindspore().__version__
        return Verdict(rank, version, time.perf_counter() - start, accepted=False, reason=str(error))


def _accepted(compiled: CompiledProgram, graph: Graph, reason: str, comparison: Comparison | None = None) -> Verdict:
    wrong = comparison.unsynchronised if comparison is not None else unsynchronised(graph, compiled)
    numbers = compiled.rank, compiled.mindspore, compiled.seconds
    return Verdict(*numbers, True, reason, wrong, comparison, graph.is_trained)
