"""`symtensor explain`: what a plan's step is made of, and the symbolic formulas behind it."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError
from ms_symtensor.streams import show

TEXT = "what a plan's step is made of: its costliest operators, and the symbolic formulas of each"
EXAMPLES = (
    "symtensor explain plan/llama2_7b",
    "symtensor explain plan/llama2_7b --operator query.matmul",
    "symtensor explain plan/llama2_7b --why-not dp=4,tp=2",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("directory", metavar="DIR", type=options.path, help="a plan's directory")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--operator", metavar="NAME", help="formulas of this one: query.matmul, MatMul, or a full name")
    which.add_argument("--all", action="store_true", help="formulas of all operators")
    command.add_argument("--latex", action="store_true", help="formulas as LaTeX: of all operators, or of --operator")
    command.add_argument(
        "--why-not",
        metavar="dp=8,tp=8",
        help="why the step is not laid out so: the best such plan beside this one (also pp, mb, sp, cp, ep; what --fix takes)",
    )
    options.add_folder(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.commands.shared import plan_and_graph
    from ms_symtensor.models import replanner
    from ms_symtensor.report.explain import explain
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.why_not import why_not

    formulas = {"--latex": chosen.latex, "--operator": chosen.operator is not None, "--all": chosen.all}
    if chosen.why_not is not None and any(formulas.values()):
        option = next(name for name, given in formulas.items() if given)
        raise InputError(
            f"--why-not compares two plans, and {option} is for the formulas of one: leave one of them out"
        )
    _, plan, graph = plan_and_graph(chosen, "the formulas stand")
    if chosen.why_not is not None:
        with progress() as step:
            step(f"best plan with {chosen.why_not}")
            text = why_not(plan, chosen.why_not, replanner(plan, graph))
        show(text)
    else:
        show(explain(plan, graph, chosen.operator, chosen.latex, chosen.all))
    return 0
