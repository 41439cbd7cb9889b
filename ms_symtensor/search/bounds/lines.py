"""What layouts take by every view of a shape: the lines whose least one prices are to make as large as can be."""

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.views import Views
from ms_symtensor.search.stages.rows import Row

Array = NDArray[np.float64]


class Lines:
    """Layouts, each with what it makes again: seconds by every view, and bytes beyond the limit."""

    def __init__(self, views: Views, limit_B: float) -> None:
        self.views, self.limit_B = views, limit_B
        self.rows: list[Row] = []
        self._known: dict[int, int] = {}  # by the identity of a row, which `rows` keeps
        self._seconds: list[Array] = []
        self._over: list[Array] = []
        # [places, views]; of what is made again, one of each run of the stages, and of elsewhere.
        self._each, *again, self._once = views.seconds.transpose(1, 2, 0)
        self._kept, *saved, self._rest = views.size_B.transpose(1, 2, 0)
        self._again, self._saved = np.array(again), np.array(saved)
        self._again_where, self._saved_where = _where(self._again), _where(self._saved)

    def add(self, row: Row, remade: Array, needed_B: Array) -> None:
        """A line for `row`, which makes so much again [(runs, elsewhere), (seconds, bytes), places].

        `needed_B` [needs]: bytes of what operators need beside (`users`).
        """
        again_s, saved_B = remade.transpose(1, 0, 2)[:, :, None]
        plain_s, plain_B = self._plain(row, needed_B)
        more_s, less_B = np.matmul(again_s, self._again).sum(axis=0), np.matmul(saved_B, self._saved).sum(axis=0)
        self._append(row, plain_s + more_s, plain_B - less_B)

    def learn(self, row: Row, remade: Array, needed_B: Array) -> None:
        """Lines for `row`, which makes nothing again, or something of what is known, `remade` [known, (seconds, bytes), places]:
        the same everywhere, on the stages that the views know of, or in the first run of these. Only what is new is added.
        """
        plain_s, plain_B = self._plain(row, needed_B)
        if id(row) not in self._known:
            self._append(row, plain_s[None], plain_B[None])
        again_s, saved_B = remade[self._known.get(id(row), 0) :].transpose(1, 0, 2)
        self._known[id(row)] = len(remade)
        more_s = np.matmul(again_s, self._again_where).reshape(-1, len(plain_s))
        less_B = np.matmul(saved_B, self._saved_where).reshape(-1, len(plain_B))
        self._append(row, plain_s + more_s, plain_B - less_B)

    def knows(self, row: Row) -> int:
        """Of how much that `row` makes again there are lines; -1 if there are none of it."""
        return self._known.get(id(row), -1)

    def _plain(self, row: Row, needed_B: Array) -> tuple[Array, Array]:
        """Nothing made again."""
        costs = row.costs
        seconds = costs.each_s @ self._each + costs.once_s @ self._once
        size_B = costs.kept_B @ self._kept + costs.at_rest_B @ self._rest + self.views.there @ needed_B - self.limit_B
        return seconds, size_B

    def _append(self, row: Row, seconds: Array, over: Array) -> None:
        self._seconds.append(seconds)
        self._over.append(over)
        self.rows += [row] * len(seconds)

    def last(self) -> tuple[Array, Array]:
        return self._seconds[-1][-1], self._over[-1][-1]

    def arrays(self) -> tuple[Array, Array]:
        """[lines, views of seconds], [lines, views of bytes]."""
        return np.concatenate(self._seconds), np.concatenate(self._over)


def _where(of_runs: Array) -> Array:
    """What counts in all runs and elsewhere; in the runs; and in the first one, if there are several."""
    sums = of_runs.cumsum(axis=0)
    found: Array = sums[[-1, -2, 0][: len(sums)]]
    return found
