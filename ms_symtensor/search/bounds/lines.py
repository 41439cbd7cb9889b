"""What layouts take by every view of a shape: the lines whose least one prices are to make as large as can be."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.views import Views
from ms_symtensor.search.stages.rows import Row

Array = NDArray[np.float64]

_COSTS = ("each_s", "once_s", "kept_B", "at_rest_B")


class Lines:
    """Layouts, each with what it makes again: seconds by every view, and bytes beyond the limit."""

    def __init__(self, views: Views, limit_B: float) -> None:
        self.views, self.limit_B = views, limit_B
        self.rows: list[Row] = []
        self._seconds: list[Array] = []
        self._over: list[Array] = []

    def add(self, rows: Sequence[Row], remade: Sequence[Array], needed_B: Array) -> None:
        """Lines for every one of `rows`, one for each of what it may make again: of each row seconds and bytes, in the runs of
        the stage and elsewhere [lines, (runs, elsewhere), (seconds, bytes), places].

        `needed_B` [rows, needs]: bytes of what operators need beside (`users`).
        """
        each, *again, once = self.views.seconds.transpose(1, 2, 0)
        kept, *saved, rest = self.views.size_B.transpose(1, 2, 0)
        each_s, once_s, kept_B, rest_B = (np.array([getattr(row.costs, name) for row in rows]) for name in _COSTS)
        again_s, saved_B = np.concatenate(remade).transpose(2, 1, 0, 3)
        which = np.repeat(np.arange(len(rows)), [len(ways) for ways in remade])
        plain_s = each_s @ each + once_s @ once
        plain_B = kept_B @ kept + rest_B @ rest + needed_B @ self.views.there.T - self.limit_B
        self._seconds.append(plain_s[which] + np.matmul(again_s, again).sum(axis=0))
        self._over.append(plain_B[which] - np.matmul(saved_B, saved).sum(axis=0))
        self.rows += [rows[number] for number in which]

    def last(self) -> tuple[Array, Array]:
        return self._seconds[-1][-1], self._over[-1][-1]

    def arrays(self) -> tuple[Array, Array]:
        """[lines, views of seconds], [lines, views of bytes]."""
        return np.concatenate(self._seconds), np.concatenate(self._over)
