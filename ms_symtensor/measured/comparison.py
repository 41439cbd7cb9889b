"""A plan beside a run of it: what was predicted, what was measured, part by part. Nothing is priced here anew: the step and its
parts are those of plan.json, operators those of `cost.explain`, collectives those of the plan's programs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ms_symtensor.cost.collective_costs import collective_costs
from ms_symtensor.cost.explain import explain_step
from ms_symtensor.errors import InputError
from ms_symtensor.measured.kinds import OPTIMIZER, kind_of_collective, kind_of_operator
from ms_symtensor.measured.run import Exchange, Log, Memory, Profile, Run
from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.tensor.graph import Graph

PARTS = {
    "compute": "compute", "optimizer": "optimizer", "communication": "communication", "synchronisation": "communication",
    "bubble": "bubble",
}  # fmt: skip
"""Part of a measured step by part of a predicted one; other parts of a prediction have nothing measured beside them."""

ORDER = ("compute", "communication", OPTIMIZER, "bubble", "idle")

BUFFERS = "buffers"
"""The part of predicted memory that HCCL takes for itself (HCCL user guide, HCCL_BUFFSIZE)."""

SAMPLES = 0.02
"""How far a log's throughput times its step may be from the samples of its plan (empirical), beside that log's rounding."""
LOG_ROUNDING_S = 1e-3
"""Logs cut steps to whole milliseconds."""

ProgramsOf = Callable[[Plan, Graph], Sequence[Program] | Sequence[StageProgram]]


@dataclass(frozen=True)
class Pair:
    """Seconds, bytes or a count: predicted and measured, None where there is none."""

    predicted: float | None
    measured: float | None

    @property
    def ratio(self) -> float | None:
        """Predicted over measured."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured


@dataclass(frozen=True)
class ExchangePair:
    """Collectives of one kind: how many, and their seconds, in a step of a rank."""

    count: Pair
    time_s: Pair
    wait_s: float | None


@dataclass(frozen=True)
class Comparison:
    """A plan beside a `run`.

    `step` in seconds, `parts` of it, `hidden_s` the communication that the run hid beside computation, `operators` by kind,
    `exchanges` by kind of collective, `peak_B` of MindSpore's pool on the fullest device.
    """

    plan: Plan
    run: Run
    step: Pair
    parts: Mapping[str, Pair]
    hidden_s: float | None
    operators: Mapping[str, Pair]
    exchanges: Mapping[str, ExchangePair]
    peak_B: Pair

    @property
    def tokens_per_s(self) -> Pair:
        """Of all devices together."""
        tokens = self.plan.global_batch_size * self.plan.seq_length
        return Pair(*(tokens / step_s if step_s else None for step_s in (self.step.predicted, self.step.measured)))


def compare(plan: Plan, graph: Graph | None, run: Run, programs_of: ProgramsOf) -> Comparison:
    """`plan`, whose graph is `graph`, beside `run`.

    `programs_of` a plan and its graph: called where the run's collectives are known. The predicted peak is that of MindSpore's
    pool, which is what a run tells: the buffers of communicators, which HCCL takes for itself, are not in it.

    Errors: InputError where the run is of another batch or of more ranks than the plan, where it holds neither a step nor memory,
    or where what it holds needs a graph that there is none of.
    """
    _require_same(plan, run)
    prediction = plan.prediction
    measured = run.memory.allocated_B if run.memory.allocated_B is not None else run.memory.reserved_B
    return Comparison(
        plan,
        run,
        Pair(prediction.step_time_s, run.step_time_s),
        dict(_parts(plan, run)),
        None if run.parts is None else run.parts.hidden_s,
        _operators(plan, graph, run.profiles),
        _exchanges(plan, graph, run.profiles, programs_of),
        Pair(prediction.peak_memory_B - prediction.memory_B.get(BUFFERS, 0), measured),
    )


def _require_same(plan: Plan, run: Run) -> None:
    if run.step_time_s is None and run.memory == Memory() and not any(one.operators for one in run.profiles):
        raise InputError(f"{run.paths[0]} has neither steps nor memory: give a log or a profile that has")
    for log in run.logs:
        _require_batch(plan, log)
    for profile in run.profiles:
        if profile.rank >= plan.device_num:
            raise InputError(
                f"{profile.path} is of rank {profile.rank}, and the plan has {plan.device_num} devices: give a run of this plan"
            )


def _require_batch(plan: Plan, log: Log) -> None:
    if log.samples_per_device is None or log.step_time_s is None:
        return
    planned = plan.global_batch_size / plan.device_num
    if abs(log.samples_per_device / planned - 1) > SAMPLES + LOG_ROUNDING_S / log.step_time_s:
        raise InputError(
            f"{log.path} is of steps of {log.samples_per_device:.3g} samples per device (samples/s/p times per_step_time), and"
            f" the plan of {planned:.3g} ({plan.global_batch_size} on {plan.device_num} devices): give a log of this plan, or"
            " plan for that batch"
        )


def _parts(plan: Plan, run: Run) -> Iterator[tuple[str, Pair]]:
    """The parts of a step. What the optimizer takes is told from other computation where kernels are known."""
    predicted: dict[str, float] = defaultdict(float)
    for name, time_s in plan.prediction.time_s.items():
        predicted[PARTS.get(name, name)] += time_s
    found = run.parts
    measured: dict[str, float] = {}
    if found is not None:
        optimizers = [one.operators[OPTIMIZER] for one in run.profiles if OPTIMIZER in one.operators]
        if optimizers:
            measured[OPTIMIZER] = fmean(optimizers)
        else:
            predicted["compute"] += predicted.pop(OPTIMIZER, 0.0)
        measured["compute"] = found.compute_s - measured.get(OPTIMIZER, 0.0)
        measured |= {"communication": found.communication_s, "bubble": found.bubble_s, "idle": found.idle_s}
    for name in dict.fromkeys((*ORDER, *predicted)):
        pair = Pair(predicted.get(name), measured.get(name))
        if pair.predicted or pair.measured:
            yield name, pair


def _operators(plan: Plan, graph: Graph | None, profiles: Sequence[Profile]) -> Mapping[str, Pair]:
    """Operators by kind, of the mean of the ranks that were profiled, beside an average stage."""
    ranks = [one.operators for one in profiles if one.operators]
    if not ranks:
        return {}
    each = plan.micro_batch_num / plan.pipeline_stages
    predicted: dict[str, float] = defaultdict(float)
    for operator in explain_step(_require_graph(graph), plan.whole, plan.planned_for).operators:
        predicted[kind_of_operator(operator.type)] += each * len(operator.names) * operator.total("compute")
    predicted[OPTIMIZER] = plan.prediction.time_s.get(OPTIMIZER, 0.0)
    measured = {kind: fmean(rank.get(kind, 0.0) for rank in ranks) for rank in ranks for kind in rank}
    kinds = sorted({*predicted, *measured}, key=lambda kind: (-predicted.get(kind, 0.0), kind))
    return {kind: Pair(predicted.get(kind), measured.get(kind)) for kind in kinds}


def _exchanges(
    plan: Plan, graph: Graph | None, profiles: Sequence[Profile], programs_of: ProgramsOf
) -> Mapping[str, ExchangePair]:
    """Collectives by kind, of the mean of the ranks that were profiled, beside the programs of the same ranks."""
    ranks = [one for one in profiles if one.exchanges]
    if not ranks:
        return {}
    programs = programs_of(plan, _require_graph(graph))
    predicted = [_predicted(programs, plan, one.rank) for one in ranks]
    measured = [one.exchanges for one in ranks]
    found = {}
    for kind in sorted({kind for one in (*predicted, *measured) for kind in one}):
        ours, theirs = ([one.get(kind, _NONE) for one in side] for side in (predicted, measured))
        found[kind] = ExchangePair(
            Pair(fmean(one.count for one in ours), fmean(one.count for one in theirs)),
            Pair(fmean(one.time_s for one in ours), fmean(one.time_s for one in theirs)),
            fmean(one.wait_s for one in theirs),
        )
    return found


_NONE = Exchange(0, 0.0, 0.0)


def _predicted(programs: Sequence[Program] | Sequence[StageProgram], plan: Plan, rank: int) -> Mapping[str, Exchange]:
    program = programs[rank * plan.pipeline_stages // plan.device_num]
    sums: dict[str, Exchange] = {}
    for cost in collective_costs(program, plan.planned_for, rank):
        kind = kind_of_collective(cost.kind) or cost.kind
        before = sums.get(kind, _NONE)
        sums[kind] = Exchange(before.count + cost.count, before.time_s + cost.time_s, 0.0)
    return sums


def _require_graph(graph: Graph | None) -> Graph:
    if graph is None:
        raise InputError("the plan's folder holds no graph.json, on which operators and collectives stand: plan again")
    return graph
