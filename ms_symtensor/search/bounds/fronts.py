"""What given layouts may make again, at a few prices of a byte."""

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.given_layouts import Given, Remade
from ms_symtensor.search.bounds.selection_bound import EVERYTHING

Array = NDArray[np.float64]


class Fronts:
    """What layouts may make again: at some prices, each found once for all layouts of equal costs."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], dict[float, Remade]] = {}
        self._tables: dict[tuple[bytes, bytes], Array] = {}

    def of(self, given: Given) -> dict[float, Remade]:
        """What is known of these layouts, by the prices."""
        return self._known.setdefault(given.costs, {})

    def known(self, given: Given) -> Array:
        """What is known of these layouts, in the order in which it was found, [known, (seconds, bytes), places]."""
        found, table = self.of(given), self._tables.get(given.costs)
        if table is None or len(table) < len(found):
            table = np.array([(one.again_s, one.saved_B) for one in found.values()]).reshape(-1, 2, given.places)
            self._tables[given.costs] = table
        return table

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
