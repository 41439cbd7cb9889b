"""Branches of the layouts, of which one is true: some variables have only some of their candidates (Land and Doig 1960)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.tables.elimination import Factor


@dataclass(frozen=True)
class Branch:
    """Layouts in which the variables that are named have only these candidates."""

    allowed: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def holds(self, choice: Sequence[int] | NDArray[np.intp]) -> bool:
        return all(choice[variable] in candidates for variable, candidates in self.allowed.items())

    def split(self, variable: int, candidates: Sequence[int], size: int) -> list["Branch"]:
        """A branch for each of these candidates of a variable, and one for all others of the `size` that it has."""
        mine = self.allowed.get(variable, frozenset(range(size)))
        parts = [frozenset({candidate}) for candidate in candidates]
        rest = mine - frozenset(candidates)
        return [Branch({**self.allowed, variable: part}) for part in (*parts, *([rest] if rest else []))]


EVERY = Branch()


def forbidden(branches: Sequence[Branch], sizes: Sequence[int]) -> Iterator[Factor]:
    """The tables that forbid in several problems, each with its branch, what that does not allow."""
    for variable in sorted({variable for branch in branches for variable in branch.allowed}):
        table = np.zeros((len(branches), sizes[variable]))
        for mine, branch in zip(table, branches, strict=True):
            if variable in branch.allowed:
                mine[[c for c in range(sizes[variable]) if c not in branch.allowed[variable]]] = np.inf
        yield Factor((variable,), table)
