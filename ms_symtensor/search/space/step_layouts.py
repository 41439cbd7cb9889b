"""The outer space: into how many stages, micro-batches and mesh axes a training step can be cut."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.program.passes import InFlight
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.search.constraints.arithmetic.conditions import forms_groups
from ms_symtensor.search.space.domain import FINEST_MESH_DEVICES, meshes

MAX_MODEL_AXIS = 64
"""The minor axis of a mesh is searched up to so many devices (empirical: beyond, its collectives leave every fast level)."""

MAX_SEQUENCE_AXIS = 64
"""So is the axis before it, where each sample has two of its own (empirical, for the same reason)."""

MAX_SAMPLES = 8
"""Samples of a micro-batch per copy of the model that are searched where there are several micro-batches: so many, or what makes
up MAX_TOKENS, if it is not pinned how many micro-batches there are (empirical: more only fill memory)."""

MAX_TOKENS = 1 << 15
"""Tokens of a micro-batch per copy of the model that are searched whatever its samples (empirical: operators on fewer are so
small that what they take besides their work counts)."""


class Round(Enum):
    """How far the samples of a micro-batch go round the devices of a stage; first what mostly is the fastest."""

    WHOLE = "as many on every device"
    ONE = "one per position of the major axis"
    SPLIT = "several per position of the major axis, each on as many devices of the minor one"
    PART = "none of these"
    FEW = "one for all positions of all axes"


@dataclass(frozen=True)
class StepLayout:
    """One point of the outer space.

    The step runs `micro_batch_num` micro-batches of `batch` samples each through `stages` stages; a stage is a `mesh` of
    devices, the copies of the model along its major axis, which see different samples, and holds `interleave` model chunks.
    Where there is one sample for all devices, or a mesh has three axes, two are a sample's own: what they cut, sequences or
    weights, costs decide.
    """

    stages: int
    micro_batch_num: int
    mesh: tuple[int, ...]
    batch: int
    interleave: int = 1
    scheduler: str = DEFAULT_SCHEDULER

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # a search looks up every shape very often: hash it once
        return hash((self.stages, self.micro_batch_num, self.mesh, self.batch, self.interleave, self.scheduler))

    @property
    def accumulates(self) -> bool:
        """Whether gradients add up over several micro-batches; with one stage these come one after the other."""
        return self.micro_batch_num > 1

    @cached_property
    def schedule(self) -> PipelineSchedule:
        """How its micro-batches take turns."""
        return PipelineSchedule(self.micro_batch_num, self.interleave, self.scheduler)

    def in_flight(self, stage: int) -> InFlight:
        """Micro-batches whose activations this stage keeps at once."""
        return self.schedule.in_flight(stage, self.stages)

    @property
    def samples(self) -> int:
        """Samples of a micro-batch per position of the major axis; 0 if there are fewer than positions."""
        return self.batch // self.mesh[0]

    @property
    def round(self) -> Round:
        """How far the samples go round."""
        if self.batch == self.mesh[0]:
            return Round.ONE
        if self.batch == 1:
            return Round.FEW
        if self.batch % math.prod(self.mesh) == 0:
            return Round.WHOLE
        divides = len(self.mesh) == 2 and self.batch % self.mesh[0] == 0 and self.mesh[1] % self.samples == 0
        return Round.SPLIT if divides else Round.PART


def max_samples(seq_length: int) -> int:
    """The most samples of a micro-batch per copy of the model that are searched."""
    return max(MAX_SAMPLES, MAX_TOKENS // seq_length)


def step_layouts(
    device_num: int, global_batch_size: int, block_num: int, most_samples: float = MAX_SAMPLES
) -> tuple[StepLayout, ...]:
    """The outer space of `device_num` devices, with at most so many samples of a micro-batch per copy of the model.

    MindSpore wants at least as many micro-batches as stages, and forms groups on 1, 2, 4 or a multiple of 8 devices. A mesh of
    one axis is left out where one of two axes takes as many samples: that has the same layouts, and more. So have meshes on which
    every sample has two axes of its own, but these are looked at only where samples are fewer than devices: else samples fill
    the devices, and such meshes were faster by a thousandth at most (empirical).
    """
    every = dict.fromkeys(_shapes(device_num, global_batch_size, block_num, most_samples))
    if device_num <= FINEST_MESH_DEVICES:
        every[StepLayout(1, 1, meshes(device_num)[0] or (1,), global_batch_size)] = None
    if global_batch_size < device_num:
        every.update(dict.fromkeys(_shapes_of_few_samples(device_num, global_batch_size, block_num)))
    finer = {_without_mesh(shape) for shape in every if len(shape.mesh) > 1}
    return tuple(shape for shape in every if len(shape.mesh) > 1 or _without_mesh(shape) not in finer)


def step_layouts_of_batch(device_num: int, micro_batch_num: int, batch: int, block_num: int) -> tuple[StepLayout, ...]:
    """The outer space where micro-batches are given, of `batch` samples each, on the meshes of plans with one stage."""
    every = (n for n in divisors(device_num) if n <= min(micro_batch_num, max(block_num, 1)))
    return tuple(
        StepLayout(stages, micro_batch_num, mesh or (1,), batch)
        for stages in every
        if forms_groups(device_num // stages)
        for mesh in meshes(device_num // stages)
    )


def _stage_nums(device_num: int, block_num: int) -> list[int]:
    """Into how many stages the devices can be divided."""
    return [n for n in divisors(device_num) if n <= max(block_num, 1) and forms_groups(device_num // n)]


def _without_mesh(shape: StepLayout) -> tuple[int, int, int]:
    return shape.stages, shape.micro_batch_num, shape.batch


def interleaved(shape: StepLayout, interleave: int, blocks: int) -> StepLayout | None:
    """`shape` with so many virtual stages; None where that cannot be.

    Every run has a block. Micro-batches go round the runs in groups of as many as there are stages (Narayanan et al. 2021,
    section 2.2); MindSpore also takes other numbers, and then keeps more of them at once.
    """
    if interleave == 1:
        return shape
    possible = shape.stages > 1 and shape.micro_batch_num % shape.stages == 0 and shape.stages * interleave <= blocks
    return replace(shape, interleave=interleave) if possible else None


def scheduled(shape: StepLayout, scheduler: str) -> StepLayout | None:
    """`shape` whose stages take their passes in the order of `scheduler`; None where they have one chunk: that is 1F1B."""
    if scheduler == DEFAULT_SCHEDULER:
        return shape
    return replace(shape, scheduler=scheduler) if shape.interleave > 1 else None


def _shapes(device_num: int, global_batch_size: int, block_num: int, most_samples: float) -> Iterator[StepLayout]:
    for stages in _stage_nums(device_num, block_num):
        devices = device_num // stages
        for model in divisors(devices):
            data = devices // model
            if model > MAX_MODEL_AXIS or global_batch_size % data:
                continue
            for samples in divisors(global_batch_size // data):
                micro_batch_num = global_batch_size // (data * samples)
                whole = stages == micro_batch_num == 1 and device_num > FINEST_MESH_DEVICES
                if 1 < samples < model and data == 1 and math.gcd(samples, model) > 1:
                    continue  # the same layouts, and more, has a mesh with an axis for samples
                # MindSpore accumulates gradients in its parallel modes only, which want a cluster.
                if whole or (device_num > 1 < micro_batch_num >= stages and samples <= most_samples):
                    yield StepLayout(
                        stages, micro_batch_num, tuple(n for n in (data, model) if n > 1) or (1,), data * samples
                    )


def _shapes_of_few_samples(device_num: int, global_batch_size: int, block_num: int) -> Iterator[StepLayout]:
    """Shapes with one sample of a micro-batch per copy of the model, whose devices have two axes; on few, the mesh is the finest
    anyway.
    """
    for stages in _stage_nums(device_num, block_num):
        devices = device_num // stages
        for data in divisors(math.gcd(devices, global_batch_size)):
            micro_batch_num, own = global_batch_size // data, devices // data
            if devices <= FINEST_MESH_DEVICES or micro_batch_num < stages:
                continue
            for model in divisors(own):
                if 1 < model <= MAX_MODEL_AXIS and 1 < own // model <= MAX_SEQUENCE_AXIS:
                    mesh = tuple(n for n in (data, own // model, model) if n > 1)
                    yield StepLayout(stages, micro_batch_num, mesh, data)
