"""What given layouts may make again: at a few prices of a byte, and on stages that make again what they must."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.given_layouts import Given, Remade
from ms_symtensor.search.bounds.selection_bound import EVERYTHING
from ms_symtensor.search.folded.chain import Chain, Part

Array = NDArray[np.float64]


class SelectedChain(Chain):
    """A chain whose blocks make parts again, as little as makes a run of them fit: `levels` [levels, parts, (seconds, bytes)]."""

    def __init__(self, parts: Sequence[Part], levels: Array) -> None:
        super().__init__(parts)
        sums = np.cumsum(levels, axis=1)
        self._sums = np.concatenate([np.zeros((len(levels), 1, 2)), sums], axis=1)

    def fitting(
        self, start: int, end: int, flight: int, limit_B: float, most: float = math.inf
    ) -> tuple[float, float, int] | None:
        """As of `Chain`, but for how many blocks are recomputed."""
        each_s = self.each_s[end] - self.each_s[start]
        peak_B = self.at_rest_B[end] - self.at_rest_B[start] + flight * (self.kept_B[end] - self.kept_B[start])
        if peak_B > limit_B:
            again_s, saved_B = (self._sums[:, end] - self._sums[:, start]).T
            missing_B = (peak_B - limit_B) / flight
            if missing_B > saved_B[-1]:
                return None
            each_s += float(np.interp(missing_B, saved_B, again_s))
            peak_B = limit_B
        return each_s, peak_B, 0


class Fronts:
    """What layouts may make again: at some prices, each found once for all layouts of equal costs."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], dict[float, Remade]] = {}

    def of(self, given: Given) -> dict[float, Remade]:
        """What is known of these layouts, by the prices."""
        return self._known.setdefault((given.seconds.tobytes(), given.size_B.tobytes()), {})

    def at(self, given: Given, price_s_per_B: float) -> Remade:
        known = self.of(given)
        if price_s_per_B not in known:
            known[price_s_per_B] = given.at(price_s_per_B)
        return known[price_s_per_B]

    def levels(self, given: Given) -> Array:
        """What every place makes again and saves as far as it is known, [levels, places, 2], from nothing to everything."""
        self.at(given, EVERYTHING)
        found = [one for _, one in sorted(self.of(given).items())]
        nothing = np.zeros((given.places, 2))
        return np.array([nothing, *(np.stack([one.again_s, one.saved_B], axis=1) for one in found)])
