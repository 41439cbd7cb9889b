"""`symtensor validate`: compare predicted step times and memory with a table of measured ones."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError

TEXT = "compare predicted step times and memory with a table of measured ones"
EXAMPLES = (
    "symtensor validate measured.csv --cluster a100_80g --calibrate 8 --seed 0",
    "symtensor validate kernels.csv",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_table(command, names_chips=True)
    command.add_argument(
        "--calibrate", type=int, metavar="N", help="for each group first fit to N measured steps of others"
    )
    command.add_argument("--seed", type=int, default=0, help="of the choice of these steps (default: %(default)s)")
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from functools import partial

    from ms_symtensor.commands.shared import cluster_of, require_positive, show_found
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.validation_report import timing_json, timing_text, validation_json, validation_text
    from ms_symtensor.validation.calibrate_timings import leave_one_model_out
    from ms_symtensor.validation.reading import TIMING_FORMS
    from ms_symtensor.validation.table import read_table
    from ms_symtensor.validation.timings import form_of, validate_timings
    from ms_symtensor.validation.validate import validate

    require_positive("--calibrate", chosen.calibrate)
    if chosen.seed < 0:
        raise InputError(f"--seed is {chosen.seed}: give 0 or more")
    cluster = None if chosen.cluster is None else cluster_of(chosen.cluster)
    timed = read_table(chosen.table)
    form = form_of(timed, TIMING_FORMS)
    if form is not None:
        if chosen.calibrate is not None and not form.has_models:
            raise InputError(
                f"--calibrate fits measured steps, and {chosen.table.name} has single kernels: leave it out"
            )
        others = partial(leave_one_model_out, steps=chosen.calibrate, seed=chosen.seed)
        with progress() as step:
            step("timings")
            timings = validate_timings(timed, form, cluster, None if chosen.calibrate is None else others)
        show_found(chosen, timing_json(timings), timing_text(timings))
        return 0
    if cluster is None:
        raise InputError(f"{chosen.table.name} has steps: give --cluster, where they were measured")
    with progress() as step:
        step("prices of the rows")
        found = validate(chosen.table, cluster, calibrate=chosen.calibrate, seed=chosen.seed)
    show_found(chosen, validation_json(found), validation_text(found))
    return 0
