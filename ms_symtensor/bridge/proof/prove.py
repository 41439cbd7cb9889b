"""Prove: run the program that MindSpore compiled for every rank, and compare with one process that has it all."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy

from ms_symtensor.bridge.apply import apply, parallel_config
from ms_symtensor.bridge.capture import capture
from ms_symtensor.bridge.load_network import load_network
from ms_symtensor.bridge.parallel_context import ParallelConfig
from ms_symtensor.bridge.proof.comparison import Difference, difference, scale_of
from ms_symtensor.bridge.proof.launch import run_ranks, run_reference
from ms_symtensor.bridge.proof.programs import Executable, compile_ranks, compile_reference
from ms_symtensor.bridge.proof.reduction import reduce_plan
from ms_symtensor.bridge.proof.substitution import Substituter
from ms_symtensor.bridge.proof.values import input_values, parameter_value, slice_of
from ms_symtensor.bridge.proof.workspace import REFERENCE, read_results, write_job, write_program
from ms_symtensor.bridge.scopes import fresh_scopes
from ms_symtensor.bridge.user_settings import settings_of_user
from ms_symtensor.errors import ExecutionError, InputError
from ms_symtensor.ops.registry import Rule
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.primitives import context_settings
from ms_symtensor.tensor.graph import Graph

TIME_LIMIT_S = 600.0
_GRADIENT = "gradient"


@dataclass(frozen=True)
class Proof:
    """What the ranks computed beside what one process did.

    `losses` and `parameters` are relative errors, the largest over the ranks. `reduction` maps what was made smaller to its
    size before and after; `substitutions` say what stood for operators that a CPU lacks.
    """

    ranks: int
    losses: tuple[Difference, ...]
    parameters: tuple[Difference, ...]
    substitutions: tuple[str, ...]
    seconds: float
    reduction: Mapping[str, tuple[int, int]] = field(default_factory=dict)

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
    time_limit_s: float = TIME_LIMIT_S,
    rules: Mapping[str, Rule] | None = None,
) -> Proof:
    """Prove `plan`; a network of the zoo is made small for it (see `reduction`), one from a factory is run as it is.

    Errors: InfeasibleError if it cannot be made small; as `verify`; as `prove_network`.
    """
    reduction: Mapping[str, tuple[int, int]] = {}
    if "model" in plan.source:
        from model_zoo.network import build

        small = reduce_plan(plan)
        plan, planned, reduction = small.plan, None, small.sizes
        cell, inputs = build(small.config)
    else:
        cell, inputs = load_network(plan.source)
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    apply(cell, graph, plan, planned, rules)
    proof = prove_network(cell, inputs, plan.device_num, parallel_config(plan), time_limit_s)
    return replace(proof, reduction=reduction)


def prove_by_hand(cell: Any, inputs: Sequence[Any], device_num: int, time_limit_s: float = TIME_LIMIT_S) -> Proof:
    """Prove a network with its own `shard()` calls, under the settings of MindSpore's parallel context.

    `inputs` have global shapes ("full_batch"). Errors: as `prove_network`.
    """
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    settings = context_settings(settings_of_user(cell, graph, device_num))
    parallel = ParallelConfig(**settings.pop("parallel_optimizer_config", {}), **settings)
    return prove_network(cell, inputs, device_num, parallel, time_limit_s)


def prove_network(
    cell: Any, inputs: Sequence[Any], device_num: int, parallel: ParallelConfig, time_limit_s: float = TIME_LIMIT_S
) -> Proof:
    """Prove `cell`, a forward network with its loss whose primitives carry their strategies.

    Errors: InputError if the network does not return its loss alone, a scalar; CompilerError if MindSpore rejects the
    program; ExecutionError if it cannot be executed here.
    """
    start = time.perf_counter()
    with fresh_scopes(cell):
        graph = capture(cell, *inputs)
    loss = graph.type_of(graph.output)
    if loss is None or "float" not in loss.dtype or loss.shape:
        raise InputError(f"{graph.name} does not return its loss alone, a scalar of floats: return nothing else")
    substituter = Substituter()
    given = input_values(inputs, graph)
    with tempfile.TemporaryDirectory(prefix="symtensor_prove_", ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch)
        whole = compile_reference(cell, inputs, substituter)
        parameters = {name: parameter_value(name, kind) for name, kind in whole.parameters}
        values = dict(zip((name for name, _ in whole.inputs), (*given, numpy.ones((), numpy.float32)), strict=True))
        write_program(directory, REFERENCE, _GRADIENT, whole, values, parameters)
        programs = []
        groups: dict[str, Sequence[int]] = {}
        for program in compile_ranks(cell, inputs, device_num, parallel, substituter):
            write_program(directory, str(program.rank), _GRADIENT, program, values, parameters)
            groups |= program.groups
            programs.append(program)
        write_job(directory, [(_GRADIENT, 1)], groups)
        run_reference(directory, time_limit_s)
        run_ranks(directory, device_num, time_limit_s)
        weights = [p.name for p in cell.trainable_params()]
        losses, gradients = _compared(directory, programs, weights)
    return Proof(device_num, losses, gradients, substituter.used, time.perf_counter() - start)


def _compared(
    directory: Path, programs: Sequence[Executable], weights: Sequence[str]
) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    whole = read_results(directory, REFERENCE, _GRADIENT)
    found = [read_results(directory, str(p.rank), _GRADIENT) for p in programs]
    losses = tuple(
        difference("loss", [value] * len(found), [f.losses[call] for f in found], scale_of(value, 0.0))
        for call, value in enumerate(whole.losses)
    )
    for results in (whole, *found):
        if len(results.gradients) != len(weights):
            raise ExecutionError(
                f"{len(results.gradients)} gradients for {len(weights)} trainable parameters: freeze those that take no part in"
                " the loss (requires_grad=False)"
            )
    largest = max((float(numpy.abs(g).max(initial=0.0)) for g in whole.gradients), default=0.0)

    def differences() -> Iterator[Difference]:
        for number, (name, value) in enumerate(zip(weights, whole.gradients, strict=True)):
            slices = [slice_of(value, p.layouts.get(name), p.rank) for p in programs]
            yield difference(name, slices, [f.gradients[number] for f in found], scale_of(value, largest))

    return losses, tuple(differences())
