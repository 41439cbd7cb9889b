"""The bill of a uniform layout without writing every block: what is alike is written once and multiplied.

Where a period of blocks comes again and again in a stage (one block; or several of unlike kinds, windows or recomputation),
three of it are written: the first, one that stands for all between, and the last (`program.long_runs`). Of stages in the middle
that hold blocks of the same kinds one is written. The network of what is written is a short one of the zoo, on a pipeline of few
stages.
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


@dataclass(frozen=True)
class _Segment:
    """A period of blocks, each of a kind and with a mark, that comes so many times, one behind the other."""

    period: tuple[tuple[BlockKind, Mark], ...]
    count: int

    @property
    def few(self) -> int:
        """How many of them are written."""
        return min(self.count, EACH)

    @property
    def times(self) -> tuple[int, ...]:
        """For how many periods each that is written stands."""
        return (1, self.count - self.few + 1, 1) if self.count > self.few else (1,) * self.few

    @property
    def written(self) -> list[tuple[BlockKind, Mark]]:
        """The blocks that are written, in order."""
        return [*self.period] * self.few


_Runs = tuple[tuple[_Segment, ...], ...]
"""The segments of every model chunk of a stage."""


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
    stages_held = [_segments(config, of, layout.recompute.of(stage, held[stage])) for stage, of in enumerate(runs)]
    if stages.number == stages.micro_batch_num == 1:
        return dispatched(_one_stage(config, layout, stages_held[0], fuses), config)
    pipeline = pipeline_of(layout, held, is_lenient)
    return dispatched(_stages(config, layout, pipeline, stages_held, fuses), config)


def folded_flops(config: TransformerConfig) -> float:
    """`cost.flops.model_flops` of the network `config`, from one block of each kind."""
    counts = Counter(map(config.kind, range(config.num_layers)))
    graph, known = graph_of(config.of_kinds([*counts]))
    return model_flops(graph, known, dict(zip(graph.blocks, counts.values(), strict=True)))


def _segments(config: TransformerConfig, runs: Iterable[range], of: Iterable[Mark]) -> _Runs:
    every = iter(of)
    return tuple(_periods([(config.kind(n), next(every)) for n in run]) for run in runs)


def _periods(blocks: Sequence[tuple[BlockKind, Mark]]) -> tuple[_Segment, ...]:
    """`blocks` as segments: at every place the period that leaves most of them unwritten, of equals the shortest."""
    number: dict[tuple[BlockKind, Mark], int] = {}
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


_Named = tuple[tuple[tuple[str, ...], ...], ...]
"""The blocks of a run that are written, by name: of every segment the periods."""


@dataclass(frozen=True)
class _Short:
    """A short network in layout: `segments[stage][run]` the blocks of each of its segments, by name, period by period."""

    graph: Graph
    known: Meanings
    plans: tuple[StagePlan, ...]
    segments: tuple[tuple[_Named, ...], ...]
    pipeline: Pipeline | None


def _short(config: TransformerConfig, layout: UniformLayout, written: list[_Runs], head: int | None = None) -> _Short:
    """The network whose stages hold the few blocks of `written`."""
    order = [(stage, run) for run in range(len(written[0])) for stage in range(len(written))]
    counts = tuple(sum(len(one.written) for one in written[stage][run]) for stage, run in order)
    kinds = [kind for stage, run in order for one in written[stage][run] for kind, _ in one.written]
    few = config.of_kinds(kinds)
    graph, known = graph_of(few)
    strategies = strategies_of(graph, few, layout.degrees)
    names = iter(graph.blocks)
    named = {
        (stage, run): tuple(
            tuple(tuple(next(names) for _ in one.period) for _ in range(one.few)) for one in written[stage][run]
        )
        for stage, run in order
    }
    pipeline = None
    if head is not None or layout.stages.number * layout.stages.micro_batch_num > 1:
        of = layout.stages
        pipeline = Pipeline(runs_of(counts, of.interleave), of.micro_batch_num, True, head, of.scheduler)
    of_ops = {} if pipeline is None else stages_of_ops(graph, pipeline)
    plans = []
    for stage, runs in enumerate(written):
        of_blocks = {
            name: mark
            for run, of in enumerate(runs)
            for one, periods in zip(of, named[stage, run], strict=True)
            for period in periods
            for name, (_, mark) in zip(period, one.period, strict=True)
        }
        own = {name: cut for name, cut in strategies.items() if pipeline is None or stage in of_ops[name]}
        plans.append(StagePlan(own, settings_of(layout, recompute_of(graph, of_blocks))))
    segments = tuple(tuple(named[stage, run] for run in range(len(written[0]))) for stage in range(len(written)))
    return _Short(graph, known, tuple(plans), segments, pipeline)


def _one_stage(config: TransformerConfig, layout: UniformLayout, held: _Runs, fuses: frozenset[str]) -> PlanBill:
    short = _short(config, layout, [held])
    (plan,), ((blocks,),) = short.plans, short.segments
    program = fused_program(short.graph, partition(short.graph, plan, known=short.known), short.known, fuses)
    assert isinstance(program, Program)
    times = _times(held, (blocks,))
    memory = memory_B(short.graph, plan, program, times)
    own_B = measure(program, blocks).peak_B([0] * len(blocks))
    peak_B = measure(program, blocks).peak_B([one.count - one.few for one in held[0]])
    memory["activations"] += peak_B - own_B
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
        form = ends, tuple(tuple((one.period, one.few) for one in run) for run in runs)
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
    one_of = [
        OneMicroBatch.of(program, [_once(run) for run in short.segments[number]])
        for number, program in enumerate(programs)
    ]
    bills: dict[tuple[int, _Runs], Bill] = {}
    found = []
    for stage, (number, runs) in enumerate(zip(stands_for, held, strict=True)):
        program, plan, blocks = programs[number], short.plans[number], short.segments[number]
        times = _times(runs, blocks)
        if (number, runs) not in bills:
            bills[number, runs] = bill_of(Written.of(program.graph, plan, program, short.known, fuses), times)
        like = [_like(run, named) for run, named in zip(runs, blocks, strict=True)]
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


def _times(runs: _Runs, blocks: tuple[_Named, ...]) -> dict[str, int]:
    """How many blocks each block of the short network stands for."""
    return {
        name: times
        for run, named in zip(runs, blocks, strict=True)
        for one, periods in zip(run, named, strict=True)
        for times, period in zip(one.times, periods, strict=True)
        for name in period
    }


def _like(run: tuple[_Segment, ...], named: _Named) -> list[str | None]:
    """The blocks of a run, each by the name of the one that stands for it."""
    return [
        name
        for one, periods in zip(run, named, strict=True)
        for times, period in zip(one.times, periods, strict=True)
        for name in period * times
    ]


def _once(named: _Named) -> list[str | None]:
    return [name for periods in named for period in periods for name in period]


def _block_of(graph: Graph) -> Mapping[str, str]:
    """The block of every parameter that is in one."""
    return {s.name: op.block or "" for op in graph.ops for s in op.inputs if isinstance(s, ParameterRef)}


def parameters_of(
    graph: Graph, parameters: Mapping[str, ParameterPlacement], times: Mapping[str, int]
) -> list[tuple[ParameterPlacement, int]]:
    """The parameters of a short network, each as often as its block stands for others (`times`)."""
    block_of = _block_of(graph)
    return [(placement, times.get(block_of.get(name, ""), 1)) for name, placement in parameters.items()]
