"""Prove the phases of serving: prompts are taken in, and a token is generated, by every rank's program with its cache.

Logits of both are compared with those of one process that has full attention over all tokens and no cache to read from. Stages
of a pipeline run one after the other, and what leaves one goes to the next.
"""

import math
import re
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from ms_symtensor.bridge.apply.apply import apply, parallel_config
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
from ms_symtensor.strategy.source import zoo_options

PREFILL, DECODE = "prefill", "decode"
_LAYER, _PLAN = re.compile(r"^layers\.(\d+)\."), re.compile(r"(prefill|decode)(?:_(\d+))?")
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
    """The plan of a stage of a phase for a small network, of which `first` layers are on stages before it."""

    plan: Plan
    config: Any
    first: int = 0

    def in_whole(self, name: str) -> str:
        """What a parameter of the stage is called in the network of all stages."""
        return _LAYER.sub(lambda found: f"layers.{int(found[1]) + self.first}.", name)


def prove_phases(plans: Mapping[str, Plan], request: Request) -> PhaseProof:
    """Prove the plans of `prefill` and `decode` of one network of the zoo at reduced sizes.

    Errors: InputError for plans of too many ranks, or that are no phases; InfeasibleError if the networks cannot be made small;
    CompilerError, ExecutionError.
    """
    begun = time.perf_counter()
    staged = _stages_of(plans)
    if request.steps:
        raise InputError("--steps is for training: leave it out")
    import_mindspore()
    whole, small, reduction = _reduced(staged, request.ranks)
    values = _Values(small[PREFILL][0].config, small[DECODE][0].config)
    substituter = Substituter()
    found = {}
    caches: dict[str, numpy.ndarray] = {}
    for phase, stages in small.items():
        found[phase] = _run(phase, stages, whole, values, caches, substituter, request.time_limit_s)
        caches = {name: value for run in found[phase] for name, value in _assembled(run).items()}
    logits = tuple(_logits(phase, runs[-1]) for phase, runs in found.items())
    compared = tuple(_cache(name, run) for run in found[PREFILL] for name in _caches(run))
    ranks = {phase: sum(one.plan.device_num for one in stages) for phase, stages in small.items()}
    return PhaseProof(ranks, logits, compared, substituter.used, reduction, time.perf_counter() - begun)


def _stages_of(plans: Mapping[str, Plan]) -> dict[str, list[Plan]]:
    """The plans of the stages of each phase, `prefill` or `prefill_0`, `prefill_1` and so on. InputError for others."""
    found: dict[str, list[Plan]] = {PREFILL: [], DECODE: []}
    for name, plan in plans.items():
        read = _PLAN.fullmatch(name)
        if read is None or int(read[2] or 0) != len(found[read[1]]):
            raise InputError(f"{name} is no phase, or no next stage of one: serve again")
        found[read[1]].append(plan)
    if not all(found.values()):
        raise InputError(f"a proof is of prefill and decode, and here are {', '.join(plans)}: serve again")
    return found


def _layers(config_of: Mapping[str, list[Any]]) -> dict[str, list[list[int]]]:
    """Which layers of every stage stay, by their numbers in it: of one stage `kept_layers`, else the first of every part that no
    stage of either phase divides.
    """
    ends = {name: numpy.cumsum([config.num_layers for config in stages]).tolist() for name, stages in config_of.items()}
    if ends[PREFILL][-1] != ends[DECODE][-1]:
        raise InputError("prefill and decode have different numbers of layers: serve again")
    kept = sorted({0, *ends[PREFILL][:-1], *ends[DECODE][:-1]})
    if len(kept) == 1:
        kept = list(kept_layers(config_of[PREFILL][0], None))
    return {
        name: [
            [n - start for n in kept if start <= n < end] for start, end in zip([0, *found[:-1]], found, strict=True)
        ]
        for name, found in ends.items()
    }


def _reduced(
    plans: Mapping[str, list[Plan]], ranks: int | None
) -> tuple[Any, dict[str, tuple[_Small, ...]], Mapping[str, tuple[int, int]]]:
    """A small network, the plans of both phases for its stages, and the sizes before and after."""
    from model_zoo.builder import build_graph
    from model_zoo.dimensions import dimensions_of

    configs = {
        name: [dimensions_of(plan.source["model"], **zoo_options(plan.source)) for plan in stages]
        for name, stages in plans.items()
    }
    kept = _layers(configs)
    every = [(name, n) for name, stages in plans.items() for n in range(len(stages))]
    shallow = {(name, n): configs[name][n].with_layers(kept[name][n]) for name, n in every}
    cut = {
        one: _on_ranks(plans[one[0]][one[1]], build_graph(shallow[one]), kept[one[0]][one[1]], ranks) for one in every
    }
    expected = {one: collectives_of(build_graph(shallow[one]), [cut[one]], None) for one in every}
    common = math.lcm(*(stage.settings.device_num for stage in cut.values()))
    kinds = [shallow[PREFILL, n].kind(layer) for n, of in enumerate(kept[PREFILL]) for layer in range(len(of))]
    network = shallow[PREFILL, 0].of_kinds(kinds)
    starts = {(name, n): sum(map(len, kept[name][:n])) for name, n in every}
    for candidate in reduced_dimensions(network, common):
        sized = {
            one: _sized(candidate.with_layers(range(first, first + shallow[one].num_layers)), shallow[one], common)
            for one, first in starts.items()
        }
        try:
            if any(collectives_of(build_graph(sized[one]), [cut[one]], None) != expected[one] for one in every):
                continue
        except InvalidStrategyError:
            continue
        small: dict[str, tuple[_Small, ...]] = {PREFILL: (), DECODE: ()}
        for one in every:
            carried_plan = _carried_plan(plans[one[0]][one[1]], cut[one], sized[one])
            small[one[0]] += (_Small(carried_plan, sized[one], starts[one]),)
        whole = _sized(candidate, configs[PREFILL][0], common)
        whole = replace(whole, phase=replace(whole.phase, first=True, last=True))
        before = replace(configs[DECODE][0], num_layers=sum(config.num_layers for config in configs[DECODE]))
        after = replace(sized[DECODE, 0], num_layers=len(kinds))
        sizes = changed(replace(before, phase=None, kinds=()), replace(after, phase=None, kinds=()))
        devices = {
            f"{name}.device_num": (
                sum(plan.device_num for plan in plans[name]),
                sum(one.plan.device_num for one in stages),
            )
            for name, stages in small.items()
        }
        return whole, small, sizes | {name: pair for name, pair in devices.items() if pair[0] != pair[1]}
    raise InfeasibleError(
        f"no smaller {plans[PREFILL][0].model} has the programs of these plans, so that they cannot be run here"
    )


def _on_ranks(plan: Plan, graph: Any, kept: list[int], ranks: int | None) -> StagePlan:
    """The plan's layouts for the layers `kept`, on its first `ranks` devices."""
    stage = StagePlan(carried(plan.strategies, graph, kept), plan.settings)
    number = plan.device_num if ranks is None else min(ranks, plan.device_num)
    if number > MAX_RANKS:
        raise InputError(f"{number} processes are too many for one machine: prove it with --ranks {MAX_RANKS} at most")
    return stage if number == plan.device_num else on_first_ranks(graph, stage, number)


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
    """What every rank of a stage found, and the one process, in every round: its caches have the tokens of that round alone."""

    stage: _Small
    programs: tuple[Executable, ...]
    ranks: tuple[tuple[Results, ...], ...]
    whole: tuple[Results, ...]


def _run(
    phase: str,
    stages: tuple[_Small, ...],
    network: Any,
    values: _Values,
    caches: Mapping[str, numpy.ndarray],
    substituter: Substituter,
    time_limit_s: float,
) -> list[_Run]:
    """The stages of a phase, one after the other; one process has `network`, which is prefill's of all stages."""
    from model_zoo.network import build

    alone = network
    rounds = [(values.prompts(n), values.prompts(n)) for n in range(values.rounds)]
    if phase == DECODE:
        alone = replace(network, seq_length=_CHUNK + 1, batch_size=values.number)
        rounds = [(values.whole(), values.token())]
    cell, inputs = build(alone)
    (whole,) = compile_forward(cell, inputs, 1, None, substituter)
    found: list[_Run] = []
    for one in stages:
        if found:  # hidden states in the place of ids
            rounds = [
                (expected, (results[0].losses[0], *given[1:]))
                for (expected, given), results in zip(rounds, found[-1].ranks, strict=True)
            ]
        found.append(_run_stage(phase, one, whole, rounds, caches, substituter, time_limit_s))
    return found


def _run_stage(
    phase: str,
    one: _Small,
    whole: Executable,
    rounds: list[tuple[tuple[numpy.ndarray, ...], tuple[numpy.ndarray, ...]]],
    caches: Mapping[str, numpy.ndarray],
    substituter: Substituter,
    time_limit_s: float,
) -> _Run:
    from model_zoo.builder import build_graph
    from model_zoo.network import build

    cell, inputs = build(one.config)
    apply(cell, build_graph(one.config), one.plan)
    programs = tuple(compile_forward(cell, inputs, one.plan.device_num, parallel_config(one.plan), substituter))
    require_meetings([program.meetings for program in programs])
    names = [f"{phase}{number}" for number in range(len(rounds))]
    with ExitStack() as stack:
        folder = tempfile.TemporaryDirectory(prefix="symtensor_prove_", ignore_cleanup_errors=True)
        processes = stack.enter_context(started(Path(stack.enter_context(folder)), one.plan.device_num))
        job = processes.next_job()
        for name, (expected, given) in zip(names, rounds, strict=True):
            write_program(job, REFERENCE, name, whole, expected, _parameters(whole, {}))
            for program in programs:
                own = _as_in(program, _parameters(whole, caches), one)
                write_program(job, f"rank{program.rank}", name, program, given, own)
        begin(job, dict.fromkeys(names, 1), {name: ranks for p in programs for name, ranks in p.groups.items()})
        processes.wait(job, time_limit_s)
        ranks = tuple(tuple(read_results(job, f"rank{p.rank}", name) for p in programs) for name in names)
        return _Run(one, programs, ranks, tuple(read_results(job, REFERENCE, name) for name in names))


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


def _as_in(program: Executable, values: Mapping[str, numpy.ndarray], one: _Small) -> dict[str, numpy.ndarray]:
    """`values` in the shapes of `program`: in decode of latent attention a weight has its heads apart. A last stage has a table
    of its own where the whole network has one for both ends.
    """
    shapes = {
        name: program.layouts[name].layout.shape if name in program.layouts else kind.shape
        for name, kind in program.parameters
    }
    tied = {"output_table": "word_embedding.table"} if "output_table" not in values else {}
    names = {name: one.in_whole(name) for name in shapes}
    return {name: values[tied.get(known, known)].reshape(shapes[name]) for name, known in names.items()}


def _assembled(run: _Run) -> dict[str, numpy.ndarray]:
    """The whole of every cache, from what its ranks hold: what goes from prefill's instances to those of decode."""
    found = {}
    for name in _caches(run):
        shape = run.whole[0].parameters[run.stage.in_whole(name)].shape
        number = numpy.arange(math.prod(shape)).reshape(shape)
        whole = numpy.zeros(shape, numpy.float32).reshape(-1)
        for results in run.ranks:
            one = numpy.full(whole.shape, numpy.nan, numpy.float32)
            for program, result in zip(run.programs, results, strict=True):
                places = slice_of(number, program.layouts.get(name), program.rank)
                one[places.reshape(-1)] = result.parameters[name].reshape(-1)
            whole += one
        found[run.stage.in_whole(name)] = whole.reshape(shape)
    return found


def _caches(run: _Run) -> list[str]:
    """By their names in the stage."""
    return [name for name, _ in run.programs[0].parameters if _is_cache(name)]


def _logits(phase: str, run: _Run) -> Difference:
    def of(whole: Results, ranks: tuple[Results, ...]) -> Difference:
        value = whole.losses[0]
        found = [one.losses[0] for one in ranks]
        return difference(phase, [value] * len(found), found, scale_of(value, 0.0), range(len(found)))

    return max((of(*pair) for pair in zip(run.whole, run.ranks, strict=True)), key=lambda one: one.error)


def _cache(name: str, run: _Run) -> Difference:
    def of(whole: Results, ranks: tuple[Results, ...]) -> Difference:
        value = whole.parameters[run.stage.in_whole(name)]
        expected = [slice_of(value, program.layouts.get(name), program.rank) for program in run.programs]
        found = [one.parameters[name] for one in ranks]
        return difference(run.stage.in_whole(name), expected, found, scale_of(value, 0.0), range(len(found)))

    return max((of(*pair) for pair in zip(run.whole, run.ranks, strict=True)), key=lambda one: one.error)
