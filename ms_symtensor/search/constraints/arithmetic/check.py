"""Whether numbers within limits agree with the facts; else the conditions that are broken, and the nearest numbers that work.

A handful of names with a handful of numbers each: all of them are looked through, name by name.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import ImpossibleError
from ms_symtensor.search.constraints.arithmetic.conditions import CONDITIONS, Condition, Numbers, forms_groups
from ms_symtensor.search.constraints.arithmetic.facts import Facts
from ms_symtensor.search.constraints.limits import FREE, HIGHEST, INTERLEAVES, LOWEST, Limits, shown

LONGEST = 440
"""Characters of a message, which is one line; what is broken beside the first condition is told where there is room."""

MOST_TIMES = 8
"""Up to so many times the devices are looked at for a number that works."""

Domains = Mapping[str, Sequence[int]]
"""The numbers of each name."""


@dataclass(frozen=True)
class Broken:
    """`conditions` of which no numbers within the limits fulfil all, because of what is pinned or bounded of `names`."""

    names: tuple[str, ...]
    conditions: tuple[Condition, ...]


def require_arithmetic(facts: Facts, limits: Limits) -> None:
    """ImpossibleError where no numbers within `limits` agree with `facts`: it names what is pinned, the condition that is broken,
    with its numbers, and the nearest numbers that work.
    """
    if limits != FREE and (found := broken(facts, limits)):
        first, *others = (_told(facts, limits, one, found) for one in found)
        for other in others:
            first = f"{first}; {other}" if len(first) + len(other) < LONGEST else first
        raise ImpossibleError(first)


def broken(facts: Facts, limits: Limits) -> tuple[Broken, ...]:
    """The conditions that no numbers within `limits` fulfil, each with the fewest pins that break it; none where some do."""
    known = [one for one in CONDITIONS if one.is_known(facts)]
    domains = {name: _within(name, facts, limits) for name in LOWEST}
    if _is_possible(facts, known, domains):
        return ()
    found: list[Broken] = []
    for one in known:
        if not _is_possible(facts, [one], domains):
            names = _fewest(facts, limits, [one], one.names)
            if not any(set(names) & set(other.names) for other in found):
                found.append(Broken(names, (one,)))
    if found:
        return tuple(found)
    names = _fewest(facts, limits, known, tuple(LOWEST))
    of_names = {name: domains[name] if name in names else _every(name, facts) for name in LOWEST}
    conditions = known
    for one in known:
        others = [other for other in conditions if other is not one]
        conditions = conditions if _is_possible(facts, others, of_names) else others
    return (Broken(names, tuple(conditions)),)


def _fewest(facts: Facts, limits: Limits, conditions: Sequence[Condition], names: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` without whose limits the conditions could be fulfilled: the pins of the others are innocent."""
    domains = {name: _within(name, facts, limits) for name in LOWEST}
    left = []
    for name in names:
        freed = {**domains, name: _every(name, facts)}
        if _is_possible(facts, conditions, freed):
            left.append(name)
        else:
            domains = freed
    return tuple(left)


def _is_possible(facts: Facts, conditions: Sequence[Condition], domains: Domains) -> bool:
    """Whether numbers of `domains` fulfil all `conditions`."""
    names = list(dict.fromkeys(name for one in conditions for name in one.names))
    alone: dict[str, list[Condition]] = {name: [one for one in conditions if one.names == (name,)] for name in names}
    left = {
        name: [n for n in domains[name] if all(one.holds(facts, {name: n}) for one in alone[name])] for name in names
    }
    names.sort(key=lambda name: len(left[name]))  # what is pinned first, so that little is tried in vain
    together = [one for one in conditions if len(one.names) > 1]
    ready = [
        [one for one in together if names[place] in one.names and {*one.names} <= {*names[: place + 1]}]
        for place in range(len(names))
    ]

    def is_fulfilled(chosen: Numbers) -> bool:
        place = len(chosen)
        if place == len(names):
            return True
        every = ({**chosen, names[place]: number} for number in left[names[place]])
        return any(all(one.holds(facts, more) for one in ready[place]) and is_fulfilled(more) for more in every)

    return is_fulfilled({})


def _every(name: str, facts: Facts) -> tuple[int, ...]:
    """The numbers that `name` may have on these devices, the smallest first."""
    match name:
        case _ if name in HIGHEST:
            return tuple(range(HIGHEST[name] + 1))
        case "recompute":
            return tuple(range((facts.blocks or 0) + 1))
        case "micro_batch_num":
            return divisors(facts.batch or facts.device_num)
        case "pp_interleave_num":
            return INTERLEAVES
        case _:
            return divisors(facts.device_num)


def _within(name: str, facts: Facts, limits: Limits) -> tuple[int, ...]:
    """Those within `limits`; the least of these where no such number is, which the conditions then speak of."""
    if name == "pp_interleave_num":
        return limits.interleaves
    found = tuple(number for number in _every(name, facts) if limits.allows(name, number))
    return found or (limits.least.get(name, LOWEST[name]),)


def _told(facts: Facts, limits: Limits, one: Broken, every: Sequence[Broken]) -> str:
    pins = ", ".join(str(limits.only(name)) for name in one.names)
    numbers = {name: _meant(name, facts, limits) for name in one.names}
    if len(one.conditions) == 1:
        why = one.conditions[0].says(facts, numbers)
    else:
        sizes = [f"{facts.device_num} devices"]
        sizes += [f"{number} {what}" for number, what in ((facts.batch, "samples"), (facts.blocks, "blocks")) if number]
        rules = "; ".join(condition.rule for condition in one.conditions)
        why = f"{', '.join(sizes)}: no numbers keep all of these rules: {rules}"
    return f"{pins}: {why}{_remedy(facts, limits, one, every)}"


def _meant(name: str, facts: Facts, limits: Limits) -> int:
    """The number of `name` that its pin comes nearest to: the pinned one, or that at the bound."""
    return (max if name in limits.most else min)(_within(name, facts, limits))


def _remedy(facts: Facts, limits: Limits, one: Broken, every: Sequence[Broken]) -> str:
    """The nearest numbers that work, of each name that breaks something and of the devices; pins that break something else are
    taken for free.
    """
    freed = {name for other in every if other is not one for name in other.names}

    def is_possible(facts: Facts, **numbers: int) -> bool:
        known = [condition for condition in CONDITIONS if condition.is_known(facts)]
        domains = {name: _every(name, facts) if name in freed else _within(name, facts, limits) for name in LOWEST}
        return _is_possible(facts, known, {**domains, **{name: (number,) for name, number in numbers.items()}})

    found = []
    for name in one.names:
        pinned = _meant(name, facts, limits)
        works = [number for number in _every(name, facts) if is_possible(facts, **{name: number})]
        near = [*[n for n in works if n < pinned][-1:], *[n for n in works if n > pinned][:1]]
        if near:
            found.append(f"{name} = {' or '.join(shown(name, number) for number in near)}")
    most = min(MOST_TIMES * facts.device_num, facts.max_devices or math.inf)
    for devices in range(2 * facts.device_num, int(most) + 1, facts.device_num):
        if forms_groups(devices) and is_possible(replace(facts, device_num=devices)):
            found.append(f"{devices} devices")
            break
    several = "work" if len(found) > 1 or " or " in "".join(found) else "works"
    return f"; nearest that {several}: {', or '.join(found)}" if found else ""
