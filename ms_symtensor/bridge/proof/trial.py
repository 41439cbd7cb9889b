"""One program of a proof: compiled for every rank and as a whole, written for the processes, its results compared."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from ms_symtensor.bridge.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof.comparison import Difference, difference, scale_of
from ms_symtensor.bridge.proof.launch import REFERENCE
from ms_symtensor.bridge.proof.programs import Executable, compile_ranks, compile_reference
from ms_symtensor.bridge.proof.substitution import Substituter
from ms_symtensor.bridge.proof.values import parameter_value, slice_of
from ms_symtensor.bridge.proof.workspace import Results, read_results, write_program
from ms_symtensor.errors import ExecutionError
from ms_symtensor.tensor.graph import TensorType

LEARNING_RATE, MOMENTUM = 0.1, 0.9
_LOSS_GRADIENT = numpy.ones((), numpy.float32)


@dataclass(frozen=True)
class Subject:
    """What is proved: a network whose primitives carry their strategies, the values of its inputs, the devices."""

    cell: Any
    inputs: Sequence[Any]
    values: Sequence[numpy.ndarray]
    device_num: int
    parallel: ParallelConfig

    @property
    def weights(self) -> tuple[str, ...]:
        """The trainable parameters, in the order of their gradients."""
        return tuple(p.name for p in self.cell.trainable_params())


@dataclass(frozen=True)
class Trial:
    """Program `name`, ready for the processes in the folder of a job: gradients, or so many steps of an optimizer."""

    name: str
    calls: int
    programs: tuple[Executable, ...]

    @property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        return {name: ranks for program in self.programs for name, ranks in program.groups.items()}


def prepare(job: Path, subject: Subject, substituter: Substituter, steps: int = 0) -> Trial:
    """Compile and write the gradients of `subject`, or `steps` steps of an optimizer.

    The optimizer is one with momentum: its state is a sum of gradients, as exact as they are. (Adam divides by the
    gradient's size and makes a full step of what is zero but for rounding.)
    """
    name = "steps" if steps else "gradients"
    optimizer = _optimizer(subject.cell) if steps else None
    given = (*subject.values, _LOSS_GRADIENT)
    whole = compile_reference(subject.cell, subject.inputs, substituter, optimizer)
    weights = {p.name for p in subject.cell.get_parameters()}
    parameters = {n: parameter_value(n, kind) if n in weights else _state(n, kind) for n, kind in whole.parameters}
    write_program(job, REFERENCE, name, whole, given, parameters)
    programs = []
    for program in compile_ranks(
        subject.cell, subject.inputs, subject.device_num, subject.parallel, substituter, optimizer
    ):
        write_program(job, f"rank{program.rank}", name, program, given, parameters)
        programs.append(program)
    return Trial(name, max(1, steps), tuple(programs))


def losses(job: Path, trial: Trial) -> tuple[Difference, ...]:
    """The loss of every call."""
    whole, ranks = _results(job, trial)
    return tuple(
        difference("loss", [value] * len(ranks), [found.losses[call] for found in ranks], scale_of(value, 0.0))
        for call, value in enumerate(whole.losses)
    )


def gradients(job: Path, trial: Trial, weights: Sequence[str]) -> tuple[Difference, ...]:
    """The gradient of each of `weights`. ExecutionError if the program gives another number of them."""
    whole, ranks = _results(job, trial)
    for results in (whole, *ranks):
        if len(results.gradients) != len(weights):
            raise ExecutionError(
                f"the program gives {len(results.gradients)} gradients for {len(weights)} trainable parameters: freeze those"
                " that take no part in the loss (requires_grad=False)"
            )
    largest = _largest(whole.gradients)
    return tuple(
        difference(name, _slices(name, value, trial), [found.gradients[i] for found in ranks], scale_of(value, largest))
        for i, (name, value) in enumerate(zip(weights, whole.gradients, strict=True))
    )


def states(job: Path, trial: Trial, weights: Sequence[str]) -> tuple[Difference, ...]:
    """Each of `weights` after the last step, and its momentum: the larger error of both."""
    whole, ranks = _results(job, trial)
    largest = _largest([value for name, value in whole.parameters.items() if name not in weights])

    def errors(name: str, largest: float) -> Difference:
        value = whole.parameters[name]
        found = [results.parameters[name] for results in ranks]
        return difference(name, _slices(name, value, trial), found, scale_of(value, largest))

    def worse(name: str) -> Iterator[Difference]:
        yield errors(name, 0.0)
        momentum = errors(f"moments.{name}", largest)
        yield Difference(name, momentum.error, momentum.ranks)

    return tuple(max(worse(name), key=lambda d: d.error) for name in weights)


def _results(job: Path, trial: Trial) -> tuple[Results, list[Results]]:
    ranks = [read_results(job, f"rank{program.rank}", trial.name) for program in trial.programs]
    return read_results(job, REFERENCE, trial.name), ranks


def _slices(name: str, value: numpy.ndarray, trial: Trial) -> list[numpy.ndarray]:
    return [slice_of(value, program.layouts.get(name), program.rank) for program in trial.programs]


def _largest(values: Sequence[numpy.ndarray]) -> float:
    return max((float(numpy.abs(value).max(initial=0.0)) for value in values), default=0.0)


def _optimizer(cell: Any) -> Any:
    from mindspore import nn
    from mindspore.nn.utils import no_init_parameters

    with no_init_parameters():
        return nn.Momentum(cell.trainable_params(), learning_rate=LEARNING_RATE, momentum=MOMENTUM)


def _state(name: str, kind: TensorType) -> numpy.ndarray:
    """What a parameter of the optimizer holds before the first step."""
    value = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM}.get(name, 0.0)
    return numpy.full(kind.shape, value, kind.dtype)
