"""One program of a proof: compiled for every rank and as a whole, written for the processes, its results compared."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from ms_symtensor.bridge.apply.training import training_cell
from ms_symtensor.bridge.proof.batch_norm import by_parts
from ms_symtensor.bridge.proof.comparison import Difference, difference, scale_of
from ms_symtensor.bridge.proof.launch import REFERENCE
from ms_symtensor.bridge.proof.ordering import require_meetings
from ms_symtensor.bridge.proof.programs import Executable, compile_ranks, compile_reference
from ms_symtensor.bridge.proof.subject import Subject, initial_gradient
from ms_symtensor.bridge.proof.substitution import Substituter
from ms_symtensor.bridge.proof.values import parameter_value, slice_of
from ms_symtensor.bridge.proof.workspace import Results, read_results, write_program
from ms_symtensor.errors import ExecutionError
from ms_symtensor.tensor.graph import TensorType

LEARNING_RATE, MOMENTUM = 0.1, 0.9


@dataclass(frozen=True)
class Trial:
    """Program `name`, ready for the processes in the folder of a job: gradients, or so many steps of an optimizer."""

    name: str
    calls: int
    programs: tuple[Executable, ...]

    @property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        return {name: ranks for program in self.programs for name, ranks in program.groups.items()}


class References:
    """The program of the network that was compiled last for one process: many plans may be compared with it."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, bool], Executable] = {}

    def get(self, identity: Hashable, with_optimizer: bool, compiled: Callable[[], Executable]) -> Executable:
        """That of the network called so (`Subject.identity`); `compiled` makes it."""
        key = identity, with_optimizer
        if key not in self._known:
            self._known = {k: v for k, v in self._known.items() if k[0] == identity} | {key: compiled()}
        return self._known[key]


def prepare(job: Path, subject: Subject, substituter: Substituter, references: References, steps: int = 0) -> Trial:
    """Compile and write the gradients of `subject`, or `steps` steps of an optimizer.

    The optimizer is one with momentum: its state is a sum of gradients, as exact as they are. (Adam divides by the
    gradient's size and makes a full step of what is zero but for rounding.)

    ExecutionError where the ranks would wait for each other for ever.
    """
    name = "steps" if steps else "gradients"
    optimizer_of = _optimizer if steps else None

    def compiled() -> Executable:
        with by_parts(subject.cell, subject.batch_norms):
            step = training_cell(subject.cell, optimizer_of and optimizer_of(subject.cell))
            return compile_reference(step, subject.inputs, substituter)

    identity = subject.identity, tuple(subject.batch_norms.items())
    whole = references.get(identity, bool(steps), compiled)
    weights = {p.name for p in subject.cell.get_parameters()}
    parameters = {
        name: parameter_value(name, kind, name in subject.lifted) if name in weights else _state(name, kind)
        for name, kind in whole.parameters
    }
    write_program(job, REFERENCE, name, whole, (*subject.values, initial_gradient(1)), parameters)
    given = (*subject.values, initial_gradient(subject.micro_batch_num))
    programs = []
    for program in compile_ranks(
        subject.step(optimizer_of),
        subject.inputs,
        subject.device_num,
        subject.parallel,
        substituter,
        subject.interleaved,
        subject.places,
    ):
        write_program(job, f"rank{program.rank}", name, program, given, parameters)
        programs.append(program)
    require_meetings([program.meetings for program in programs])
    return Trial(name, max(1, steps), tuple(programs))


def losses(job: Path, trial: Trial, subject: Subject) -> tuple[Difference, ...]:
    """The loss of every call, on the ranks that have it; of micro-batches their mean."""
    whole, ranks = _results(job, trial)
    there = [p.rank for p in trial.programs if subject.has_loss(p.rank)]
    number = subject.micro_batch_num
    return tuple(
        difference(
            "loss", [value] * len(there), [ranks[r].losses[call] / number for r in there], scale_of(value, 0.0), there
        )
        for call, value in enumerate(whole.losses)
    )


def gradients(job: Path, trial: Trial, subject: Subject) -> tuple[Difference, ...]:
    """The gradient of each weight, on the ranks that hold it. ExecutionError if a program gives another number of them."""
    whole, ranks = _results(job, trial)
    expected = _by_name(whole.gradients, subject.weights)
    found = [
        _by_name(r.accumulated if subject.accumulates else r.gradients, subject.weights_of(program))
        for r, program in zip(ranks, trial.programs, strict=True)
    ]
    largest = _largest(whole.gradients)
    return tuple(_gradient(name, value, largest, found, trial.programs, subject) for name, value in expected.items())


def _gradient(
    name: str,
    value: numpy.ndarray,
    largest: float,
    found: Sequence[Mapping[str, numpy.ndarray]],
    programs: Sequence[Executable],
    subject: Subject,
) -> Difference:
    everywhere = [p for p in programs if name in found[p.rank]]
    if not everywhere:
        raise ExecutionError(f"no rank gives the gradient of {name}: this cannot be proved")
    holders = subject.owners(everywhere)
    slices = [slice_of(value, p.layouts.get(name), p.rank) for p in holders]
    ranks = [p.rank for p in holders]
    return difference(name, slices, [found[rank][name] for rank in ranks], scale_of(value, largest), ranks)


def _by_name(gradients: Sequence[numpy.ndarray], weights: Sequence[str]) -> dict[str, numpy.ndarray]:
    if len(gradients) != len(weights):
        raise ExecutionError(
            f"the program gives {len(gradients)} gradients for {len(weights)} trainable parameters: freeze those"
            " that take no part in the loss (requires_grad=False)"
        )
    return dict(zip(weights, gradients, strict=True))


def states(job: Path, trial: Trial, subject: Subject) -> tuple[Difference, ...]:
    """Each weight after the last step, and its momentum: the larger error of both."""
    whole, ranks = _results(job, trial)
    weights = subject.weights
    largest = _largest([value for name, value in whole.parameters.items() if name not in weights])

    def errors(name: str, largest: float) -> Difference:
        value = whole.parameters[name]
        holders = subject.owners([p for p in trial.programs if name in ranks[p.rank].parameters])
        slices = [slice_of(value, p.layouts.get(name), p.rank) for p in holders]
        found = [ranks[p.rank].parameters[name] for p in holders]
        return difference(name, slices, found, scale_of(value, largest), [p.rank for p in holders])

    def worse(name: str) -> Iterator[Difference]:
        yield errors(name, 0.0)
        momentum = errors(f"moments.{name}", largest)
        yield Difference(name, momentum.error, momentum.ranks)

    return tuple(max(worse(name), key=lambda d: d.error) for name in weights)


def _results(job: Path, trial: Trial) -> tuple[Results, list[Results]]:
    ranks = [read_results(job, f"rank{program.rank}", trial.name) for program in trial.programs]
    return read_results(job, REFERENCE, trial.name), ranks


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
