"""Bounds in cases."""

from types import SimpleNamespace

import pytest

from ms_symtensor.search.bounds.in_cases import CaseBounds
from ms_symtensor.search.space.shapes import Shape

SHAPE = Shape(4, 8, (2,), 1)


def test_those_cases_are_polished_that_could_show_the_most(monkeypatch: pytest.MonkeyPatch):
    """Some show 7 s and could show 7.1; others, of which one is not solved yet, show 6 and could show 9."""
    met = SimpleNamespace(duals=None, setting=SimpleNamespace(occurrences=()), enough_s={SHAPE: 10.0})
    of, polished = CaseBounds(met), []  # type: ignore[arg-type]
    rounds = [(("low",), 7.0, 7.1), (("high",), 6.0, 9.0), (("less",), 5.0, 8.0)]
    monkeypatch.setattr(of, "_by_another_mesh", lambda shape: 3.0)
    monkeypatch.setattr(of, "_in_rounds", lambda shape, bound_s: iter(rounds))
    monkeypatch.setattr(of, "_polished", lambda shape, every: polished.append(every) or iter((8.5,)))
    monkeypatch.setattr(of, "_by_division", lambda shape: 0.0)
    assert list(of.rising(SHAPE, 2.0)) == [3.0, 7.0, 7.0, 7.0, 8.5, 8.5]
    assert polished == [("high",)]
