"""Prove: run the program that MindSpore compiled for every rank, and compare with one process that has it all."""

import os
import tempfile
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.load_network import load_with_graph, with_graph
from ms_symtensor.bridge.apply.whole_count import set_factors
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.capture.scopes import fresh_scopes
from ms_symtensor.bridge.capture.user_settings import settings_of_user
from ms_symtensor.bridge.capture.user_stages import stages_of_context
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof import trial
from ms_symtensor.bridge.proof.batch_norm import NOTE as BATCH_NORM_NOTE
from ms_symtensor.bridge.proof.batch_norm import offsets, parts_of_samples
from ms_symtensor.bridge.proof.comparison import Difference
from ms_symtensor.bridge.proof.fewer_ranks import on_first_ranks
from ms_symtensor.bridge.proof.launch import Processes, started
from ms_symtensor.bridge.proof.reduction import reduce_plan
from ms_symtensor.bridge.proof.subject import Micro, Subject, alike_samples
from ms_symtensor.bridge.proof.substitution import Substituter
from ms_symtensor.bridge.proof.values import input_values, uneven_counts
from ms_symtensor.bridge.proof.workspace import begin
from ms_symtensor.errors import ExecutionError, InputError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.ops.signature import view
from ms_symtensor.program.schedules.scheduler import Turn
from ms_symtensor.strategy.file import check
from ms_symtensor.strategy.loss import loss_note, loss_of
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import context_settings
from ms_symtensor.tensor.graph import Graph

TIME_LIMIT_S = 600.0
MAX_RANKS = 16
PROCESS_B = 450 << 20
"""Resident memory of a process that has loaded MindSpore; measured."""
FLOAT32_B = 4


@dataclass(frozen=True)
class Request:
    """How to prove: with `steps`, that many optimizer steps too; `time_limit_s` is for what the processes execute.

    `ranks`: a plan's first devices only, instead of all (see `fewer_ranks`).

    `order`: the passes of every stage of the plan, where not MindSpore's own order is to be run; of fewer micro-batches theirs.

    `processes` that run already (`launch.started`) are used instead of new ones; they must be as many as devices. `references`
    keep what they are compared with for the next proof of the same network.
    """

    steps: int = 0
    time_limit_s: float = TIME_LIMIT_S
    ranks: int | None = None
    order: tuple[tuple[Turn, ...], ...] = ()
    processes: Processes | None = None
    references: trial.References = field(default_factory=trial.References)

    def first_turns(self, micro_batch_num: int) -> tuple[tuple[Turn, ...], ...]:
        """The passes of so many micro-batches, in their order."""
        return tuple(tuple(turn for turn in turns if turn.micro_batch < micro_batch_num) for turns in self.order)


@dataclass(frozen=True)
class Proof:
    """What the ranks computed beside what one process did.

    Of `losses`, one for every step, and `parameters` (their gradients; what `steps` optimizer steps made of them) these
    are the relative errors, the largest over the ranks. `reduction` maps what was made smaller to its size before and
    after; `substitutions` say what stood for operators that a CPU lacks. `loss`: what micro-batches make of it (`loss_note`).
    """

    ranks: int
    steps: int
    losses: tuple[Difference, ...]
    parameters: tuple[Difference, ...]
    substitutions: tuple[str, ...]
    seconds: float
    reduction: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    loss: str = ""

    @property
    def equal(self) -> bool:
        return bool(self.parameters) and all(d.equal for d in (*self.losses, *self.parameters))

    @property
    def loss_rel_error(self) -> float:
        return max(d.error for d in self.losses)

    @property
    def wrong(self) -> tuple[Difference, ...]:
        """Parameters that are not equal, the worst first."""
        return tuple(sorted((d for d in self.parameters if not d.equal), key=lambda d: -d.error))

    @property
    def worst(self) -> Difference:
        return max(self.parameters, key=lambda d: d.error)


def prove_plan(
    plan: Plan,
    planned: Graph | None = None,
    request: Request = Request(),
    rules: Mapping[str, Rule] | None = None,
) -> Proof:
    """Prove `plan`; a network of the zoo is made small for it (see `reduction`), one from a factory is run as it is.

    Errors: InfeasibleError if it cannot be made small; as `verify`; as `prove_network`.
    """
    if "phase" in plan.source:
        raise InputError(
            f"{plan.model} is in a phase of serving, which is proved with the other one: give the folder of serve"
        )
    if "model" in plan.source:
        return _prove_zoo(plan, request, rules)
    if plan.pipeline is not None:
        return _prove_stages(plan, planned, request, rules)
    cell, inputs, graph = load_with_graph(plan)
    reduction: Mapping[str, tuple[int, int]] = {}
    ranks = plan.device_num if request.ranks is None else request.ranks
    if ranks != plan.device_num:
        check(plan, graph, planned)
        reduction = {"device_num": (plan.device_num, ranks)}
        plan = replace(plan, stages=(on_first_ranks(graph, plan.stage, ranks),))
    apply(cell, graph, plan, planned, rules)
    proof = prove_network(cell, inputs, graph, plan.device_num, parallel_config(plan), request)
    return replace(proof, reduction=reduction)


def _prove_stages(plan: Plan, planned: Graph | None, request: Request, rules: Mapping[str, Rule] | None) -> Proof:
    """Prove a plan of a factory's network in micro-batches beside the same network at the whole batch."""
    if request.ranks not in (None, plan.device_num):
        raise InputError(
            "pipeline stages and micro-batches of a factory's network are proved on all devices: leave --ranks out"
        )
    assert plan.pipeline is not None
    cell, _, graph = load_with_graph(plan)
    apply(cell, graph, plan, planned, rules)
    whole = {**plan.source, "batch_size": str(plan.global_batch_size)}
    beside, inputs, whole_graph = with_graph(whole)
    factors = set_factors(cell, graph, whole_graph)
    micro = Micro(cell, plan.pipeline, factors, request.first_turns(plan.micro_batch_num))
    proof = prove_network(beside, inputs, whole_graph, plan.device_num, parallel_config(plan), request, micro)
    return replace(proof, loss=loss_note(loss_of(factors)))


def _prove_zoo(plan: Plan, request: Request, rules: Mapping[str, Rule] | None) -> Proof:
    import_mindspore()
    from model_zoo.builder import build_graph
    from model_zoo.network import build

    small = reduce_plan(plan, request.ranks)
    plan = small.plan
    cell, inputs = build(small.config)
    graph = build_graph(small.config)
    apply(cell, graph, plan, None, rules)
    micro, loss = None, None
    whole = replace(small.config, batch_size=plan.global_batch_size)
    if plan.pipeline is not None:
        whole_graph = build_graph(whole)
        factors = set_factors(cell, graph, whole_graph)
        micro = Micro(cell, plan.pipeline, factors, request.first_turns(plan.micro_batch_num))
        loss = loss_of(factors)
        (cell, inputs), graph = build(whole), whole_graph
    proof = prove_network(cell, inputs, graph, plan.device_num, parallel_config(plan), request, micro, whole)
    return replace(proof, reduction=small.sizes, loss=loss_note(loss))


def prove_by_hand(cell: Any, inputs: Sequence[Any], device_num: int, request: Request = Request()) -> Proof:
    """Prove a network with its own `shard()` calls, under the settings of MindSpore's parallel context.

    `inputs` have global shapes ("full_batch"). Errors: as `prove_network`.
    """
    if (stages := stages_of_context()) > 1:
        raise InputError(
            f"the parallel context asks for {stages} pipeline stages; a network by hand is proved on one: set pipeline_stages=1"
        )
    with fresh_scopes(cell):
        graph = capture(cell, *inputs, lone_blocks=True)
    from mindspore import context

    settings = context_settings(settings_of_user(cell, graph, device_num))
    means = {name: context.get_auto_parallel_context(name) for name in ("gradients_mean", "loss_repeated_mean")}
    parallel = ParallelConfig(**settings.pop("parallel_optimizer_config", {}), **settings, **means)
    return prove_network(cell, inputs, graph, device_num, parallel, request)


def prove_network(
    cell: Any,
    inputs: Sequence[Any],
    graph: Graph,
    device_num: int,
    parallel: ParallelConfig,
    request: Request,
    micro: Micro | None = None,
    identity: Hashable = None,
) -> Proof:
    """Prove `cell`, a forward network with its loss, captured as `graph`, whose primitives carry their strategies.

    With pipeline stages those of the same network in `micro` do. `identity`, where `request` has references of other networks
    too, tells this one from them.

    Errors: InputError if the network does not return its loss alone, a scalar, or drops elements at random; CompilerError if
    MindSpore rejects the program; ExecutionError if it cannot be executed here. No process or file is left in either case.
    """
    start = time.perf_counter()
    loss = graph.type_of(graph.output)
    if loss is None or "float" not in loss.dtype or loss.shape:
        raise InputError(f"{graph.name} does not return its loss alone, a scalar of floats: return nothing else")
    _require_repeatable(graph)
    if device_num > MAX_RANKS:
        raise InputError(
            f"{device_num} processes are too many for one machine: prove a plan, with --ranks {MAX_RANKS} at most"
        )
    _require_memory(graph, device_num)
    values = input_values(inputs, graph)
    if micro is not None and not micro.factors:
        values = alike_samples(values)
    elif micro is not None:
        for factor in micro.factors:
            values = uneven_counts(values, inputs, graph, factor.none, micro.pipeline.micro_batch_num)
    alone = object() if identity is None else identity
    parts = parts_of_samples(cell, graph, device_num) if micro is None else {}
    subject = Subject(cell, inputs, values, alone, device_num, parallel, micro, parts, offsets(graph))
    substituter = Substituter()
    with ExitStack() as stack:
        processes = request.processes
        if processes is None:
            scratch = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="symtensor_prove_", ignore_cleanup_errors=True)
            )
            processes = stack.enter_context(started(Path(scratch), device_num))
        job = processes.next_job()
        trials = [trial.prepare(job, subject, substituter, request.references)]
        if request.steps:
            trials.append(trial.prepare(job, subject, substituter, request.references, request.steps))
        groups = {name: ranks for t in trials for name, ranks in t.groups.items()}
        _require_groups(groups)
        begin(job, {t.name: t.calls for t in trials}, groups)
        processes.wait(job, request.time_limit_s)
        losses = tuple(d for t in trials for d in trial.losses(job, t, subject))
        parameters = trial.gradients(job, trials[0], subject)
        if request.steps:
            after = trial.states(job, trials[1], subject)
            parameters = tuple(max(pair, key=lambda d: d.error) for pair in zip(parameters, after, strict=True))
    seconds = time.perf_counter() - start
    substitutions = (*([BATCH_NORM_NOTE] if parts else []), *substituter.used)
    return Proof(device_num, request.steps, losses, parameters, substitutions, seconds)


_RANDOM = frozenset(
    (
        "DropoutExt", "Dropout2D", "Dropout3D", "Randn", "RandExt", "RandLikeExt", "RandnLike", "BernoulliExt", "StandardNormal",
        "UniformReal",
    )
)  # fmt: skip


def _require_repeatable(graph: Graph) -> None:
    """InputError if `graph` drops elements at random: every process would drop others."""
    for op in graph.ops:
        seen = view(graph, op)
        if op.type == "Dropout" and seen.argument(0, "keep_prob") != 1.0:
            raise InputError(
                f"{op.name} (Dropout) drops elements at random, others in every process, so that nothing can be compared: give"
                f" {'.'.join(op.cell) or 'it'} p=0 for the proof"
            )
        if op.type in _RANDOM:
            raise InputError(
                f"{op.name} ({op.type}) draws random numbers, others in every process, so that nothing can be compared: leave it"
                " out of the network for the proof, or give its layer p=0"
            )


def _require_groups(groups: Mapping[str, tuple[int, ...]]) -> None:
    """ExecutionError where MindSpore's CPU backend cannot sum over some of the ranks."""
    version = import_mindspore().__version__
    if groups and version.startswith("2.7."):
        some = next(iter(groups.values()))
        raise ExecutionError(
            f"MindSpore {version} sums over all ranks only on a CPU, not over {some}: prove it with MindSpore 2.8 or later"
        )


def _require_memory(graph: Graph, ranks: int) -> None:
    """ExecutionError unless this machine has the memory for the tensors of one whole network, and for the slices of another."""
    tensors = [t for op in graph.ops for t in op.outputs] + [p.type for p in graph.parameters]
    tensors += [kind for _, kind in graph.inputs]
    whole_B = sum(t.element_num * FLOAT32_B for t in tensors if t.is_known)
    needed_B = 2 * whole_B + ranks * PROCESS_B
    free_B = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with open("/proc/meminfo", encoding="ascii") as file:
        free_B = next((int(row.split()[1]) << 10 for row in file if row.startswith("MemAvailable")), free_B)
    if needed_B > free_B:
        raise ExecutionError(
            f"running {graph.name} on {ranks} ranks takes at least {needed_B / (1 << 30):.0f} GiB, and"
            f" {free_B / (1 << 30):.0f} GiB are free: give a smaller network, or fewer ranks"
        )
