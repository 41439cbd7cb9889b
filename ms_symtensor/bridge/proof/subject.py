"""What a proof is about: a network, the values it is given, and how ranks run it."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from ms_symtensor.bridge.apply.pipeline_network import pipeline_training_cell
from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.compiled.gradient_sums import ACCUMULATED
from ms_symtensor.bridge.compiler.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof.programs import Executable
from ms_symtensor.bridge.proof.reordering import Places, places
from ms_symtensor.program.micro_loss import Factor
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.schedules.scheduler import Turn


@dataclass(frozen=True)
class Micro:
    """The network at the size of one micro-batch, whose cells carry their pipeline stages.

    `factors`: by what its loss, or parts of it, are multiplied; empty where the mean over micro-batches is taken as it is.
    `order`: the passes of every stage, where not MindSpore's own order is to be run.
    """

    cell: Any
    pipeline: Pipeline
    factors: tuple[Factor, ...] = ()
    order: tuple[tuple[Turn, ...], ...] = ()


@dataclass(frozen=True)
class Subject:
    """`cell`, a network for the whole batch, on `device_num` devices under `parallel`; `values` are those of `inputs`.

    `identity` tells the network from others, the values of its constants included (a graph's hash leaves these out).

    Its primitives carry their strategies, or, with pipeline stages, those of the same network in `micro` do. `batch_norms`: see
    `parts_of_samples`; `lifted`: parameters that `values.LIFT` is added to.
    """

    cell: Any
    inputs: Sequence[Any]
    values: Sequence[numpy.ndarray]
    identity: Hashable
    device_num: int
    parallel: ParallelConfig
    micro: Micro | None = None
    batch_norms: Mapping[tuple[tuple[str, ...], str], int] = field(default_factory=dict)
    lifted: frozenset[str] = frozenset()

    @property
    def weights(self) -> tuple[str, ...]:
        """The trainable parameters, in the order of their gradients."""
        return tuple(p.name for p in self.cell.trainable_params())

    @property
    def micro_batch_num(self) -> int:
        return 1 if self.micro is None else self.micro.pipeline.micro_batch_num

    @property
    def interleaved(self) -> bool:
        """Whether pipeline stages hold several model chunks each."""
        return self.micro is not None and self.micro.pipeline.interleave > 1

    def step(self, optimizer_of: Callable[[Any], Any] | None = None) -> Any:
        """The training step of a rank, with the optimizer of its network or, without one, with gradients as its results.

        The loss of micro-batches is the sum of theirs.
        """
        network = self.cell if self.micro is None else self.micro.cell
        optimizer = None if optimizer_of is None else optimizer_of(network)
        if self.micro is None:
            return training_cell(network, optimizer)
        return pipeline_training_cell(network, self.micro.pipeline, optimizer, not self.accumulates)

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of `rank`."""
        return 0 if self.micro is None else rank // (self.device_num // self.micro.pipeline.stage_num)

    def places(self, rank: int) -> Places | None:
        """Where `rank` has its passes, where not in MindSpore's own order."""
        if self.micro is None or not self.micro.order:
            return None
        return places(self.micro.order, self.stage_of(rank))

    def has_loss(self, rank: int) -> bool:
        """Whether `rank` gives the loss: with pipeline stages the last one does."""
        return self.micro is None or self.stage_of(rank) == self.micro.pipeline.stage_num - 1

    def owners(self, programs: Sequence[Executable]) -> tuple[Executable, ...]:
        """Of the programs that hold a weight those of its first stage; later ones that read it too send it their part."""
        first = min(self.stage_of(p.rank) for p in programs)
        return tuple(p for p in programs if self.stage_of(p.rank) == first)

    def weights_of(self, program: Executable) -> tuple[str, ...]:
        """The parameters whose gradients `program` gives, in its order."""
        if self.micro is None:
            return self.weights
        there = {name for name, _ in program.parameters}
        return tuple(name for name in self.weights if f"{ACCUMULATED}.{name}" in there)

    @property
    def accumulates(self) -> bool:
        """Whether gradients are what has added up over the micro-batches, and not what comes out of the last of them.

        As in MindSpore's own step (`nn.wrap.cell_wrapper._TrainGradAccuStepCell`).
        """
        return self.micro is not None and not self.parallel.enable_parallel_optimizer


def initial_gradient(micro_batch_num: int) -> numpy.ndarray:
    """Of the loss: the sum of micro-batches becomes their mean, as in MindSpore's own step."""
    found: numpy.ndarray = numpy.full((), 1.0 / micro_batch_num, numpy.float32)
    return found


def alike_samples(values: Sequence[numpy.ndarray]) -> tuple[numpy.ndarray, ...]:
    """`values` where every sample has the floats of the first: weights of tokens, which sum to the same in micro-batches.

    Then the mean over the micro-batches is the mean over the whole batch.
    """
    return tuple(
        numpy.ascontiguousarray(numpy.broadcast_to(v[:1], v.shape)) if v.dtype == numpy.float32 and v.shape else v
        for v in values
    )
