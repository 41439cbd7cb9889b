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
_CACHES = ("key_cache", "value_cache", "latent_cache")
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
    values = _Values(small[PREFILL].config, small[DECODE].config)
    substituter = Substituter()
    found = {}
    caches: dict[str, numpy.ndarray] = {}
    for phase in (PREFILL, DECODE):
        found[phase] = _run(phase, small, values, caches, substituter, request.time_limit_s)
        caches = _assembled(found[phase])
    logits = tuple(_logits(phase, run) for phase, run in found.items())
    compared = tuple(_cache(name, found[PREFILL]) for name in _caches(found[PREFILL]))
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
        sized = {name: _sized(candidate, config, common) for name, config in shallow.items()}
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


def _sized(candidate: Any, config: Any, devices: int) -> Any:
    """The network of `config`'s phase with the dims of `candidate`; its requests have the same divisors with `devices`.

    Experts have room for all tokens: which ones are dropped else depends on how many are taken in at a time.
    """
    blocks, batch = -(-(_CHUNK + 1) // _BLOCK_TOKENS), math.gcd(config.batch_size, devices)
    pages = {"block_tokens": _BLOCK_TOKENS, "request_blocks": blocks, "cache_blocks": 2 * devices * blocks + 1}
    seq_length = 1 if config.phase.is_decode else _CHUNK
    experts = candidate.experts and replace(candidate.experts, dropless=True)
    candidate = replace(candidate, experts=experts)
    return replace(candidate, phase=replace(config.phase, **pages), batch_size=batch, seq_length=seq_length)


def _carried_plan(plan: Plan, stage: StagePlan, config: Any) -> Plan:
    from model_zoo.builder import build_graph

    return replace(plan, graph_hash=build_graph(config).hash, stages=(stage,))


class _Values:
    """Seeded tokens of every request, and where the cache has them: its blocks lie in no order.

    `number` requests take part in a decode step; `each` are taken in at a time, in `rounds` rounds.
    """

    def __init__(self, prefill: Any, decode: Any) -> None:
        phase = decode.phase
        self.each, self.number = prefill.batch_size, decode.batch_size
        self.rounds = -(-self.number // self.each)
        batch = self.rounds * self.each
        random = numpy.random.default_rng(SEED)
        self.ids = random.integers(0, decode.vocab_size, (batch, _CHUNK + 1)).astype(numpy.int32)
        places = random.permutation(phase.cache_blocks)[: batch * phase.request_blocks]
        self.tables = places.reshape(batch, phase.request_blocks).astype(numpy.int32)
        position = numpy.arange(_CHUNK + 1)
        slots = self.tables[:, position // _BLOCK_TOKENS] * _BLOCK_TOKENS + position % _BLOCK_TOKENS
        self.slots = slots.astype(numpy.int32)
        self.lengths = numpy.full(self.number, _CHUNK + 1, numpy.int32)

    def prompts(self, number: int) -> tuple[numpy.ndarray, ...]:
        """Inputs of prefill in round `number`: all tokens but the last of its requests."""
        return self._tokens(slice(number * self.each, (number + 1) * self.each), slice(0, _CHUNK))

    def whole(self) -> tuple[numpy.ndarray, ...]:
        """Inputs of a prefill of all tokens of the requests of a decode step."""
        return self._tokens(slice(0, self.number), slice(0, _CHUNK + 1))

    def token(self) -> tuple[numpy.ndarray, ...]:
        """Inputs of decode: the last token of every request."""
        last = self._tokens(slice(0, self.number), slice(_CHUNK, _CHUNK + 1))
        return *last, self.tables[: self.number], self.lengths

    def _tokens(self, requests: slice, tokens: slice) -> tuple[numpy.ndarray, ...]:
        ids = numpy.ascontiguousarray(self.ids[requests, tokens])
        row = numpy.arange(tokens.start, tokens.stop, dtype=numpy.int32)
        positions = numpy.ascontiguousarray(numpy.broadcast_to(row, ids.shape))
        return ids, positions, numpy.ascontiguousarray(self.slots[requests, tokens]).reshape(-1)


@dataclass(frozen=True)
class _Run:
    """What every rank found, and the one process, in every round: its caches have the tokens of that round alone."""

    programs: tuple[Executable, ...]
    ranks: tuple[tuple[Results, ...], ...]
    whole: tuple[Results, ...]


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
    full = replace(small[PREFILL].config, seq_length=_CHUNK + 1, batch_size=values.number)
    alone, alone_inputs = build(small[PREFILL].config if phase == PREFILL else full)
    (whole,) = compile_forward(alone, alone_inputs, 1, None, substituter)
    programs = tuple(compile_forward(cell, inputs, one.plan.device_num, parallel_config(one.plan), substituter))
    require_meetings([program.meetings for program in programs])
    rounds = [(values.prompts(n), values.prompts(n)) for n in range(values.rounds)]
    if phase == DECODE:
        rounds = [(values.whole(), values.token())]
    names = [f"{phase}{number}" for number in range(len(rounds))]
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="symtensor_prove_", ignore_cleanup_errors=True)
        processes = stack.enter_context(started(Path(stack.enter_context(folder)), one.plan.device_num))
        job = processes.next_job()
        for name, (expected, given) in zip(names, rounds, strict=True):
            write_program(job, REFERENCE, name, whole, expected, _parameters(whole, {}))
            for program in programs:
                own = _as_in(program, _parameters(whole, caches))
                write_program(job, f"rank{program.rank}", name, program, given, own)
        begin(job, dict.fromkeys(names, 1), {name: ranks for p in programs for name, ranks in p.groups.items()})
        processes.wait(job, time_limit_s)
        ranks = tuple(tuple(read_results(job, f"rank{p.rank}", name) for p in programs) for name in names)
        return _Run(programs, ranks, tuple(read_results(job, REFERENCE, name) for name in names))


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


def _as_in(program: Executable, values: Mapping[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """`values` in the shapes of `program`: in decode of latent attention a weight has its heads apart."""
    shapes = {
        name: program.layouts[name].layout.shape if name in program.layouts else kind.shape
        for name, kind in program.parameters
    }
    return {name: values[name].reshape(shape) for name, shape in shapes.items()}


def _assembled(run: _Run) -> dict[str, numpy.ndarray]:
    """The whole of every cache, from what its ranks hold: what goes from prefill's instances to those of decode."""
    found = {}
    for name in _caches(run):
        shape = run.whole[0].parameters[name].shape
        number = numpy.arange(math.prod(shape)).reshape(shape)
        whole = numpy.zeros(shape, numpy.float32).reshape(-1)
        for results in run.ranks:
            one = numpy.full(whole.shape, numpy.nan, numpy.float32)
            for program, result in zip(run.programs, results, strict=True):
                places = slice_of(number, program.layouts.get(name), program.rank)
                one[places.reshape(-1)] = result.parameters[name].reshape(-1)
            whole += one
        found[name] = whole.reshape(shape)
    return found


def _caches(run: _Run) -> list[str]:
    return [name for name in run.whole[0].parameters if _is_cache(name)]


def _logits(phase: str, run: _Run) -> Difference:
    def of(whole: Results, ranks: tuple[Results, ...]) -> Difference:
        value = whole.losses[0]
        found = [one.losses[0] for one in ranks]
        return difference(phase, [value] * len(found), found, scale_of(value, 0.0), range(len(found)))

    return max((of(*pair) for pair in zip(run.whole, run.ranks, strict=True)), key=lambda one: one.error)


def _cache(name: str, run: _Run) -> Difference:
    def of(whole: Results, ranks: tuple[Results, ...]) -> Difference:
        value = whole.parameters[name]
        expected = [slice_of(value, program.layouts.get(name), program.rank) for program in run.programs]
        found = [one.parameters[name] for one in ranks]
        return difference(name, expected, found, scale_of(value, 0.0), range(len(found)))

    return max((of(*pair) for pair in zip(run.whole, run.ranks, strict=True)), key=lambda one: one.error)
