"""Which numbers are tried on the way to the largest, or the smallest, that fits."""

import pytest

from ms_symtensor.search.fit import Attempt, Numbers, largest, smallest


def above(limit: int):
    return lambda number: Attempt(number, "plan" if number >= limit else None)


def below(limit: int):
    return lambda number: Attempt(number, "plan" if number <= limit else None)


def best(attempts, pick):
    return pick((one.number for one in attempts if one.fits), default=None)


@pytest.mark.parametrize("limit", (1, 7, 8, 9, 15, 16, 40, 100, 1000, 4096, 5000))
@pytest.mark.parametrize("start", (1, 16, 4096))
def test_the_largest_is_found_to_an_eighth_of_itself(limit, start):
    incumbents = list(largest(Numbers(1, 4096), start, below(limit)))
    found = best(incumbents, max)
    assert min(limit, 4096) * 7 / 8 <= found <= limit
    assert len({one.number for one in incumbents}) == len(incumbents) <= 17


def test_nothing_fits():
    assert [one.number for one in largest(Numbers(128, 4096, 128), 512, below(100))] == [512, 256, 128]
    assert [one.number for one in smallest(Numbers(1, 8, 8), above(9))] == [1, 2, 4, 8]


@pytest.mark.parametrize("limit", (1, 2, 3, 8, 9, 17, 40, 100, 1000))
def test_the_smallest_is_found_to_an_eighth_of_itself(limit):
    incumbents = list(smallest(Numbers(1, 4096, 8), above(limit)))
    found = best(incumbents, min)
    assert limit <= found <= max(limit * 9 / 8 + 1, -(-limit // 8) * 8) and (found in (1, 2, 4) or found % 8 == 0)
    assert len({one.number for one in incumbents}) == len(incumbents) <= 14


def test_numbers_between_powers_of_two_are_multiples_of_the_unit():
    incumbents = list(largest(Numbers(1, 4096, 24), 16, below(200)))
    assert (
        all(one.number % 24 == 0 or one.number & (one.number - 1) == 0 for one in incumbents)
        and best(incumbents, max) == 192
    )
