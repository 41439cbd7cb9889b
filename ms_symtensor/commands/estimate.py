"""`symtensor estimate`: price a configuration in uniform layouts, or a plan: nothing is searched."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError

TEXT = "price a configuration in uniform layouts, or a plan: nothing is searched"
EXAMPLES = (
    "symtensor estimate llama2_7b --device-num 8 --fix data_parallel=2 --fix model_parallel=4",
    "symtensor estimate --plan plan/llama2_7b",
    "symtensor estimate qwen3_32b --device-num 64 --arguments pretrain_qwen3_32b.sh",
    "symtensor estimate --from requests.json --json",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_model(command, "?")
    command.add_argument("--cluster", help="a known cluster, or a file (default: atlas_800t_a2, or that of the plan)")
    command.add_argument("--device-num", type=int, help="number of NPUs")
    options.add_memory(command, "nothing")
    options.add_fix(command, "degrees, as plan takes them")
    command.add_argument("--plan", type=options.path, metavar="DIR", help="price the layouts of this plan")
    command.add_argument(
        "--from",
        dest="requests",
        type=options.path,
        metavar="FILE.json",
        help="price every configuration of a list: objects with model, device_num, fix and the options of this command",
    )
    command.add_argument(
        "--arguments",
        type=options.path,
        metavar="FILE.sh",
        help="price MODEL as the launch script of MindSpeed-LLM says, on --device-num devices",
    )
    options.add_runtime(command)
    options.add_folder(command)
    options.add_json(command)


BESIDE_A_PLAN = ("model", "cluster", "memory_limit", "memory_margin", "runtime", "hide")
"""Options that mean something beside --plan; the others say what a plan says itself."""


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.commands.shared import folder_of, show_found
    from ms_symtensor.estimates import OPTIONS, estimates, of_plan
    from ms_symtensor.report.estimate_report import estimate_json, estimate_text, estimates_text
    from ms_symtensor.report.progress import progress
    from ms_symtensor.strategy.file import graph_in, plan_in

    given = [bool(chosen.model), chosen.plan is not None, chosen.requests is not None]
    if sum(given) != 1:
        raise InputError("give one of MODEL, --plan DIR and --from FILE.json to estimate")
    if chosen.plan is not None:
        own = next((n for n in OPTIONS if n not in BESIDE_A_PLAN and getattr(chosen, n) not in (None, False, [])), "")
        if own:
            raise InputError(
                f"--{own.replace('_', '-')} is for a MODEL, and a plan has its own: leave it out, or plan with it"
            )
        folder = folder_of(chosen, chosen.plan)
        plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
        found = [
            of_plan(plan, graph, chosen.cluster, chosen.runtime, chosen.hide, chosen.memory_limit, chosen.memory_margin)
        ]
    else:
        with progress() as step:
            step("prices")
            found = estimates(chosen)
    if chosen.requests is not None:
        show_found(chosen, {"estimates": [estimate_json(*one) for one in found]}, estimates_text(found))
        return 0
    show_found(chosen, estimate_json(*found[0]), estimate_text(*found[0]))
    return 0
