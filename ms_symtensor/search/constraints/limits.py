"""What a user pins: degrees and settings of the plan, between a least and a most each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ms_symtensor.errors import InputError
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER, SCHEDULERS
from ms_symtensor.search.constraints.operator_pins import OperatorPin, operator_pin

ALL = 1 << 30
"""Recomputed blocks: all there are."""

SCHEDULER = "pipeline_scheduler"

LOWEST = {
    "pipeline_stages": 1, "micro_batch_num": 1, "pp_interleave_num": 1,
    "data_parallel": 1, "model_parallel": 1, "sequence_parallel": 0, "context_parallel": 1, "expert_parallel": 1,
    "optimizer_level": 0, "recompute": 0, "swap_optimizer": 0, SCHEDULER: 0,
}  # fmt: skip
"""What can be limited, as a plan reports it, each with its lowest number."""

INTERLEAVES = (1, 2, 4)
"""Virtual stages per stage that are searched, beside a given number."""

SHARD_SIZE = "optimizer_weight_shard_size"
PINNED = (*LOWEST, SHARD_SIZE)
"""What can be pinned. The optimizer shards over all copies or not at all, which is a limit of its level."""

HIGHEST = {"sequence_parallel": 1, "optimizer_level": 3, "swap_optimizer": 1, SCHEDULER: len(SCHEDULERS) - 1}

SHORT = {
    "dp": "data_parallel", "tp": "model_parallel", "pp": "pipeline_stages", "mb": "micro_batch_num",
    "vpp": "pp_interleave_num", "sp": "sequence_parallel", "cp": "context_parallel", "ep": "expert_parallel",
}  # fmt: skip
"""What the field calls them for short."""

_YES_OR_NO = {"no": 0, "yes": 1}
WORDS = {
    "sequence_parallel": _YES_OR_NO,
    "swap_optimizer": _YES_OR_NO,
    "recompute": {"none": 0, "full": ALL},
    SCHEDULER: {name: number for number, name in enumerate(SCHEDULERS)},
}
"""Words that stand for numbers."""

SWAP = "swap_optimizer"
"""Optimizer states stay on the host."""

SELECT = "select"
"""For `recompute`: selective recomputation, no block as a whole."""

_NO_MOST = ((SHARD_SIZE, "-1"), ("recompute", SELECT))
"""What can be pinned, but bounds nothing from above."""


@dataclass(frozen=True)
class Limits:
    """Least and most of what LOWEST names.

    A degree means what `search.constraints.summary` reports; a limit of data_parallel, model_parallel or sequence_parallel holds
    for every major product and every norm of the residual stream (`search.constraints.roles`). `operators`: how some
    operators are cut. `selects`: blocks are recomputed in part, if at all. `question`: what the user asked for, in words, where
    these limits are one case of it.

    Errors: InputError for another name, or numbers that leave nothing.
    """

    least: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[OperatorPin, ...] = ()
    selects: bool = False
    question: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, number in (*self.least.items(), *self.most.items()):
            if name not in LOWEST:
                raise InputError(_unknown(name))
            if not LOWEST[name] <= number <= HIGHEST.get(name, ALL):
                raise InputError(f"{name}={shown(name, number)}: give {_range(name)}")
            if self.least.get(name, LOWEST[name]) > self.most.get(name, ALL):
                of_size = f" ({SHARD_SIZE} = 1 is level 0, and -1 any other)" if name == "optimizer_level" else ""
                raise InputError(
                    f"{name}: at least {shown(name, self.least[name])} and at most {shown(name, self.most[name])}"
                    f" leave nothing{of_size}: lower the one or raise the other"
                )

    def allows(self, name: str, number: int) -> bool:
        """Whether a plan that has `number` of `name` is wanted."""
        return self.least.get(name, LOWEST[name]) <= number <= self.most.get(name, ALL)

    def allow(self, pipeline_stages: int, micro_batch_num: int, pp_interleave_num: int = 1) -> bool:
        """Whether a plan with so many stages, micro-batches, and virtual stages is wanted."""
        return (
            self.allows("pipeline_stages", pipeline_stages)
            and self.allows("micro_batch_num", micro_batch_num)
            and self.allows("pp_interleave_num", pp_interleave_num)
        )

    @property
    def allows_micro_batches(self) -> bool:
        """Whether a plan with several micro-batches is wanted."""
        return self.most.get("micro_batch_num", ALL) > 1

    @property
    def swaps(self) -> tuple[bool, ...]:
        """Whether optimizer states stay on the host: they do not, unless that is asked for."""
        if not self.names(SWAP):
            return (False,)
        return tuple(swap for swap in (False, True) if self.allows(SWAP, swap))

    @property
    def interleaves(self) -> tuple[int, ...]:
        """The virtual stages that are searched."""
        every = {*INTERLEAVES, self.least.get("pp_interleave_num", 1)}
        return tuple(sorted(n for n in every if self.allows("pp_interleave_num", n)))

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The pipeline schedules that are searched."""
        return tuple(SCHEDULERS)[self.least[SCHEDULER] :][:1] if self.pins(SCHEDULER) else (DEFAULT_SCHEDULER,)

    def recomputed(self, blocks: int) -> tuple[int, int]:
        """The least and the most of `blocks` that may be recomputed; InputError if there are not so many."""
        least, most = self.least.get("recompute", 0), self.most.get("recompute", ALL)
        if blocks < least < ALL:
            raise InputError(f"recompute={least}: the network has {blocks} repeated blocks")
        return min(least, blocks), min(most, blocks)

    def names(self, *names: str) -> bool:
        """Whether anything is said about one of `names`."""
        return not {*names}.isdisjoint((*self.least, *self.most))

    def only(self, name: str) -> "Limits":
        """What is said about `name`."""
        own, below = ({n: k for n, k in of.items() if n == name} for of in (self.least, self.most))
        return Limits(own, below)

    def pins(self, name: str) -> bool:
        """Whether one number of `name` is wanted."""
        return name in self.least and self.least[name] == self.most.get(name)

    @property
    def judges_norms(self) -> bool:
        """Whether only plans with sequence parallelism are wanted, or only those without."""
        return not (self.allows("sequence_parallel", 0) and self.allows("sequence_parallel", 1))

    @property
    def judges_grids(self) -> bool:
        """Whether something is said of degrees that hang on how the major products are cut."""
        return self.judges_norms or self.names("context_parallel") or any(map(self.is_open, self.operators))

    def is_open(self, pin: OperatorPin) -> bool:
        """Whether `pin` speaks of degrees that are not pinned."""
        return not all(map(self.pins, pin.symbols))

    @property
    def fixed(self) -> dict[str, str]:
        """What is pinned, as users write it: `limits_of` makes these limits of it and of `at_most`."""
        found = {n: shown(n, k) for n, k in self.least.items() if self.pins(n)}
        if self.least.get("optimizer_level") == 1 and self.most.get("optimizer_level") != 1:
            found[SHARD_SIZE] = "-1"
        if self.selects:
            found["recompute"] = SELECT
        return {**found, **{pin.pattern: pin.text for pin in self.operators}}

    @property
    def at_most(self) -> dict[str, str]:
        """What is bounded, as users write it."""
        return {n: shown(n, k) for n, k in self.most.items() if k != self.least.get(n)}

    @property
    def each(self) -> tuple[tuple[str, "Limits"], ...]:
        """Everything that is pinned or bounded, in words, each with the limits that are left without it."""
        found = []
        for name in LOWEST:
            if self.names(name):
                least, most = ({n: k for n, k in of.items() if n != name} for of in (self.least, self.most))
                found.append((str(self.only(name)), replace(self, least=least, most=most)))
        if self.selects:
            found.append((f"recompute = {SELECT}", replace(self, selects=False)))
        for pin in self.operators:
            found.append((str(pin), replace(self, operators=tuple(one for one in self.operators if one is not pin))))
        return tuple(found)

    def __str__(self) -> str:
        if self.question:
            return self.question
        parts = []
        for name in LOWEST:
            least, most = self.least.get(name), self.most.get(name)
            if least is not None and least == most:
                parts.append(f"{name} = {shown(name, least)}")
                continue
            parts += [f"{name} >= {shown(name, least)}"] if least is not None else []
            parts += [f"{name} <= {shown(name, most)}"] if most is not None else []
        parts += [f"recompute = {SELECT}"] if self.selects else []
        return ", ".join([*parts, *map(str, self.operators)])


FREE = Limits()
"""Everything is wanted."""


def limits_of(fixed: Iterable[tuple[str, object]], most: Iterable[tuple[str, object]] = ()) -> Limits:
    """The limits that names with numbers or words say: these ones exactly, or no more than these.

    What is no name of PINNED but has a `.`, `/` or `*` is a pattern of operators' names (`operator_pins`). Errors: InputError as
    of `Limits`, for what is neither a number nor a word of WORDS, and for a pattern that is there twice.
    """
    least: dict[str, int] = {}
    highest: dict[str, int] = {}
    operators: list[OperatorPin] = []
    selects = False
    for pairs, exact in ((fixed, True), (most, False)):
        for name, value in pairs:
            if exact and _is_pattern(name):
                operators.append(_further(operators, operator_pin(name, str(value))))
                continue
            if not exact and (name, str(value)) in _NO_MOST:
                raise InputError(f"{name}={value} bounds nothing from above: pin it (--fix), or leave it out")
            if (name, value) == ("recompute", SELECT):
                selects = True
                continue
            number = _number(name, value)
            low: int | None = number if exact else None
            high: int | None = number
            if name == SHARD_SIZE:
                name, (low, high) = "optimizer_level", (1, None) if number == -1 else (None, 0)
            if low is not None:
                least[name] = max(low, least.get(name, low))
            if high is not None:
                highest[name] = min(high, highest.get(name, high))
    if selects and "recompute" in {*least, *highest}:
        raise InputError(f"recompute={SELECT} says all of it: pin or bound no number of recomputed blocks beside it")
    return Limits(least, highest, tuple(operators), selects=selects)


def _further(known: Iterable[OperatorPin], pin: OperatorPin) -> OperatorPin:
    """`pin`, if none of those `known` is for the same pattern; else InputError."""
    for other in known:
        if other.pattern == pin.pattern:
            raise InputError(
                f"{pin.pattern} is pinned twice, {other.text} and {pin.text}: say it in one pin, or by other names"
            )
    return pin


def _is_pattern(name: str) -> bool:
    return name not in PINNED and any(c in name for c in "./*?[")


def shown(name: str, number: int) -> str:
    """`number` of `name` in the words of the user."""
    return next((word for word, known in WORDS.get(name, {}).items() if known == number), str(number))


def _unknown(name: str) -> str:
    meant = f"; {name} is {SHORT[name]}" if name in SHORT else ""
    return f"{name} cannot be pinned: known are {', '.join(PINNED)}{meant}"


def _number(name: str, value: object) -> int:
    if name not in PINNED:
        raise InputError(_unknown(name))
    text = str(int(value)) if isinstance(value, bool) else str(value)
    words = WORDS.get(name, {})
    if text in words:
        return words[text]
    try:
        number = int(text.removeprefix("level") if name == "optimizer_level" else text)  # a report says level1
    except ValueError:
        raise InputError(f"{name}={text}: give {_range(name)}") from None
    if name == SHARD_SIZE and number not in (-1, 1):
        raise InputError(
            f"{name}={number}: give {_range(name)}; over a part of the copies MindSpore can sum gradients over the wrong ranks"
        )
    return number


def _range(name: str) -> str:
    """What may be given for `name`."""
    if name == SHARD_SIZE:
        return "-1 (all copies) or 1 (not sharded)"
    numbers = f"{LOWEST[name]} to {HIGHEST[name]}" if name in HIGHEST else f"a number from {LOWEST[name]}"
    return " or ".join([numbers, *WORDS.get(name, {}), *([SELECT] if name == "recompute" else [])])
