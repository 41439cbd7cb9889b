"""Uniform layouts as data: one set of degrees for all blocks, as Megatron and MindFormers run them."""

from dataclasses import dataclass, field, replace
from enum import Enum

from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import dealt, runs_of
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import OptimizerLevel

ALL = -1
"""Every block of a stage."""

Blocks = tuple[int, ...]
"""So many blocks of each stage; one number stands for all stages."""


@dataclass(frozen=True)
class Degrees:
    """How the operators of a stage are cut (`model_zoo.megatron`).

    Attributes:
        expert_parallel: 0: as many as data_parallel allows.
        expert_model_parallel: slices of every expert's width; 0: model_parallel.
        exchanges_heads: context parallelism by AlltoAll of heads (Ulysses), not by gathers of keys and values.
        cuts_embedding: model_parallel cuts the table of embeddings.
        gathers_logits: the loss is computed from the logits of the whole vocabulary on every rank.
    """

    data_parallel: int = 1
    model_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    expert_parallel: int = 0
    expert_model_parallel: int = 0
    exchanges_heads: bool = True
    cuts_embedding: bool = True
    gathers_logits: bool = False

    @property
    def devices(self) -> int:
        """Devices of a stage."""
        return self.data_parallel * self.model_parallel * self.context_parallel

    def can_exchange_heads(self, n_kv_heads: int) -> bool:
        """Whether ranks of context parallelism can exchange so many heads of keys and values, cut by model_parallel."""
        return n_kv_heads % (self.model_parallel * self.context_parallel) == 0


@dataclass(frozen=True)
class Stages:
    """How blocks lie on pipeline stages, and a batch in micro-batches.

    Attributes:
        interleave: virtual stages of every stage.
        layers: blocks of every stage; empty: as evenly as they divide, the first stages one more.
        chunks: blocks of every model chunk, a row for each chunk of a stage with a number for every stage; empty: those of a
            stage divide evenly, the last ones one more.
        head_stage: the stage that holds what stands behind the blocks; -1: that of the last block.
        scheduler: in which order stages take micro-batches (`program.schedules`).
    """

    number: int = 1
    micro_batch_num: int = 1
    interleave: int = 1
    layers: tuple[int, ...] = ()
    head_stage: int = -1
    chunks: tuple[tuple[int, ...], ...] = ()
    scheduler: str = DEFAULT_SCHEDULER

    def of(self, blocks: int) -> tuple[int, ...]:
        """The blocks of every stage, of so many.

        Raises:
            InputError: if `layers` are not those of so many blocks, stages would be left without a block, or one stage has
                virtual stages.
        """
        if self.number == 1 < self.interleave:
            raise InputError(
                f"one pipeline stage has {self.interleave} virtual stages: MindSpore wants two stages or more for them;"
                " give pipeline_stages above 1, or pp_interleave_num 1"
            )
        if self.chunks:
            if len(self.chunks) != self.interleave or any(len(row) != self.number for row in self.chunks):
                raise InputError(
                    f"{self.chunks} are no chunks of {self.number} stages of {self.interleave} virtual stages"
                )
            layers = tuple(map(sum, zip(*self.chunks, strict=True)))
            return replace(self, chunks=(), layers=layers).of(blocks)
        if self.layers:
            if len(self.layers) != self.number or sum(self.layers) != blocks:
                raise InputError(f"{self.layers} does not put {blocks} blocks on {self.number} pipeline stages")
            return self.layers
        if self.number * self.interleave > blocks:
            raise InputError(
                f"{blocks} blocks are too few for {self.number} pipeline stages"
                + (f" of {self.interleave} virtual stages" if self.interleave > 1 else "")
                + f": give at most {max(1, blocks // self.interleave)}"
            )
        each, more = divmod(blocks, self.number)
        return tuple(each + (stage < more) for stage in range(self.number))

    def in_order(self, blocks: int) -> tuple[int, ...]:
        """The blocks of every model chunk in the order of a micro-batch's way. Errors: those of `of`."""
        held = self.of(blocks)
        if self.chunks:
            return tuple(number for row in self.chunks for number in row)
        return dealt(held, self.interleave)


class Selection(str, Enum):
    """Parts of a block that are recomputed by themselves (selective recomputation)."""

    ATTENTION_CORE = "attention_core"  # between the projections
    ACTIVATION = "activation"  # of the feed-forward
    NORM = "norm"
    NORM_INPUT = "norm_input"  # the float32 copy that a norm reads (MindFormers always does)
    COMMUNICATION = "communication"  # gathers of tokens that tensor-parallel ranks hold parts of


Mark = frozenset[Selection] | None
"""What is recomputed of a block: parts of it (none: nothing), or, None, the whole."""


@dataclass(frozen=True)
class Recomputation:
    """What is recomputed: the first blocks of every stage as a whole, and in so many of the blocks behind these the `parts`.

    `marks`: instead of both, what is recomputed of each block of every stage.
    """

    blocks: Blocks = (0,)
    parts: tuple[tuple[Selection, Blocks], ...] = ()
    marks: tuple[tuple[Mark, ...], ...] = ()

    def whole(self, stage: int, held: int) -> int:
        """How many of the `held` blocks of `stage` are recomputed as a whole."""
        return on_stage(self.blocks, stage, held)

    def of(self, stage: int, held: int) -> tuple[Mark, ...]:
        """What is recomputed of each of the `held` blocks of `stage`.

        Raises:
            InputError: if `marks` are for other stages.
        """
        if self.marks:
            if stage >= len(self.marks) or len(self.marks[stage]) != held:
                raise InputError(
                    f"recomputation is marked for other stages than one with {held} blocks: give a mark for each"
                )
            return self.marks[stage]
        whole, parts = self.whole(stage, held), self.selected(stage, held)
        return tuple(
            None if n < whole else frozenset(part for part, number in parts.items() if n - whole < number)
            for n in range(held)
        )

    def selected(self, stage: int, held: int) -> dict[Selection, int]:
        """In how many of the blocks behind those each part is recomputed."""
        left = held - self.whole(stage, held)
        return {part: number for part, blocks in self.parts if (number := on_stage(blocks, stage, left))}


def on_stage(blocks: Blocks, stage: int, held: int) -> int:
    """So many of the `held` blocks of `stage`."""
    wanted = blocks[0] if len(blocks) == 1 else blocks[stage]
    return held if wanted == ALL else min(wanted, held)


def first_blocks(stages: "Stages", blocks: int, number: int, parts: frozenset[Selection]) -> Recomputation:
    """The `number` first blocks of every model chunk as a whole, or all it has of all `blocks`, and `parts` of the rest."""
    runs = runs_of(stages.in_order(blocks), stages.interleave)
    return Recomputation(
        marks=tuple(
            tuple(None if n < number else parts for chunk in of_stage for n in range(len(chunk))) for of_stage in runs
        )
    )


NO_RECOMPUTATION = Recomputation()
FULL_RECOMPUTATION = Recomputation(blocks=(ALL,))
SELECTIVE_RECOMPUTATION = Recomputation(parts=((Selection.ATTENTION_CORE, (ALL,)),))


@dataclass(frozen=True)
class UniformLayout:
    """A configuration: degrees, stages, recomputation and the optimizer's sharding.

    Attributes:
        optimizer_weight_shard_size: -1: over all copies.
        parallel_optimizer_threshold_KB: smaller parameters are not sharded; MindSpore's default is 64.
    """

    degrees: Degrees = field(default_factory=Degrees)
    stages: Stages = field(default_factory=Stages)
    recompute: Recomputation = NO_RECOMPUTATION
    optimizer_level: OptimizerLevel = OptimizerLevel.LEVEL1
    optimizer_weight_shard_size: int = -1
    swap_optimizer: bool = False
    parallel_optimizer_threshold_KB: int = 64

    @property
    def device_num(self) -> int:
        """Devices of all stages together."""
        return self.degrees.devices * self.stages.number

    def marks_of_chunks(self, blocks: int) -> list[list[tuple[Mark, ...]]]:
        """What is recomputed of each of so many blocks, by stage and model chunk. Errors: those of `Stages.of`."""
        found = []
        for stage, runs in enumerate(runs_of(self.stages.in_order(blocks), self.stages.interleave)):
            marks = iter(self.recompute.of(stage, sum(map(len, runs))))
            found.append([tuple(next(marks) for _ in run) for run in runs])
        return found
