"""The operators that a step spends most of its time on, for people: those of one name in a row, with the parts of their time."""

from collections import Counter
from collections.abc import Sequence

from ms_symtensor.cost.explain import OperatorExplanation
from ms_symtensor.cost.step import TIMES
from ms_symtensor.report.text import seconds, share, table
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.tensor.names import short_name

ROWS = 15
"""So many operators are shown one by one."""

HEAD = ("operator", "type", "count", *TIMES, "all", "share")


def costliest_text(operators: Sequence[OperatorExplanation], graph: Graph, rows: int = ROWS) -> str:
    """The `rows` names whose operators take longest, and all others in one row: how many operators, and the time of all."""
    times: dict[tuple[str, str], Counter[str]] = {}
    count: Counter[tuple[str, str]] = Counter()
    for one in operators:
        of_one = {part: one.total(part) for part in TIMES}
        for name in one.names:
            called = (short_name(graph.op_by_name[name]), one.type)
            times.setdefault(called, Counter()).update(of_one)
            count[called] += 1
    ordered = sorted(times, key=lambda called: -times[called].total())
    whole = sum(found.total() for found in times.values())
    cells = [(*called, str(count[called]), *_cells(times[called], whole)) for called in ordered[:rows]]
    if others := ordered[rows:]:
        together = sum((times[called] for called in others), Counter[str]())
        cells.append(("all others", "", str(sum(count[o] for o in others)), *_cells(together, whole)))
    return table(cells, HEAD, right=range(2, len(HEAD)))


def _cells(times: Counter[str], whole: float) -> tuple[str, ...]:
    parts = (seconds(times[part]) if times[part] else "" for part in TIMES)
    return (*parts, seconds(times.total()), share(times.total(), whole))
