"""What a block needs for certain beside what gradients keep: tables over one variable or two, and their sums."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.elimination import Factor

Array = NDArray[np.float64]


class User(NamedTuple):
    """What the variables of `scope` count for: bytes [candidates of each], of those that have the number `need`.

    With k kinds of blocks, need n is that of communicators' buffers for blocks of kind n, k + n what is there for a moment while
    such a block runs backward, and the last one, 2k, while what stands before the blocks does.
    """

    scope: tuple[int, ...]
    need: int
    size_B: Array


def need_num(kinds: int) -> int:
    """How many needs there are with so many kinds of blocks."""
    return 2 * kinds + 1


def needed_B(users: Sequence[User], choices: NDArray[np.intp], kinds: int) -> Array:
    """Bytes of every need in layouts [layouts, variables], as `users` count them: [layouts, needs]."""
    found = np.zeros((len(choices), need_num(kinds)))
    for user in users:
        found[:, user.need] += user.size_B[tuple(choices[:, v] for v in user.scope)]
    return found


def priced(prices: Sequence[Array], users: Sequence[Sequence[User]]) -> Iterator[Factor]:
    """The tables of what is needed in several problems, of each of which a byte has a price [needs], and which have `users`."""
    found: dict[tuple[int, ...], Array] = {}
    for problem, (price, its) in enumerate(zip(prices, users, strict=True)):
        for user in its:
            if price[user.need]:
                table = found.setdefault(user.scope, np.zeros((len(prices), *user.size_B.shape)))
                table[problem] += price[user.need] * user.size_B
    for scope, table in found.items():
        yield Factor(scope, table)
