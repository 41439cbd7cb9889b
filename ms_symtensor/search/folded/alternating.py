"""Kinds of blocks that take turns: equal periods of them are laid out alike.

Of A B A B A B, local and global attention or dense and sparse layers, every A B is a period, and of six blocks the search lays
out two. A pipeline stage may begin and end inside a period.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby

from ms_symtensor.search.folded.folding import fold
from ms_symtensor.tensor.graph import JOINT, Graph


def merge_period(graph: Graph) -> Graph:
    """`graph`, whose operators know the period of their block; itself where kinds of blocks do not take turns, or in no periods
    that leave runs of equal ones.
    """
    names = graph.blocks
    number = {name: kind for kind, alike in enumerate(fold(graph).kinds) for name in alike}
    kinds = [number.get(name, len(names) + place) for place, name in enumerate(names)]
    parts: list[tuple[str, ...]] = [(name,) for name in names]
    while not _is_in_runs(kinds):
        period = _period(kinds)
        if period is None:
            return graph
        start, length, times = period
        end = start + length * times
        parts[start:end] = [tuple(chain(*parts[n : n + length])) for n in range(start, end, length)]
        kinds[start:end] = [max(kinds) + 1] * times
    period_of = {name: JOINT.join(together) for together in parts if len(together) > 1 for name in together}
    if not period_of:
        return graph
    return replace(graph, ops=tuple(replace(op, period=period_of.get(op.block or "")) for op in graph.ops))


def _is_in_runs(kinds: Sequence[int]) -> bool:
    """Whether all of a kind stand together."""
    return len(list(groupby(kinds))) == len({*kinds})


def _period(kinds: Sequence[int]) -> tuple[int, int, int] | None:
    """Where a period of several kinds begins, how long it is and how often it stands there in a row: of all that which most
    blocks are in, of such the shortest, of such the first.
    """
    found: list[tuple[int, int, int, int]] = []
    for length in range(2, len(kinds) // 2 + 1):
        for start in range(len(kinds) - 2 * length + 1):
            once, times = kinds[start : start + length], 1
            while kinds[start + times * length : start + (times + 1) * length] == once:
                times += 1
            if times > 1 and len({*once}) > 1:
                found.append((-length * times, length, start, times))
    if not found:
        return None
    _, length, start, times = min(found)
    return start, length, times


def separated(together: Graph) -> Graph:
    """The graph that `together` was `merge_period` of."""
    if longest(together) == 1:
        return together
    return replace(together, ops=tuple(replace(op, period=None) for op in together.ops))


def longest(together: Graph) -> int:
    """How many blocks a period has at most: 1 where there are none."""
    periods = {op.period for op in together.ops if op.period is not None}
    return max((len(name.split(JOINT)) for name in periods), default=1)
