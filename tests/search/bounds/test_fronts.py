"""What is made again at any price, against a cut at every price and all subsets."""

import random
from itertools import combinations

import numpy as np
import pytest

from ms_symtensor.search.bounds.fronts import Fronts
from ms_symtensor.search.bounds.given_layouts import Closure, Entries, Given
from ms_symtensor.search.selections.closure import Closures

PRICES = (1e-12, 1e-11, 5e-11, 1e-10, 2e-10, 5e-10, 1e-9, 3e-9, 1e-8)


class Counted(Given):
    """A closure that counts how often it was cut."""

    cuts = 0

    def at(self, price_s_per_B):
        Counted.cuts += 1
        return super().at(price_s_per_B)


def closure_of(seed):
    """Items that take microseconds or save kilobytes, some of which imply others; and which implications have a price."""
    rng = random.Random(seed)
    number = rng.randint(2, 8)
    saves = [rng.random() < 0.5 for _ in range(number)]
    seconds = np.array([0.0 if s else rng.randint(1, 50) * 1e-6 for s in saves])
    size_B = np.array([-1024.0 * rng.randint(1, 200) if s else 0.0 for s in saves])
    pairs = [(a, b) for a in range(number) for b in range(number) if saves[a] and not saves[b] and rng.random() < 0.4]
    priced = [pair for pair in pairs if rng.random() < 0.7]
    kept = [pair for pair in pairs if pair not in priced]
    counts = np.ones((number, 1), dtype=int)
    of = Closure(Entries([]), Entries([]), counts, Closures(number, kept, priced))
    return Counted(of, seconds, size_B), kept, priced


@pytest.mark.parametrize("seed", range(30))
def test_at_every_price_what_a_cut_there_finds(seed):
    given, kept, priced = closure_of(seed)
    fronts = Fronts()
    rng = random.Random(seed)
    asked = [*PRICES, *(rng.choice(PRICES) * rng.uniform(0.5, 2.0) for _ in range(60))]
    rng.shuffle(asked)
    Counted.cuts = 0
    found = {price: fronts.at(given, price) for price in asked}
    assert Counted.cuts < len(found) / 2
    for price, one in found.items():
        cut = given.at(price)
        weight = one.again_s[0] - price * one.saved_B[0]
        assert weight == pytest.approx(cut.again_s[0] - price * cut.saved_B[0], abs=1e-11)
        # No subset that keeps what has no price weighs less, if it pays for what it breaks.
        paid = [(pair, its) for pair, its in zip(priced, one.prices, strict=True)]
        assert min(one.prices, default=0.0) >= 0
        weights = given.seconds + price * given.size_B
        items = range(len(weights))
        subsets = [set(c) for n in range(len(items) + 1) for c in combinations(items, n)]
        relaxed = min(
            sum(weights[i] for i in s) + sum(p * ((a in s) - (b in s)) for (a, b), p in paid)
            for s in subsets
            if all(b in s for a, b in kept if a in s)
        )
        assert relaxed == pytest.approx(weight, abs=1e-11)


def test_what_is_known_is_told_once():
    given, _, _ = closure_of(3)
    fronts = Fronts()
    for price in PRICES:
        fronts.at(given, price)
    known, levels = fronts.known(given), fronts.levels(given)
    assert len(np.unique(known.reshape(len(known), -1), axis=0)) == len(known) < len(PRICES)
    saved_B = levels[:, 0, 1]
    assert list(saved_B) == sorted(saved_B) and saved_B[0] == 0.0
