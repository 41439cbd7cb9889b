"""What the last lines of a plan's page say."""

import pytest

from ms_symtensor.report.plan_report import search_text
from ms_symtensor.strategy.plan import SearchReport


@pytest.mark.parametrize(
    "gap, says",
    (
        (0.0, "optimal in this model"),
        (2.2e-16, "optimal in this model"),
        (4.27e-3, "at most 0.43 % above the optimum of this model"),
        (1.2345, "at most 123 % above the optimum of this model"),
    ),
)
def test_a_gap_of_rounding_is_none(gap: float, says: str) -> None:
    assert search_text(SearchReport(36, 0.1, gap, "by hand")) == f"Search: 36 candidates; {says} (by hand)"
