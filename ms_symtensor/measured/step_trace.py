"""`step_trace_time.csv`: what the device did in every step, in microseconds. Columns: mindspore.profiler 2.10.0,
analysis/viewer/ascend_step_trace_time_viewer.py.

A step is its computation, the communication that is not beside it, and the rest, in which the device is free. Bubble is the time
of Send and Receive, most of which is waiting for another pipeline stage.
"""

from pathlib import Path

from ms_symtensor.errors import InputError
from ms_symtensor.measured.columns import columns, number
from ms_symtensor.measured.run import StepParts

FILE = "step_trace_time.csv"
COLUMNS = ("Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Free", "Bubble")
WHOLE = "0"
"""The only step of a profile that was not told of steps."""


def read_step_trace(path: Path, profiled_steps: int | None = None) -> tuple[str | None, int, StepParts]:
    """The step of median length in `path`: its name, how many steps there are, and its parts.

    A profile that was taken without `profiler.step()` has all steps in one row: then the name is None, the number that of
    `profiled_steps`, and the parts are those of an average step. Errors: InputError if the file is not as the profiler writes it,
    or does not say how many steps it holds.
    """
    steps = [_step(path, cells) for cells in columns(path, COLUMNS)]
    if not steps:
        raise InputError(f"{path} has no step: profile some steps of the run")
    if len(steps) == 1 and steps[0][0] in ("", WHOLE):
        if profiled_steps is None:
            raise InputError(
                f"{path} does not tell its steps apart, as it was profiled without profiler.step(): give --profiled-steps"
            )
        return None, profiled_steps, _divided(steps[0][1], profiled_steps)
    if profiled_steps is not None:
        raise InputError(f"{path} tells its {len(steps)} steps apart: leave --profiled-steps out")
    ordered = sorted(steps, key=lambda step: step[1].step_time_s)
    name, parts = ordered[(len(ordered) - 1) // 2]
    return name, len(steps), parts


def _step(path: Path, cells: tuple[str, ...]) -> tuple[str, StepParts]:
    name, *texts = cells
    compute, exposed, hidden, free, sent = (
        number(path, column, text) / 1e6 for column, text in zip(COLUMNS[1:], texts, strict=True)
    )
    bubble = min(sent, exposed)  # what is sent beside computation is no bubble
    parts = StepParts(compute, exposed - bubble, bubble, free, hidden)
    if not parts.step_time_s > 0:
        raise InputError(f"{path}: step {name or WHOLE} takes no time: profile steps that run on the device")
    return name, parts


def _divided(parts: StepParts, steps: int) -> StepParts:
    names = ("compute_s", "communication_s", "bubble_s", "idle_s", "hidden_s")
    return StepParts(*(getattr(parts, name) / steps for name in names))
