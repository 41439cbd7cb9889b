"""The schedule that `symtensor schedule` has left in a plan's folder, replayed."""

import json
from dataclasses import dataclass

from ms_symtensor.errors import InputError
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.schedules.scheduler import Turn
from ms_symtensor.scheduling.problem import Kind, Orders, Part, Problem
from ms_symtensor.scheduling.published import BOTH, ONE
from ms_symtensor.scheduling.simulator import simulate
from ms_symtensor.scheduling.table import orders_of
from ms_symtensor.strategy.folder import SCHEDULE_FILE, SCHEDULE_TABLE_FILE, PlanFolder


@dataclass(frozen=True)
class Stored:
    """A schedule by `name` that takes `step_s` when it is replayed."""

    name: str
    problem: Problem
    orders: Orders
    step_s: float

    def turns(self, pipeline: Pipeline | None) -> tuple[tuple[Turn, ...], ...]:
        """The passes of every stage, as MindSpore knows them: whole backward passes, one part a stage.

        Errors: InputError where it has others.
        """
        if any(action.kind in (Kind.BACKWARD, Kind.WEIGHTS) for order in self.orders for action in order):
            raise InputError("it splits backward passes, and MindSpore's programs do not")
        if self.problem.placement != ONE or pipeline is None or pipeline.interleave > 1:
            raise InputError("it is not for one part a stage")
        return tuple(
            tuple(Turn(action.micro_batch, 0, action.kind is Kind.WHOLE) for action in order) for order in self.orders
        )


def stored(folder: PlanFolder) -> Stored | None:
    """That of the plan in `folder`; None where there is none, or it is of another plan.

    Errors: InputError where its table is no schedule, or keeps more than it may.
    """
    if folder.digest is None or SCHEDULE_FILE not in folder or SCHEDULE_TABLE_FILE not in folder:
        return None
    try:
        data = json.loads(folder.files[SCHEDULE_FILE])
        if data["plan"] != folder.digest:
            return None
        times = ("forward_s", "backward_s", "weights_s", "kept_B", "deferred_B")
        parts = tuple(Part(one["stage"], *(one[name] for name in times)) for one in data["parts"])
        numbers = tuple(range(len(parts)))
        half = len(parts) // 2
        routes = (numbers[:half], numbers[half:]) if data["placement"] == BOTH else (numbers,)
        limits_B, start_s, end_s = (tuple(data[name]) for name in ("limits_B", "start_s", "end_s"))
        of = Problem(data["placement"], parts, routes, data["micro_batch_num"], limits_B, start_s, end_s)
        name = data["schedule"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{SCHEDULE_FILE} is no schedule ({error!r}): schedule again") from error
    orders = orders_of(folder.files[SCHEDULE_TABLE_FILE].decode("utf-8", "replace"), SCHEDULE_TABLE_FILE)
    found = simulate(of, orders)
    if not found.fits(of):
        raise InputError(f"{SCHEDULE_TABLE_FILE} keeps more activations than a stage may: schedule again")
    return Stored(name, of, orders, found.step_s)
