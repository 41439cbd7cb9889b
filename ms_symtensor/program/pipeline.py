"""How a network lies on pipeline stages, and a batch in micro-batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeVar

from ms_symtensor.errors import InputError
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.tensor.graph import Graph, ParameterRef, makers_of, sources_of

Block = TypeVar("Block")


@dataclass(frozen=True)
class Pipeline:
    """Which blocks every stage holds, and into how many micro-batches a step is cut.

    `layers[stage]` are the model chunks of a stage (positions in the graph's order, all lists of blocks counted through):
    one, or `interleave` of them where stages are virtual; a micro-batch passes through the first run of every stage, then
    through the second of every stage, and so on. One stage takes its micro-batches one after the other: gradients accumulate.

    Errors: InputError unless the runs follow each other without a gap, each with a block, and there are at least as many
    micro-batches as stages, as MindSpore wants it. Other run-times want neither (`is_lenient`): there `head_run` may be the run
    that holds what stands behind the blocks, where that is not the run of the last block. `scheduler`: in which order stages take
    micro-batches (`program.schedules`).
    """

    layers: tuple[tuple[range, ...], ...]
    micro_batch_num: int
    is_lenient: bool = False
    head_run: int | None = None
    scheduler: str = DEFAULT_SCHEDULER

    def __post_init__(self) -> None:
        if self.stage_num < 1 or self.stage_num == self.micro_batch_num == 1:
            raise InputError(
                f"a pipeline of {self.stage_num} stages and {self.micro_batch_num} micro-batches: give more of either, or no"
                " pipeline"
            )
        if len({len(runs) for runs in self.layers}) != 1 or not self.layers[0]:
            raise InputError("every pipeline stage must have the same number of runs of layers (interleave)")
        end = 0
        for run in self.runs:
            if run.start != end or run.step != 1 or (len(run) < 1 and not self.is_lenient):
                raise InputError(
                    f"layers {run.start} to {run.stop} of a pipeline stage do not follow the {end} layers before them: give"
                    " every stage at least one layer, all of them in order"
                )
            end = run.stop
        if self.micro_batch_num < self.stage_num and not self.is_lenient:
            raise InputError(
                f"{self.micro_batch_num} micro-batches for {self.stage_num} pipeline stages: MindSpore wants at least as many"
                " micro-batches as stages"
            )

    @property
    def stage_num(self) -> int:
        return len(self.layers)

    @property
    def wrapper(self) -> str:
        """The cell of `mindspore.nn` that runs a network on one micro-batch after the other."""
        return "PipelineCell" if self.stage_num > 1 else "GradAccumulationCell"

    @property
    def interleave(self) -> int:
        """Model chunks per stage."""
        return len(self.layers[0])

    @property
    def needs_config(self) -> bool:
        """Whether MindSpore has to be told the order of passes (`pipeline_config`), and wants the network inlined lazily."""
        return self.interleave > 1 or self.scheduler != DEFAULT_SCHEDULER

    @cached_property
    def runs(self) -> tuple[range, ...]:
        """The model chunks in the order in which a micro-batch passes through them."""
        return tuple(runs[number] for number in range(self.interleave) for runs in self.layers)

    @property
    def layer_num(self) -> int:
        return self.runs[-1].stop

    def run_of(self, layer: int) -> int:
        """The number of the run, on the way of a micro-batch, that holds block number `layer`."""
        return self._run_of[layer]

    @cached_property
    def _run_of(self) -> tuple[int, ...]:
        return tuple(number for number, run in enumerate(self.runs) for _ in run)

    def stage_of(self, layer: int) -> int:
        """The stage that holds block number `layer`."""
        return self.run_of(layer) % self.stage_num


def runs_of(layers: tuple[int, ...], interleave: int = 1) -> tuple[tuple[range, ...], ...]:
    """`Pipeline.layers` from the number of blocks of every run, in the order of a micro-batch's way.

    `(9, 11, 11, 9)`, `interleave` 2: two stages, of 9 and 11 blocks first and of 11 and 9 later.
    """
    if interleave < 1 or len(layers) % interleave:
        raise InputError(f"{len(layers)} runs of layers cannot be dealt out with {interleave} runs per pipeline stage")
    ends = [sum(layers[: i + 1]) for i in range(len(layers))]
    runs = [range(end - count, end) for end, count in zip(ends, layers, strict=True)]
    stages = len(layers) // interleave
    return tuple(tuple(runs[stage::stages]) for stage in range(stages))


def dealt(blocks: tuple[int, ...], interleave: int) -> tuple[int, ...]:
    """The number of blocks of every run, in the order of a micro-batch's way, where stages hold so many `blocks`: the runs of a
    stage are equally long; where they cannot be, the last ones, with the fewest micro-batches in flight, are longer by one.
    """
    shorter = [interleave - n % interleave for n in blocks]
    return tuple(
        n // interleave + (r >= few) for r in range(interleave) for n, few in zip(blocks, shorter, strict=True)
    )


def in_runs(blocks: Sequence[Block], interleave: int) -> list[Sequence[Block]]:
    """The runs of a stage that holds these `blocks`."""
    ends = accumulate(dealt((len(blocks),), interleave), initial=0)
    return [blocks[start:end] for start, end in pairwise(ends)]


def stage_by_stage(blocks: Sequence[Block], layers: Sequence[int], interleave: int) -> list[Block]:
    """The network's `blocks` in the order of the stages that hold so many as `layers` says, model chunk by model chunk."""
    held = runs_of(dealt(tuple(layers), interleave), interleave)
    return [blocks[number] for runs in held for run in runs for number in run]


def stages_of_ops(graph: Graph, pipeline: Pipeline) -> Mapping[str, frozenset[int]]:
    """The stages that each operator of `graph` stands on, see `runs_of_ops`."""
    of_ops = runs_of_ops(graph, pipeline)
    stages = {runs: frozenset(run % pipeline.stage_num for run in runs) for runs in dict.fromkeys(of_ops.values())}
    return {name: stages[runs] for name, runs in of_ops.items()}


def runs_of_ops(graph: Graph, pipeline: Pipeline) -> Mapping[str, frozenset[int]]:
    """The model chunks (numbers in `Pipeline.runs`) that each operator of `graph` belongs to.

    An operator of a block belongs to the block's run; another one to that which the last of its inputs comes from; one that
    reads a parameter before any block, to that where its result is first used. What depends on inputs and constants alone
    stands wherever it is used: nothing is sent for it.

    InputError if the pipeline has another number of layers, or a block reads what a later run makes.
    """
    blocks = graph.blocks
    if len(blocks) != pipeline.layer_num:
        raise InputError(
            f"the pipeline lays out {pipeline.layer_num} layers, but {graph.name} has {len(blocks)} repeated blocks"
        )
    of_block = {name: pipeline.run_of(number) for number, name in enumerate(blocks)}
    alone = [frozenset({run}) for run in range(len(pipeline.runs))]
    last = len(pipeline.runs) - 1
    fixed: dict[str, int] = {op.name: of_block[op.block] for op in graph.ops if op.block is not None}
    makers = {op.name: makers_of(op) for op in graph.ops}
    users: dict[str, list[str]] = {op.name: [] for op in graph.ops if op.block is None}
    for name, made_by in makers.items():
        for maker in made_by:
            if maker in users:
                users[maker].append(name)
    if pipeline.head_run is not None:
        fixed |= dict.fromkeys(_behind_blocks(graph, makers), pipeline.head_run)
    known, whole = _forward(makers, fixed, {}), len(fixed)
    earliest: dict[str, int] = {}
    for op in reversed(graph.ops):
        if op.name not in known:
            uses = [known[user] if user in known else earliest[user] for user in users[op.name]]
            earliest[op.name] = min(uses, default=last)
            if any(isinstance(s, ParameterRef) for s in sources_of(op)):
                fixed[op.name] = earliest[op.name]
    if len(fixed) > whole:
        known = _forward(makers, fixed, known)  # no use is earlier: what is known stays
    found: dict[str, frozenset[int]] = {}
    for op in reversed(graph.ops):
        if op.name in known:
            found[op.name] = alone[known[op.name]]
        else:
            found[op.name] = frozenset().union(*(found[user] for user in users[op.name]))
    return {op.name: found[op.name] for op in graph.ops}


def _behind_blocks(graph: Graph, makers: Mapping[str, list[str]]) -> list[str]:
    """The operators outside of blocks that read, directly or not, what blocks make."""
    inside: set[str] = set()
    found = []
    for op in graph.ops:
        if op.block is not None:
            inside.add(op.name)
        elif not inside.isdisjoint(makers[op.name]):
            inside.add(op.name)
            found.append(op.name)
    return found


def _forward(makers: Mapping[str, list[str]], fixed: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """The runs that follow from those in `fixed`, beside those known `before`.

    An operator belongs to the run which the last of its inputs comes from.

    `makers`: the operators that make what an operator reads, in the graph's order.
    """
    known = dict(before)
    for name, made_by in makers.items():
        if name in before:
            continue
        made = [known[maker] for maker in made_by if maker in known]
        run = fixed.get(name)
        if run is not None and made and max(made) > run:
            raise InputError(
                f"{name} lies in run {run} of a pipeline, but reads what a later run makes: give the pipeline another"
                " order of layers"
            )
        if run is not None or made:
            known[name] = max(made) if run is None else run
    return known
