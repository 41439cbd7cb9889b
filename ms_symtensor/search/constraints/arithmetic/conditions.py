"""What has to hold among the numbers of a plan, as data: one entry per condition, with the sentence that says how it is broken.

Each was compared with the search: where one does not hold, it finds nothing.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.search.constraints.arithmetic.facts import Cuttable, Facts
from ms_symtensor.search.constraints.limits import ALL, SCHEDULER

Numbers = Mapping[str, int]
"""Of names that can be pinned (`limits.LOWEST`), a number each."""

P, M, V = "pipeline_stages", "micro_batch_num", "pp_interleave_num"
D, T, S, C, E = "data_parallel", "model_parallel", "sequence_parallel", "context_parallel", "expert_parallel"
LEVEL, RECOMPUTE, ORDER = "optimizer_level", "recompute", SCHEDULER


@dataclass(frozen=True)
class Condition:
    """`rule` of the numbers `names`, in words; `holds(facts, numbers)` tells whether it is kept; it wants the facts `needs`.

    `says(facts, numbers)` how it is broken, as the second half of a sentence that began with the pins. There `numbers` has those
    names alone whose pins break it, whatever the others are.
    """

    names: tuple[str, ...]
    rule: str
    holds: Callable[[Facts, Numbers], bool]
    says: Callable[[Facts, Numbers], str]
    needs: tuple[str, ...] = ()

    def is_known(self, facts: Facts) -> bool:
        """Whether the facts that it is about are known."""
        return all(getattr(facts, name) is not None for name in self.needs)


def forms_groups(devices: int) -> bool:
    """Whether MindSpore forms communication groups on so many devices of a stage."""
    return devices in (1, 2, 4) or devices % 8 == 0


def _degree(name: str) -> Condition:
    return Condition(
        (name,), f"{name} divides the devices",
        lambda f, n: f.device_num % n[name] == 0,
        lambda f, n: f"there is no degree of {n[name]} on {f.device_num} devices",
    )  # fmt: skip


def _product(*names: str) -> Condition:
    def says(f: Facts, n: Numbers) -> str:
        factors = [n[name] for name in names if n.get(name, 1) > 1]
        if math.prod(factors) > f.device_num:
            return f"{_times(factors)} devices, not {f.device_num}"
        return f"{_times(factors)}, which does not divide {f.device_num} devices"

    rule = f"{' × '.join(names)} divides the devices"
    return Condition(names, rule, lambda f, n: f.device_num % math.prod(n[name] for name in names) == 0, says)


def _times(factors: Sequence[int]) -> str:
    return f"{' × '.join(map(str, factors))} = {math.prod(factors)}" if len(factors) > 1 else str(math.prod(factors))


def _cut(name: str, dims: Callable[[Facts], Sequence[Cuttable]]) -> Condition:
    def whole(f: Facts, n: Numbers) -> Iterator[Cuttable]:
        return (one for one in dims(f) if not one.is_cut(n[name]))

    def says(f: Facts, n: Numbers) -> str:
        first = next(whole(f, n))
        return first.instead or f"no dims give {n[name]} equal slices of {first}"

    return Condition((name,), f"{name} cuts dims into equal slices", lambda f, n: next(whole(f, n), None) is None, says)


def _is_shared(f: Facts, micro_batch_num: int, degree: int) -> bool:
    """Whether the samples of a micro-batch, where that is a whole number of them, divide into `degree` equal parts."""
    samples = f.samples or 0
    return samples % micro_batch_num != 0 or samples // micro_batch_num % degree == 0


CONDITIONS = (
    # of stages, micro-batches and virtual stages, each by itself
    Condition(
        (P,), "the network has stages",
        lambda f, n: n[P] == 1 or not (f.whole or f.one_stage),
        lambda f, n: f"{f.model} cannot be laid out over pipeline stages: {f.whole or f.one_stage}",
    ),
    Condition(
        (M,), "the network has micro-batches",
        lambda f, n: n[M] == 1 or not f.whole,
        lambda f, n: f"{f.model} cannot be split into micro-batches: {f.whole}",
    ),
    Condition(
        (V,), "the network has virtual stages",
        lambda f, n: n[V] == 1 or not f.one_run,
        lambda f, n: f"a stage of {f.model} has no virtual stages: {f.one_run}",
    ),
    Condition(
        (P,), "stages divide the devices",
        lambda f, n: f.device_num % n[P] == 0,
        lambda f, n: f"{n[P]} stages do not divide {f.device_num} devices",
    ),
    Condition(
        (P,), "MindSpore forms communication groups of 1, 2, 4 or a multiple of 8 devices of a stage",
        lambda f, n: f.device_num % n[P] > 0 or forms_groups(f.device_num // n[P]),
        lambda f, n: f"{f.device_num} devices in {n[P]} stages are {f.device_num // n[P]} each, and MindSpore forms communication"
        " groups on 1, 2, 4 or a multiple of 8 devices",
    ),
    Condition(
        (P,), "every stage holds a block",
        lambda f, n: n[P] <= max(f.blocks or 0, 1),
        lambda f, n: f"{n[P]} stages, {f.blocks} blocks: every stage holds a block",
        ("blocks",),
    ),
    Condition(
        (M,), "micro-batches divide the batch",
        lambda f, n: (f.batch or 0) % n[M] == 0,
        lambda f, n: f"{n[M]} micro-batches do not divide a global batch of {f.batch} samples",
        ("batch",),
    ),
    Condition(
        (M,), "one device takes one batch",
        lambda f, n: n[M] == 1 or f.device_num > 1,
        lambda f, n: f"{n[M]} micro-batches on one device: MindSpore accumulates gradients in its parallel modes only",
    ),
    Condition(
        (RECOMPUTE,), "no more blocks are recomputed than there are",
        lambda f, n: n[RECOMPUTE] == ALL or n[RECOMPUTE] <= (f.blocks or 0),
        lambda f, n: f"the network has {f.blocks} repeated blocks",
        ("blocks",),
    ),
    # of degrees, each by itself
    *map(_degree, (D, T, C, E)),
    _cut(T, lambda f: f.weights),
    _cut(E, lambda f: f.experts),
    _cut(C, lambda f: f.attention),
    Condition(
        (D,), "data_parallel divides the samples",
        lambda f, n: (f.samples or 0) % n[D] == 0,
        lambda f, n: f"attention sees {f.samples} samples, which do not divide into {n[D]} equal parts",
        ("samples",),
    ),
    # of several
    Condition(
        (P, M), "micro-batches are not fewer than stages",
        lambda f, n: n[M] >= n[P],
        lambda f, n: f"{n[P]} stages want at least as many micro-batches, "
        + (f"not {n[M]}" if M in n else f"and {f.batch} samples are {f.batch} at most"),
    ),
    Condition(
        (P, M), "the network has micro-batches in stages only",
        lambda f, n: not f.no_accumulation or n[P] > 1 or n[M] == 1,
        lambda f, n: f"{f.model} cannot be split into micro-batches on one stage: {f.no_accumulation}",
    ),
    Condition(
        (P, V), "every virtual stage holds a block, on several stages",
        lambda f, n: n[V] == 1 or (n[P] > 1 and (f.blocks is None or n[P] * n[V] <= f.blocks)),
        lambda f, n: _too_short(f, n),
    ),
    Condition(
        (P, M, V), "with virtual stages, stages divide the micro-batches",
        lambda f, n: n[V] == 1 or (n[P] > 1 and n[M] % n[P] == 0),
        lambda f, n: f"virtual stages are planned where the stages divide the micro-batches, but {_undivided(f, n)}",
    ),
    Condition(
        (ORDER, V), "another order than 1F1B wants virtual stages",
        lambda f, n: n[ORDER] == 0 or n[V] > 1,
        lambda f, n: f"MindSpore keeps to {DEFAULT_SCHEDULER} where stages have one model chunk: pin pp_interleave_num=2",
    ),
    Condition(
        (LEVEL, P, M), "optimizer level3 is for one stage and one batch",
        lambda f, n: n[LEVEL] != 3 or n[P] == n[M] == 1,
        lambda f, n: "optimizer level3 is for one stage and one batch",
    ),
    Condition(
        (LEVEL, P, M), "optimizer level2 is not for micro-batches on one stage",
        lambda f, n: n[LEVEL] != 2 or n[P] > 1 or n[M] == 1,
        lambda f, n: "optimizer level2 is not for micro-batches on one stage",
    ),
    *(_product(P, degree) for degree in (D, T, C, E)),
    _product(D, T),
    _product(P, D, T),
    Condition(
        (D, M), "data_parallel divides the samples of a micro-batch",
        lambda f, n: _is_shared(f, n[M], n[D]),
        lambda f, n: f"{f.samples} samples in {n[M]} micro-batches are {(f.samples or 0) / n[M]:g} each, which do not divide into"
        f" {n[D]} equal parts",
        ("samples",),
    ),
    Condition(
        (P, D), "data_parallel divides the samples of a micro-batch, of which there are as many as stages",
        lambda f, n: any(m >= n[P] and _is_shared(f, m, n[D]) for m in divisors(f.batch or 1)),
        lambda f, n: _unshared(f, n),
        ("batch", "samples"),
    ),
    Condition(
        (S, T), "sequence parallelism wants weights that are cut",
        lambda f, n: n[S] == 0 or n[T] > 1,
        lambda f, n: "sequence parallelism cuts tokens over the devices that cut weights, and model_parallel is 1",
    ),
)  # fmt: skip


def _unshared(f: Facts, n: Numbers) -> str:
    if D not in n:
        return f"{n[P]} stages want at least as many micro-batches, and {f.batch} samples are {f.batch} at most"
    wanted = (
        f"{n[P]} stages want at least as many micro-batches"
        if P in n
        else f"there are divisors of {f.batch} as micro-batches"
    )
    return f"{wanted}, in none of which {f.samples} samples leave {n[D]} equal parts"


def _too_short(f: Facts, n: Numbers) -> str:
    stages = n.get(P, 2)
    if stages == 1 or f.device_num == 1:
        return "virtual stages want several pipeline stages"
    product = f"{stages} stages × {n[V]} virtual stages = {stages * n[V]}"
    return f"{'' if P in n else 'at least '}{product}, {f.blocks} blocks: every virtual stage holds a block"


def _undivided(f: Facts, n: Numbers) -> str:
    match n.get(P), n.get(M):
        case None, None:
            return f"no number of stages above 1 divides {f.device_num} devices and a divisor of {f.batch} samples"
        case None, micro_batches:
            return f"no number of stages above 1 on {f.device_num} devices divides {micro_batches}"
        case stages, None:
            return f"no multiple of {stages} divides a global batch of {f.batch} samples"
        case stages, micro_batches:
            return f"{stages} does not divide {micro_batches}"
