"""The table of actions as a file: `stage,order,part,micro_batch,kind,begin_s,end_s`, stage by stage in order."""

import csv
import io

from ms_symtensor.errors import InputError
from ms_symtensor.files.writing import csv_of
from ms_symtensor.scheduling.problem import Action, Kind, Orders, Problem
from ms_symtensor.scheduling.simulator import Simulated

HEAD = ("stage", "order", "part", "micro_batch", "kind", "begin_s", "end_s")


def rows(problem: Problem, orders: Orders, simulated: Simulated) -> list[tuple[int, int, int, int, str, float, float]]:
    """The lines of the table."""
    return [
        (
            action.stage, order, action.part, action.micro_batch, action.kind.value, begin_s,
            begin_s + problem.parts[action.part].time_s(action.kind),
        )
        for actions, begins_s in zip(orders, simulated.begins_s, strict=True)
        for order, (action, begin_s) in enumerate(zip(actions, begins_s, strict=True))
    ]  # fmt: skip


def table_csv(problem: Problem, orders: Orders, simulated: Simulated) -> str:
    """The table as text."""
    return csv_of(HEAD, rows(problem, orders, simulated))


def orders_of(text: str, name: str) -> Orders:
    """The actions of every stage in the table `text`, which file `name` holds.

    Errors: InputError where it is no such table.
    """
    found: dict[int, list[tuple[int, Action]]] = {}
    lines = csv.DictReader(io.StringIO(text))
    if tuple(lines.fieldnames or ()) != HEAD:
        raise InputError(f"{name} does not begin with {','.join(HEAD)}: schedule again")
    for number, line in enumerate(lines, 2):
        try:
            stage = int(line["stage"])
            action = Action(stage, int(line["part"]), int(line["micro_batch"]), Kind(line["kind"]))
            found.setdefault(stage, []).append((int(line["order"]), action))
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}, line {number}, is no action ({error}): schedule again") from error
    if sorted(found) != list(range(len(found))):
        raise InputError(f"{name} does not have stages 0 to {len(found) - 1}: schedule again")
    return [[action for _, action in sorted(found[stage])] for stage in range(len(found))]
