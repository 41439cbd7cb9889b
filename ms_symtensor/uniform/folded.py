"""The bill of a uniform layout without writing every block: what is alike is written once and multiplied.

Blocks of one kind and recomputation are alike in a model chunk, wherever they stand. But the first one of the network keeps what
all others read until its backward pass, and the last one stands beside the head. So each chunk writes one block of each kind,
and these two. Of stages in the middle that hold blocks of the same kinds one is written. One stage that takes the batch as a
whole writes three periods of a run of equal ones (`program.long_runs`). The network of what is written is a short one of the
zoo, on a pipeline of few stages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from model_zoo.config import BlockKind, TransformerConfig
from ms_symtensor.cost.bill import Bill, Message, Part, Work, Written, bill_of
from ms_symtensor.cost.flops import model_flops
from ms_symtensor.cost.plan_price import PlanBill, StageBill
from ms_symtensor.cost.stage_memory import stage_memory_B
from ms_symtensor.cost.step import memory_B
from ms_symtensor.program.fusion import fused, fused_cells, fused_program
from ms_symtensor.program.long_runs import EACH, measure
from ms_symtensor.program.meanings import Meanings
from ms_symtensor.program.partition import partition
from ms_symtensor.program.pipeline import Pipeline, runs_of, stages_of_ops
from ms_symtensor.program.program import ParameterPlacement, Program
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.program.stage_memory import OneMicroBatch
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.tensor.graph import Graph, ParameterRef
from ms_symtensor.uniform.dispatch import dispatched
from ms_symtensor.uniform.layout import Mark, UniformLayout
from ms_symtensor.uniform.plan import graph_of, pipeline_of, recompute_of, settings_of, strategies_of

_Block = tuple[BlockKind, Mark]
"""What a block is, and what of it is recomputed."""


@dataclass(frozen=True)
class _Run:
    """A model chunk: the blocks that are `written`, and of every block the number of the one of these that it is `like`."""

    written: tuple[_Block, ...]
    like: tuple[int, ...]


_Runs = tuple[_Run, ...]
"""Every model chunk of a stage."""


@dataclass(frozen=True)
class _Segment:
    """A period of blocks that comes so many times, one behind the other."""

    period: tuple[_Block, ...]
    count: int

    @property
    def few(self) -> int:
        """How many of them are written: the second stands for all between the first and the last."""
        return min(self.count, EACH)


def folded_bill(
    config: TransformerConfig, layout: UniformLayout, fuses: frozenset[str] = frozenset(), is_lenient: bool = False
) -> PlanBill:
    """The bill of `uniform_plan(config, layout, is_lenient)`, by writing few blocks.

    Raises:
        InputError: for degrees, stages or micro-batches that the network or MindSpore does not allow.
    """
    stages = layout.stages
    held = stages.of(config.num_layers)
    runs = runs_of(stages.in_order(config.num_layers), stages.interleave)
    marks = [layout.recompute.of(stage, number) for stage, number in enumerate(held)]
    if stages.number == stages.micro_batch_num == 1:
        blocks = [(config.kind(n), mark) for n, mark in enumerate(marks[0])]
        return dispatched(_one_stage(config, layout, _periods(blocks), fuses), config)
    stages_held = [_distinct(config, *of) for of in zip(runs, marks, strict=True)]
    return dispatched(_stages(config, layout, pipeline_of(layout, held, is_lenient), stages_held, fuses), config)


def folded_flops(config: TransformerConfig) -> float:
    """`cost.flops.model_flops` of the network `config`, from one block of each kind."""
    counts = Counter(map(config.kind, range(config.num_layers)))
    graph, known = graph_of(config.of_kinds([*counts]))
    return model_flops(graph, known, dict(zip(graph.blocks, counts.values(), strict=True)))


def _distinct(config: TransformerConfig, runs: Iterable[range], marks: Iterable[Mark]) -> _Runs:
    """The chunks of a stage; its blocks have these `marks`."""
    of, ends, found = iter(marks), (0, config.num_layers - 1), []
    for run in runs:
        forms = [((config.kind(n), next(of)), n if n in ends else None) for n in run]
        number = {form: place for place, form in enumerate(dict.fromkeys(forms))}
        found.append(_Run(tuple(block for block, _ in number), tuple(number[form] for form in forms)))
    return tuple(found)


def _periods(blocks: Sequence[_Block]) -> tuple[_Segment, ...]:
    """`blocks` as segments: at every place the period that leaves most of them unwritten, of equals the shortest."""
    number: dict[_Block, int] = {}
    forms = [number.setdefault(block, len(number)) for block in blocks]
    found = []
    while forms:
        lengths = range(1, max(len(forms) // (EACH + 1), 1) + 1)
        counts = {length: _repetitions(forms, length) for length in lengths}
        length = max(lengths, key=lambda n: (max(counts[n] - EACH, 0) * n, -n))
        every = [*number]
        found.append(_Segment(tuple(every[form] for form in forms[:length]), counts[length]))
        forms = forms[length * counts[length] :]
    return tuple(found)


def _repetitions(forms: Sequence[int], length: int) -> int:
    """How many times the first `length` of `forms` stand at their beginning, one behind the other."""
    return next(n for n in count(1) if forms[n * length : (n + 1) * length] != forms[:length])


def _in_periods(segments: Sequence[_Segment]) -> _Run:
    """A run of `segments`, of which the first few periods are written."""
    written: list[_Block] = []
    like: list[int] = []
    for one in segments:
        first, each = len(written), len(one.period)
        for n in range(one.count):
            period = 0 if n == 0 else one.few - 1 if n == one.count - 1 else 1
            like += range(first + period * each, first + (period + 1) * each)
        written += one.period * one.few
    return _Run(tuple(written), tuple(like))


_Names = tuple[str, ...]
"""The blocks of a run that are written, by name."""


@dataclass(frozen=True)
class _Short:
    """A short network in layout: `names[stage][run]` of its blocks."""

    graph: Graph
    known: Meanings
    plans: tuple[StagePlan, ...]
    names: tuple[tuple[_Names, ...], ...]
    pipeline: Pipeline | None


def _short(config: TransformerConfig, layout: UniformLayout, written: list[_Runs], head: int | None = None) -> _Short:
    """The network whose stages hold the few blocks of `written`."""
    order = [(stage, run) for run in range(len(written[0])) for stage in range(len(written))]
    counts = tuple(len(written[stage][run].written) for stage, run in order)
    few = config.of_kinds([kind for stage, run in order for kind, _ in written[stage][run].written])
    graph, known = graph_of(few)
    strategies = strategies_of(graph, few, layout.degrees)
    every = iter(graph.blocks)
    named = {(stage, run): tuple(next(every) for _ in written[stage][run].written) for stage, run in order}
    pipeline = None
    if head is not None or layout.stages.number * layout.stages.micro_batch_num > 1:
        of = layout.stages
        pipeline = Pipeline(runs_of(counts, of.interleave), of.micro_batch_num, True, head, of.scheduler)
    of_ops = {} if pipeline is None else stages_of_ops(graph, pipeline)
    plans = []
    for stage, runs in enumerate(written):
        marks = {
            name: mark
            for run, of in enumerate(runs)
            for name, (_, mark) in zip(named[stage, run], of.written, strict=True)
        }
        own = {name: cut for name, cut in strategies.items() if pipeline is None or stage in of_ops[name]}
        plans.append(StagePlan(own, settings_of(layout, recompute_of(graph, marks))))
    names = tuple(tuple(named[stage, run] for run in range(len(written[0]))) for stage in range(len(written)))
    return _Short(graph, known, tuple(plans), names, pipeline)


def _one_stage(
    config: TransformerConfig, layout: UniformLayout, segments: Sequence[_Segment], fuses: frozenset[str]
) -> PlanBill:
    run = _in_periods(segments)
    short = _short(config, layout, [(run,)])
    (plan,), (names,) = short.plans, short.names
    program = fused_program(short.graph, partition(short.graph, plan, known=short.known), short.known, fuses)
    assert isinstance(program, Program)
    times = _times((run,), names)
    memory = memory_B(short.graph, plan, program, times)
    every = iter(names[0])
    measured = measure(program, [[[next(every) for _ in one.period] for _ in range(one.few)] for one in segments])
    more = [one.count - one.few for one in segments]
    memory["activations"] += measured.peak_B(more) - measured.peak_B([0] * len(more))
    bill = bill_of(Written(short.graph, plan, program, short.known, fuses), times)
    parameters = parameters_of(short.graph, program.parameters, times)
    return PlanBill((StageBill(bill, parameters, plan.settings, memory),), None)


def _stages(
    config: TransformerConfig,
    layout: UniformLayout,
    pipeline: Pipeline,
    held: list[_Runs],
    fuses: frozenset[str],
) -> PlanBill:
    number_of: dict[tuple, int] = {}
    written: list[_Runs] = []
    stands_for = []
    last, head = pipeline.stage_num - 1, pipeline.head_run
    for stage, runs in enumerate(held):
        ends = (stage == 0, stage == last, stage == head)
        form = ends, tuple(run.written for run in runs)
        if form not in number_of:
            number_of[form] = len(written)
            written.append(runs)
        stands_for.append(number_of[form])
    short = _short(config, layout, written, None if head is None else stands_for[head])
    assert short.pipeline is not None
    programs = partition_stages(short.graph, short.plans, short.pipeline, known=short.known)
    cells = fused_cells(short.graph, short.known, fuses)
    if cells:
        programs = tuple(replace(one, micro=fused(one.micro, cells, fuses)) for one in programs)
    one_of = [OneMicroBatch.of(program, names) for program, names in zip(programs, short.names, strict=True)]
    bills: dict[tuple[int, _Runs], Bill] = {}
    found = []
    for stage, (number, runs) in enumerate(zip(stands_for, held, strict=True)):
        program, plan, names = programs[number], short.plans[number], short.names[number]
        times = _times(runs, names)
        if (number, runs) not in bills:
            bills[number, runs] = bill_of(Written.of(program.graph, plan, program, short.known, fuses), times)
        like = [[of[n] for n in run.like] for run, of in zip(runs, names, strict=True)]
        activations_B = one_of[number].peak(stage, pipeline, like).total_B
        block_of = _block_of(program.graph)
        memory = stage_memory_B(
            program.micro,
            pipeline.stage_num,
            program.scatters_gradients,
            activations_B,
            times,
            block_of,
            layout.swap_optimizer,
        )
        bill = _sent_from(bills[number, runs], program, stage, pipeline.stage_num, stands_for)
        found.append(StageBill(bill, parameters_of(program.graph, program.parameters, times), plan.settings, memory))
    return PlanBill(tuple(found), pipeline)


def _sent_from(bill: Bill, program: StageProgram, stage: int, stages: int, stands_for: list[int]) -> Bill:
    """`bill`, that of `program`, as it is on `stage` of so many: what is sent goes from there to the stage before or behind."""
    few, devices = program.pipeline.stage_num, program.micro.device_num

    def moved(work: Work) -> Work:
        assert isinstance(work, Message)
        away = work.ranks[1] // devices - program.stage
        if away % few == 1:
            peer = (stage + 1) % stages
        elif away % few == few - 1:
            peer = (stage - 1) % stages
        else:
            peer = stands_for.index(program.stage + away)
        return work._replace(ranks=(stage * devices, peer * devices))

    return Bill(
        {
            key: {moved(work): count for work, count in works.items()} if key.part is Part.BORDER else works
            for key, works in bill.items.items()
        },
        bill.units,
    )


def _times(runs: _Runs, names: Sequence[_Names]) -> dict[str, int]:
    """How many blocks each block of the short network stands for."""
    return Counter(of[n] for run, of in zip(runs, names, strict=True) for n in run.like)


def _block_of(graph: Graph) -> Mapping[str, str]:
    """The block of every parameter that is in one."""
    return {s.name: op.block or "" for op in graph.ops for s in op.inputs if isinstance(s, ParameterRef)}


def parameters_of(
    graph: Graph, parameters: Mapping[str, ParameterPlacement], times: Mapping[str, int]
) -> list[tuple[ParameterPlacement, int]]:
    """The parameters of a short network, each as often as its block stands for others (`times`)."""
    block_of = _block_of(graph)
    return [(placement, times.get(block_of.get(name, ""), 1)) for name, placement in parameters.items()]
