"""The divisors of a number."""


def divisors(number: int) -> tuple[int, ...]:
    """The divisors of `number`, 1 or more, ascending."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(dict.fromkeys((*small, *(number // n for n in reversed(small)))))
