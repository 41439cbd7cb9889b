"""How samples lie on a mesh."""

import pytest

from ms_symtensor.search.space.shapes import Round, Shape


@pytest.mark.parametrize(
    "mesh, batch, kind",
    (
        ((8, 4), 32, Round.WHOLE),
        ((8, 4), 8, Round.ONE),
        ((8, 4), 16, Round.SPLIT),
        ((4, 6), 12, Round.SPLIT),
        ((8, 4), 24, Round.PART),
        ((8, 4), 12, Round.PART),
        ((8, 4), 4, Round.PART),
        ((8, 4), 1, Round.FEW),
        ((8,), 12, Round.PART),
        ((8,), 16, Round.WHOLE),
    ),
)
def test_how_far_samples_go_round(mesh: tuple[int, ...], batch: int, kind: Round) -> None:
    assert Shape(1, 1, mesh, batch).round is kind
