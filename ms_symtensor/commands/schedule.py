"""`symtensor schedule`: in which order a plan's stages take their passes, forward, backward and of weights."""

import argparse

from ms_symtensor.commands import options

TEXT = "the order of passes for a plan's own stages, backward passes split, beside published schedules"
EXAMPLES = (
    "symtensor schedule plan/llama2_7b",
    "symtensor schedule plan/llama2_7b --activation-memory 1.5x --json",
    "symtensor schedule plan/llama2_7b --whole-backward",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("directory", metavar="DIR", type=options.path, help="a plan's directory")
    command.add_argument(
        "--activation-memory",
        metavar="FACTORx",
        default="1x",
        help="how much of activations a stage may keep, beside the fullest stage of the plan (default: %(default)s)",
    )
    command.add_argument(
        "--whole-backward", action="store_true", help="gradients of activations and of weights in one pass"
    )
    command.add_argument(
        "--equal-passes", action="store_true", help="as if F, B and W took the same time on all stages"
    )
    options.add_out(command, " (default: the plan's folder)")
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    import json
    from dataclasses import replace

    from ms_symtensor.commands.shared import plan_and_graph, show_found
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.schedule_report import actions_json, schedule_json, schedule_text
    from ms_symtensor.scheduling.of_plan import factor_of, network_of
    from ms_symtensor.scheduling.simulator import simulate
    from ms_symtensor.scheduling.solve import solve
    from ms_symtensor.scheduling.table import orders_of, table_csv
    from ms_symtensor.strategy.folder import SCHEDULE_FILE, SCHEDULE_TABLE_FILE
    from ms_symtensor.timeline.step import step_of

    factor = factor_of(chosen.activation_memory)
    folder, plan, graph = plan_and_graph(chosen, "its schedule stands")
    with progress() as say:
        say("stages")
        network = replace(network_of(step_of(plan, graph), factor), splits=not chosen.whole_backward)
        say("schedules")
        found = solve(network.equal(factor) if chosen.equal_passes else network, plan.pipeline_scheduler)
    out = chosen.out or folder.file.parent
    best = found.best
    table = table_csv(best.problem, best.orders, best.simulated)
    replayed = simulate(best.problem, orders_of(table, SCHEDULE_TABLE_FILE))
    data = {
        "plan": folder.digest, "activation_memory": factor, "equal_passes": chosen.equal_passes, **schedule_json(plan, found),
        "replayed": {"step_time_s": replayed.step_s, "fits": replayed.fits(best.problem), "activations_B": list(replayed.peak_B)},
    }  # fmt: skip
    write_file(out / SCHEDULE_TABLE_FILE, table)
    whole = json.dumps({**data, **actions_json(found)}, allow_nan=False, separators=(",", ":"))
    write_file(out / SCHEDULE_FILE, whole + "\n")
    files = {"table": str(out / SCHEDULE_TABLE_FILE), "schedule": str(out / SCHEDULE_FILE)}
    text = f"{schedule_text(plan, found)}\n\nWritten to {out}: {SCHEDULE_TABLE_FILE}, {SCHEDULE_FILE}"
    show_found(chosen, {**data, "files": files}, text)
    return 0
