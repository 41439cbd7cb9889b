"""What given layouts may make again, at any price of a byte: found once in a search."""

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ms_symtensor.search.bounds.communicators import Communicators
from ms_symtensor.search.bounds.given_layouts import Given, Remade
from ms_symtensor.search.bounds.remaking import Remaking
from ms_symtensor.search.bounds.selection_bound import EVERYTHING
from ms_symtensor.search.tables.problem import Problem

Array = NDArray[np.float64]


@dataclass
class _Front:
    """What some layouts make again: at prices that were looked at, by rising ones; and `different`, what was found.

    Where the same is made again at two prices, it is at all between them: what every choice costs is linear in the price, and the
    least of lines is concave. A mixture of the flows there, which fill one cut, fills it at the price between them: so prices
    of implications are mixed.
    """

    prices: list[float] = field(default_factory=list)
    remade: list[Remade] = field(default_factory=list)
    different: dict[tuple[bytes, bytes], Remade] = field(default_factory=dict)
    _table: Array | None = None

    def at(self, given: Given, price_s_per_B: float) -> Remade:
        """What `given`, the layouts, make again at this price: looked at, where it does not follow from its neighbours."""
        place = bisect_left(self.prices, price_s_per_B)
        if place < len(self.prices) and self.prices[place] == price_s_per_B:
            return self.remade[place]
        if 0 < place < len(self.prices):
            below, above = self.remade[place - 1], self.remade[place]
            if below.again_s is above.again_s:
                low, high = self.prices[place - 1], self.prices[place]
                share = (price_s_per_B - low) / (high - low)
                return above._replace(prices=(1 - share) * below.prices + share * above.prices)
        new = given.at(price_s_per_B)
        one = self.different.setdefault((new.again_s.tobytes(), new.saved_B.tobytes()), new)
        self.prices.insert(place, price_s_per_B)
        self.remade.insert(place, one._replace(prices=new.prices))
        return self.remade[place]

    def table(self, places: int) -> Array:
        """What is different, in the order in which it was found, [different, (seconds, bytes), places]."""
        if self._table is None or len(self._table) < len(self.different):
            found = [(one.again_s, one.saved_B) for one in self.different.values()]
            self._table = np.array(found).reshape(-1, 2, places)
        return self._table


class Fronts:
    """What layouts may make again: found once for all layouts of equal costs."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], _Front] = {}
        self._remaking: dict[int, Remaking] = {}  # by the identity of a problem, which it keeps
        self._communicators: dict[int, Communicators] = {}

    def remaking(self, of: Problem) -> Remaking:
        """The closure of the blocks of a problem, written down once for all its settings."""
        if id(of) not in self._remaking:
            self._remaking[id(of)] = Remaking(of)
        return self._remaking[id(of)]

    def communicators(self, of: Problem) -> Communicators:
        """The groups that are used in the blocks of a problem."""
        if id(of) not in self._communicators:
            self._communicators[id(of)] = Communicators(of)
        return self._communicators[id(of)]

    def _of(self, given: Given) -> _Front:
        return self._known.setdefault(given.costs, _Front())

    def at(self, given: Given, price_s_per_B: float) -> Remade:
        """What they make again at this price."""
        return self._of(given).at(given, price_s_per_B)

    def known(self, given: Given) -> Array:
        """What is known of these layouts, in the order in which it was found, [known, (seconds, bytes), places]."""
        return self._of(given).table(given.places)

    def levels(self, given: Given) -> Array:
        """What every place makes again and saves as far as it is known, [levels, places, 2], from nothing to everything."""
        self.at(given, EVERYTHING)
        rising = {id(one.again_s): one for one in self._of(given).remade}
        return np.array(
            [np.zeros((given.places, 2)), *(np.stack([one.again_s, one.saved_B], axis=1) for one in rising.values())]
        )
