"""Which leaf every node stands under, so that the most loaded uplink carries least.

Minimise over the leaf of every node, at most `room` nodes a leaf,

    max over leaves of max(bytes that leave it, bytes that enter it).

Few nodes: exact, by depth-first search over the partitions of nodes, cut off where the bytes between nodes that stand already
reach the best known. Many: moves and swaps of nodes from rank order on, while one helps; then with a lower bound: of every node
the bytes beyond its room - 1 heaviest partners leave its leaf, whatever the placement.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EXACT_NODES = 12
"""So many nodes are placed exactly: 4 leaves of 3 have 15,400 partitions, a second or so."""
MOST_CHANGES = 2000
"""Moves and swaps that are made at most."""
MOST_LEAVES = 16
"""Leaves whose nodes are tried, the fullest first."""
_SAME = 1e-12
Change = tuple[tuple[int, int], ...]
"""Nodes, each with its new leaf."""
Bytes = NDArray[np.float64]


@dataclass(frozen=True)
class Placed:
    """`leaf_of` [nodes]; bytes over the most loaded uplinks or downlinks of a leaf: so, in rank order, and at least."""

    leaf_of: tuple[int, ...]
    most_B: float
    rank_order_B: float
    bound_B: float
    is_exact: bool


def most_B(between: Bytes, leaf_of: tuple[int, ...]) -> float:
    """Bytes over the most loaded uplinks or downlinks; `between` [nodes, nodes]."""
    leaf = np.asarray(leaf_of)
    found = 0.0
    for one in np.unique(leaf):
        inside = leaf == one
        found = max(found, float(between[inside][:, ~inside].sum()), float(between[~inside][:, inside].sum()))
    return found


def placed(between: Bytes, room: int) -> Placed:
    """The placement of the nodes whose exchanges are `between` [nodes, nodes] bytes, at most `room` under a leaf."""
    number = len(between)
    order = tuple(node // room for node in range(number))
    ordered_B = most_B(between, order)
    if number <= room or ordered_B == 0:
        return Placed(order, ordered_B, ordered_B, ordered_B, True)
    starts = (order, _gathered(between, room))
    better = min((_improved(between, start, room) for start in starts), key=lambda one: most_B(between, one))
    if number > EXACT_NODES:
        found_B, bound_B = most_B(between, better), _bound_B(between, room)
        return Placed(better, found_B, ordered_B, min(found_B, bound_B), found_B <= bound_B * (1 + _SAME))
    best = _exact(between, room, better)
    best_B = most_B(between, best)
    return Placed(best, best_B, ordered_B, best_B, True)


def _bound_B(between: Bytes, room: int) -> float:
    """At least so many bytes leave, or enter, the most loaded of the leaves."""
    leaves = -(-len(between) // room)
    found = 0.0
    for sent in (between, between.T):
        ordered = np.sort(sent, axis=1)[:, ::-1]
        beyond = ordered[:, room - 1 :].sum(axis=1)  # its own entry is 0, so never among the heaviest
        found = max(found, float(beyond.sum()) / leaves)
    return found


def _gathered(between: Bytes, room: int) -> tuple[int, ...]:
    """Leaf by leaf: the node of most bytes, and one by one what exchanges most with those that are there."""
    both = between + between.T
    left, leaf_of, leaf = set(range(len(both))), [0] * len(both), 0
    while left:
        inside = [max(left, key=lambda node: (float(both[node, list(left)].sum()), -node))]
        left.remove(inside[0])
        while left and len(inside) < room:
            inside.append(max(left, key=lambda node: (float(both[node, inside].sum()), -node)))
            left.remove(inside[-1])
        for node in inside:
            leaf_of[node] = leaf
        leaf += 1
    return tuple(leaf_of)


def _improved(between: Bytes, start: tuple[int, ...], room: int) -> tuple[int, ...]:
    """The best placement on the way that single moves and swaps of nodes lead to, those of the most loaded leaf first.

    A change is made if it lowers the sum of the fourth powers of the leaves' bytes: so one of several leaves that are loaded
    alike may be relieved first.
    """
    leaf, leaves = np.array(start), max(start) + 1
    best, best_B = start, most_B(between, start)
    for _ in range(MOST_CHANGES):
        change = _best_change(between, leaf, leaves, room)
        if change is None:
            break  # no node of any leaf
        for node, to in change:
            leaf[node] = to
        now = tuple(int(one) for one in leaf)
        now_B = most_B(between, now)
        if now_B < best_B * (1 - _SAME):
            best, best_B = now, now_B
    return _named(best)


def _best_change(between: Bytes, leaf: NDArray[np.int64], leaves: int, room: int) -> Change | None:
    """The swap, or move, of a node of the fullest leaf, or else of the next one, that lowers the sum of fourth powers most; None
    if none does.
    """
    member = np.eye(leaves)[leaf]  # [nodes, leaves]
    both = (between + between.T) @ member  # bytes of a node to and from each leaf
    sent, taken = between.sum(axis=1), between.sum(axis=0)
    inside = np.array([both[leaf == one, one].sum() / 2 for one in range(leaves)])
    out, into = member.T @ sent - inside, member.T @ taken - inside
    load = np.maximum(out, into)
    scale = float(load.max())
    rest = float(((load / scale) ** 4).sum()) if scale else 0.0
    for top in np.argsort(-load, kind="stable")[:MOST_LEAVES] if scale else ():
        found = _change_of(between, leaf, int(top), both, (sent, taken, inside, out, into, load), rest, room)
        if found is not None:
            return found
    return None


def _change_of(
    between: Bytes, leaf: NDArray[np.int64], top: int, both: Bytes, sums: tuple[Bytes, ...], rest: float, room: int
) -> Change | None:
    """The best change of a node of leaf `top`; `rest`: the sum of fourth powers now."""
    sent, taken, inside, out, into, load = sums
    mine, others = np.flatnonzero(leaf == top), np.flatnonzero(leaf != top)
    scale, leaves = float(load.max()), len(load)
    found: Change | None = None

    def change_of(i: NDArray[np.int64], to: NDArray[np.int64], j: NDArray[np.int64] | None) -> Bytes:
        """The sum of fourth powers [i, j or to] when i goes to leaf `to`, and j comes for it."""
        leaving = both[i, top][:, None]
        coming = both[i][:, to]
        first, second = inside[top] - leaving, inside[to][None, :] + coming
        gone, came = sent[i][:, None], taken[i][:, None]
        new = [out[top] + inside[top] - gone, into[top] + inside[top] - came]
        there = [(out + inside)[to][None, :] + gone, (into + inside)[to][None, :] + came]
        if j is not None:
            between_B = (between + between.T)[np.ix_(i, j)]
            first = first + both[j, top][None, :] - between_B
            second = second - both[j, leaf[j]][None, :] - between_B
            new = [new[0] + sent[j][None, :], new[1] + taken[j][None, :]]
            there = [there[0] - sent[j][None, :], there[1] - taken[j][None, :]]
        here_B = np.maximum(new[0], new[1]) - first
        there_B = np.maximum(there[0], there[1]) - second
        old = (load[top] / scale) ** 4 + (load[to][None, :] / scale) ** 4
        return np.asarray(rest - old + (here_B / scale) ** 4 + (there_B / scale) ** 4)

    best = rest * (1 - 1e-9)
    if len(others):
        values = change_of(mine, leaf[others], others)
        at = np.unravel_index(int(np.argmin(values)), values.shape)
        if values[at] < best:
            i, j = int(mine[at[0]]), int(others[at[1]])
            best, found = float(values[at]), ((i, int(leaf[j])), (j, top))
    free = np.array([one for one in range(leaves) if one != top and (leaf == one).sum() < room], dtype=np.int64)
    if len(free):
        values = change_of(mine, free, None)
        at = np.unravel_index(int(np.argmin(values)), values.shape)
        if values[at] < best:
            found = ((int(mine[at[0]]), int(free[at[1]])),)
    return found


def _exact(between: Bytes, room: int, known: tuple[int, ...]) -> tuple[int, ...]:
    """The best of all placements on as many leaves as rank order takes."""
    number = len(between)
    leaves = -(-number // room)
    both = between + between.T
    order = sorted(range(number), key=lambda node: (-float(both[node].sum()), node))
    best, best_B = known, most_B(between, known)
    leaf = [-1] * number
    sent, taken, filled = [0.0] * leaves, [0.0] * leaves, [0] * leaves

    def place(depth: int, used: int) -> None:
        nonlocal best, best_B
        if max(*sent, *taken) >= best_B * (1 - _SAME):
            return
        if depth == number:
            best, best_B = tuple(leaf), max(*sent, *taken)
            return
        node = order[depth]
        for to in range(min(used + 1, leaves)):
            if filled[to] == room:
                continue
            before = sent[:], taken[:]
            for other in order[:depth]:
                if leaf[other] != to:
                    sent[to] += float(between[node, other])
                    taken[leaf[other]] += float(between[node, other])
                    sent[leaf[other]] += float(between[other, node])
                    taken[to] += float(between[other, node])
            leaf[node], filled[to] = to, filled[to] + 1
            place(depth + 1, max(used, to + 1))
            leaf[node], filled[to] = -1, filled[to] - 1
            sent[:], taken[:] = before

    place(0, 0)
    return _named(best)


def _named(leaf_of: tuple[int, ...]) -> tuple[int, ...]:
    """Leaves numbered as they first occur."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(one, len(names)) for one in leaf_of)
