"""`symtensor compare`: a plan beside your own run of it: step, parts of it, memory."""

import argparse

from ms_symtensor.commands import options

TEXT = "a plan beside your own run of it: step, parts of it, memory"
EXAMPLES = (
    "symtensor compare plan/llama2_7b output/msrun_log",
    "symtensor compare plan/llama2_7b worker_0.log profile --rows measured.csv",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("directory", metavar="DIR", type=options.path, help="a plan's directory")
    command.add_argument(
        "runs",
        metavar="LOG|PROFILE",
        type=options.path,
        nargs="+",
        help="training logs, folders of them, and folders of MindSpore's profiler",
    )
    command.add_argument(
        "--profiled-steps", type=int, metavar="N", help="steps of a profile that was taken without profiler.step()"
    )
    command.add_argument("--rows", type=options.path, metavar="FILE.csv", help="add what was measured to this table")
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.commands.shared import folder_of, know_operators, require_positive, show_found
    from ms_symtensor.measured.comparison import compare
    from ms_symtensor.measured.reading import read_run
    from ms_symtensor.measured.rows import add_row
    from ms_symtensor.report.compare_report import comparison_json, comparison_text
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.strategy.file import check, graph_in, plan_in

    require_positive("--profiled-steps", chosen.profiled_steps)
    folder = folder_of(chosen, chosen.directory)
    plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
    if graph is not None:
        check(plan, graph)
        know_operators(plan, graph)
    found = compare(plan, graph, read_run(chosen.runs, chosen.profiled_steps), programs_of)
    text = comparison_text(found)
    if chosen.rows is not None:
        rows = add_row(chosen.rows, chosen.directory, found)
        text = f"{text}\n\nWritten to {chosen.rows}, which has {rows} row{'s' * (rows > 1)}"
    show_found(chosen, comparison_json(found), text)
    return 0
