"""Prove the phases of serving: prompts are taken in, and a token is generated, by every rank's program with its cache.

Logits of both are compared with those of one process that has full attention over all tokens and no cache to read from.
"""

import math
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from ms_symtensor.bridge.apply.apply import apply, parallel_config
from ms_symtensor.bridge.apply.load_network import zoo_options
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.judge.fewer_blocks import carried
from ms_symtensor.bridge.proof.comparison import Difference, difference, scale_of
from ms_symtensor.bridge.proof.fewer_ranks import on_first_ranks
from ms_symtensor.bridge.proof.launch import REFERENCE, started
from ms_symtensor.bridge.proof.ordering import require_meetings
from ms_symtensor.bridge.proof.programs import Executable, compile_forward
from ms_symtensor.bridge.proof.prove import MAX_RANKS, Request
from ms_symtensor.bridge.proof.reduction import changed, collectives_of, kept_layers, reduced_dimensions
from ms_symtensor.bridge.proof.substitution import Substituter
from ms_symtensor.bridge.proof.values import SEED, parameter_value, slice_of
from ms_symtensor.bridge.proof.workspace import Results, begin, read_results, write_program
from ms_symtensor.errors import InfeasibleError, InputError, InvalidStrategyError
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.strategy.plan import Plan

PREFILL, DECODE = "prefill", "decode"
_CACHES = ("key_cache", "value_cache")
_BLOCK_TOKENS, _CHUNK = 4, 6
"""Small sizes of a reduced network: blocks of so many tokens, prompts of one whole block and a part of the next one."""


@dataclass(frozen=True)
class PhaseProof:
    """Logits of both phases, and the cache after prefill, beside those of one process: relative errors, the largest of the ranks.

    `ranks` by phase; `reduction` and `substitutions` as of `Proof`.
    """

    ranks: Mapping[str, int]
    logits: tuple[Difference, ...]
    caches: tuple[Difference, ...]
    substitutions: tuple[str, ...]
    reduction: Mapping[str, tuple[int, int]]
    seconds: float

    @property
    def equal(self) -> bool:
        return len(self.logits) == 2 and all(one.equal for one in (*self.logits, *self.caches))


@dataclass(frozen=True)
class _Small:
    """A phase's plan for a small network."""

    plan: Plan
    config: Any


def prove_phases(plans: Mapping[str, Plan], request: Request) -> PhaseProof:
    """Prove the plans of `prefill` and `decode` of one network of the zoo at reduced sizes.

    Errors: InputError for plans of pipeline stages, or of too many ranks; InfeasibleError if the networks cannot be made small;
    CompilerError, ExecutionError.
    """
    begun = time.perf_counter()
    if set(plans) != {PREFILL, DECODE}:
        raise InputError(
            f"a proof is of prefill and decode on one stage each, and here are {', '.join(plans)}: serve with --fix pp=1"
        )
    if request.steps:
        raise InputError("--steps is for training: leave it out")
    import_mindspore()
    small, reduction = _reduced(plans, request.ranks)
    values = _Values(small[DECODE].config)
    substituter = Substituter()
    found = {}
    caches: dict[str, numpy.ndarray] = {}
    for phase in (PREFILL, DECODE):
        found[phase] = _run(phase, small, values, caches, substituter, request.time_limit_s)
        caches = _assembled(found[phase])
    logits = tuple(_logits(phase, run) for phase, run in found.items())
    compared = tuple(
        _cache(name, found[PREFILL], caches_of) for name, caches_of in _whole_caches(found[PREFILL]).items()
    )
    ranks = {phase: one.plan.device_num for phase, one in small.items()}
    return PhaseProof(ranks, logits, compared, substituter.used, reduction, time.perf_counter() - begun)


def _reduced(plans: Mapping[str, Plan], ranks: int | None) -> tuple[dict[str, _Small], Mapping[str, tuple[int, int]]]:
    """Both plans for one small network; the sizes before and after."""
    from model_zoo.builder import build_graph
    from model_zoo.dimensions import dimensions_of

    configs = {name: dimensions_of(plan.source["model"], **zoo_options(plan.source)) for name, plan in plans.items()}
    kept = kept_layers(configs[PREFILL], None)
    shallow = {name: config.with_layers(kept) for name, config in configs.items()}
    stages: dict[str, StagePlan] = {}
    for name, plan in plans.items():
        graph = build_graph(shallow[name])
        stage = StagePlan(carried(plan.strategies, graph, kept), plan.settings)
        number = plan.device_num if ranks is None else min(ranks, plan.device_num)
        if number > MAX_RANKS:
            raise InputError(
                f"{number} processes are too many for one machine: prove it with --ranks {MAX_RANKS} at most"
            )
        stages[name] = stage if number == plan.device_num else on_first_ranks(graph, stage, number)
    expected = {name: collectives_of(build_graph(shallow[name]), [stages[name]], None) for name in plans}
    common = math.lcm(*(stage.settings.device_num for stage in stages.values()))
    for candidate in reduced_dimensions(shallow[PREFILL], common):
        sized = {name: _sized(candidate, config, 2 * common) for name, config in shallow.items()}
        try:
            if any(collectives_of(build_graph(sized[n]), [stages[n]], None) != expected[n] for n in plans):
                continue
        except InvalidStrategyError:
            continue
        small = {name: _Small(_carried_plan(plans[name], stages[name], one), one) for name, one in sized.items()}
        sizes = changed(replace(configs[DECODE], phase=None), replace(sized[DECODE], phase=None))
        devices = {f"{name}.device_num": (plans[name].device_num, one.plan.device_num) for name, one in small.items()}
        return small, sizes | {name: pair for name, pair in devices.items() if pair[0] != pair[1]}
    raise InfeasibleError(
        f"no smaller {plans[PREFILL].model} has the programs of these plans, so that they cannot be run here"
    )


def _sized(candidate: Any, config: Any, batch: int) -> Any:
    """The network of `config`'s phase with the dims of `candidate`, for so many requests."""
    blocks = -(-(_CHUNK + 1) // _BLOCK_TOKENS)
    pages = {"block_tokens": _BLOCK_TOKENS, "request_blocks": blocks, "cache_blocks": batch * blocks + 1}
    seq_length = 1 if config.phase.is_decode else _CHUNK
    return replace(candidate, phase=replace(config.phase, **pages), batch_size=batch, seq_length=seq_length)


def _carried_plan(plan: Plan, stage: StagePlan, config: Any) -> Plan:
    from model_zoo.builder import build_graph

    return replace(plan, graph_hash=build_graph(config).hash, stages=(stage,))


class _Values:
    """Seeded tokens of every request, and where the cache has them: its blocks lie in no order."""

    def __init__(self, config: Any) -> None:
        phase, batch = config.phase, config.batch_size
        random = numpy.random.default_rng(SEED)
        self.ids = random.integers(0, config.vocab_size, (batch, _CHUNK + 1)).astype(numpy.int32)
        places = random.permutation(phase.cache_blocks)[: batch * phase.request_blocks]
        self.tables = places.reshape(batch, phase.request_blocks).astype(numpy.int32)
        position = numpy.arange(_CHUNK + 1)
        slots = self.tables[:, position // _BLOCK_TOKENS] * _BLOCK_TOKENS + position % _BLOCK_TOKENS
        self.slots = slots.astype(numpy.int32)
        self.lengths = numpy.full(batch, _CHUNK + 1, numpy.int32)

    def prompt(self, tokens: int) -> tuple[numpy.ndarray, ...]:
        """Inputs of prefill: the first `tokens` of every request."""
        return (
            self.ids[:, :tokens],
            self._positions(0, tokens),
            numpy.ascontiguousarray(self.slots[:, :tokens]).reshape(-1),
        )

    def token(self) -> tuple[numpy.ndarray, ...]:
        """Inputs of decode: the last token of every request."""
        last = slice(_CHUNK, _CHUNK + 1)
        return self.ids[:, last], self._positions(_CHUNK, 1), self.slots[:, last].reshape(-1), self.tables, self.lengths

    def _positions(self, first: int, number: int) -> numpy.ndarray:
        row = numpy.arange(first, first + number, dtype=numpy.int32)
        return numpy.ascontiguousarray(numpy.broadcast_to(row, (len(self.ids), number)))


@dataclass(frozen=True)
class _Run:
    """What every rank found, and the one process."""

    programs: tuple[Executable, ...]
    ranks: tuple[Results, ...]
    whole: Results


def _run(
    phase: str,
    small: Mapping[str, _Small],
    values: _Values,
    caches: Mapping[str, numpy.ndarray],
    substituter: Substituter,
    time_limit_s: float,
) -> _Run:
    from model_zoo.builder import build_graph
    from model_zoo.network import build

    one = small[phase]
    cell, inputs = build(one.config)
    apply(cell, build_graph(one.config), one.plan)
    tokens = _CHUNK if phase == PREFILL else _CHUNK + 1
    alone, alone_inputs = build(replace(small[PREFILL].config, seq_length=tokens))
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="symtensor_prove_", ignore_cleanup_errors=True)
        processes = stack.enter_context(started(Path(stack.enter_context(folder)), one.plan.device_num))
        job = processes.next_job()
        (whole,) = compile_forward(alone, alone_inputs, 1, None, substituter)
        write_program(job, REFERENCE, phase, whole, values.prompt(tokens), _parameters(whole, {}))
        given = values.prompt(tokens) if phase == PREFILL else values.token()
        programs = tuple(compile_forward(cell, inputs, one.plan.device_num, parallel_config(one.plan), substituter))
        for program in programs:
            parameters = _parameters(whole, caches)
            write_program(job, f"rank{program.rank}", phase, program, given, parameters)
        require_meetings([program.meetings for program in programs])
        begin(job, {phase: 1}, {name: ranks for p in programs for name, ranks in p.groups.items()})
        processes.wait(job, time_limit_s)
        ranks = tuple(read_results(job, f"rank{program.rank}", phase) for program in programs)
        return _Run(programs, ranks, read_results(job, REFERENCE, phase))


def _is_cache(name: str) -> bool:
    return name.rpartition(".")[2] in _CACHES


def _parameters(whole: Executable, caches: Mapping[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Weights, and caches as they were left, or empty."""
    return {
        name: caches.get(name, numpy.zeros(kind.shape, numpy.float32))
        if _is_cache(name)
        else parameter_value(name, kind)
        for name, kind in whole.parameters
    }


def _assembled(run: _Run) -> dict[str, numpy.ndarray]:
    """The whole of every cache, from what its ranks hold: what goes from prefill's instances to those of decode."""
    found = {}
    for name, kind in run.whole.parameters.items():
        if _is_cache(name):
            whole = numpy.full(kind.shape, numpy.nan, numpy.float32)
            for program, result in zip(run.programs, run.ranks, strict=True):
                places = slice_of(
                    numpy.arange(whole.size).reshape(whole.shape), program.layouts.get(name), program.rank
                )
                whole.reshape(-1)[places.reshape(-1)] = result.parameters[name].reshape(-1)
            found[name] = whole
    return found


def _whole_caches(run: _Run) -> dict[str, numpy.ndarray]:
    return {name: value for name, value in run.whole.parameters.items() if _is_cache(name)}


def _logits(phase: str, run: _Run) -> Difference:
    value = run.whole.losses[0]
    ranks = [program.rank for program in run.programs]
    return difference(phase, [value] * len(ranks), [one.losses[0] for one in run.ranks], scale_of(value, 0.0), ranks)


def _cache(name: str, run: _Run, value: numpy.ndarray) -> Difference:
    expected = [slice_of(value, program.layouts.get(name), program.rank) for program in run.programs]
    held = [one.parameters[name] for one in run.ranks]
    return difference(name, expected, held, scale_of(value, 0.0), [program.rank for program in run.programs])
