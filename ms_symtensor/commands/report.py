"""`symtensor report`: a plan as one page, and as a trace."""

import argparse

from ms_symtensor.commands import options

TEXT = "a plan as one page (report.html), and its step as a trace (timeline.json)"
EXAMPLES = ("symtensor report plan/llama2_7b", "symtensor report plan/llama2_7b --json")


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("directory", metavar="DIR", type=options.path, help="a plan's directory")
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    import json

    from ms_symtensor.commands.shared import plan_and_graph, show_found
    from ms_symtensor.cost.runtime import runtime_of
    from ms_symtensor.files.writing import encoded, write_file
    from ms_symtensor.models import by_hand_of
    from ms_symtensor.report.alternatives import as_run, priced
    from ms_symtensor.report.html.page import page
    from ms_symtensor.report.plan_report import plan_json
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.text import seconds
    from ms_symtensor.strategy.folder import HTML_FILE, TIMELINE_FILE
    from ms_symtensor.timeline.step import step_of
    from ms_symtensor.timeline.trace import trace_of

    folder, plan, graph = plan_and_graph(chosen, "the report stands")
    with progress() as say:
        say("timeline")
        step = step_of(plan, graph)
        say("alternatives")
        runtime, is_one = runtime_of(plan.runtime, plan.hide), plan.pipeline is None
        others = (
            priced(graph, as_run(graph, by_hand_of(plan, graph), runtime), plan.planned_for, runtime) if is_one else ()
        )
        say("page")
        text = page(folder, step, others, str(folder.file.parent))
    trace = trace_of(step)
    write_file(folder.path(HTML_FILE), text)
    write_file(folder.path(TIMELINE_FILE), json.dumps(trace, separators=(",", ":"), allow_nan=False) + "\n")
    places = {"report": str(folder.path(HTML_FILE)), "timeline": str(folder.path(TIMELINE_FILE))}
    data = {
        **places, "report_B": len(encoded(text)), "events": len(trace["traceEvents"]),
        "replayed_s": step.timeline.replayed_s, **plan_json(plan, graph),
    }  # fmt: skip
    shown = (
        f"{plan.model}: a step of {seconds(plan.prediction.step_time_s)}\n  {places['report']}: open it in a browser, or print it"
        f"\n  {places['timeline']}: open it in ui.perfetto.dev, chrome://tracing or MindStudio Insight"
    )
    show_found(chosen, data, shown)
    return 0
