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
        self._seconds: list[Array] = []
        self._over: list[Array] = []

    def add(self, row: Row, remade: Array, needed_B: Array) -> None:
        """A line for each of `remade`: seconds and bytes, in the run and elsewhere [lines, 2, (seconds, bytes), places].

        `needed_B` [needs]: bytes of what operators need beside (`users`).
        """
        each, here_s, elsewhere_s, once = self.views.seconds.transpose(1, 0, 2)
        kept, here_B, elsewhere_B, rest = self.views.size_B.transpose(1, 0, 2)
        run, other, costs = remade[:, 0], remade[:, 1], row.costs
        again_s = run[:, 0] @ here_s.T + other[:, 0] @ elsewhere_s.T
        saved_B = run[:, 1] @ here_B.T + other[:, 1] @ elsewhere_B.T
        self._seconds.append(each @ costs.each_s + once @ costs.once_s + again_s)
        plain_B = kept @ costs.kept_B + rest @ costs.at_rest_B + self.views.there @ needed_B
        self._over.append(plain_B - self.limit_B - saved_B)
        self.rows += [row] * len(remade)

    def last(self) -> tuple[Array, Array]:
        return self._seconds[-1][-1], self._over[-1][-1]

    def arrays(self) -> tuple[Array, Array]:
        """[lines, views of seconds], [lines, views of bytes]."""
        return np.concatenate(self._seconds), np.concatenate(self._over)
