"""`symtensor fit`: the largest batch or the longest sequence that fits, or the fewest devices."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError

TEXT = "the largest batch or the longest sequence that fits, or the fewest devices"
EXAMPLES = (
    "symtensor fit llama2_7b --device-num 8 --most global_batch_size --fix micro_batch_num=1",
    "symtensor fit llama2_70b --least device_num --global-batch-size 64 --out plan/fewest",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.add_model(command)
    question = command.add_mutually_exclusive_group(required=True)
    question.add_argument("--most", choices=("global_batch_size", "seq_length"), help="the largest that fits")
    question.add_argument("--least", choices=("device_num",), help="the fewest that it fits on")
    command.add_argument("--device-num", type=int, help="number of NPUs")
    options.add_request(command)
    command.add_argument("--up-to", type=int, metavar="N", help="the largest number that is tried (docs/howto/fit.md)")
    options.add_out(command, ": the plan at the answer, as plan does")
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.arguments import limits, memory_limit_B
    from ms_symtensor.commands.shared import cluster_of, model_of, remembered, require_cut, require_positive, show_found
    from ms_symtensor.fit import STARTS, fit, numbers_of
    from ms_symtensor.models import Model
    from ms_symtensor.report.emit import write_plan
    from ms_symtensor.report.fit_report import fit_json, fit_text
    from ms_symtensor.report.plan_report import plan_texts
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.text import numbered
    from ms_symtensor.search.constraints.request import Request
    from ms_symtensor.strategy import folder as folders

    name = chosen.most or chosen.least
    if (chosen.device_num is None) == (name != "device_num"):
        raise InputError(
            "--least device_num looks for the number of devices: leave --device-num out" if chosen.least else f"--most {name}"
            " is for a number of devices: give --device-num"
        )  # fmt: skip
    cluster = cluster_of(chosen.cluster)
    for option, number in (("--device-num", chosen.device_num), ("--up-to", chosen.up_to)):
        require_positive(option, number)
    limit_B, wanted = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin), limits(chosen.fix, chosen.max)
    start = getattr(chosen, name) or STARTS[name]

    def model_at(number: int) -> Model:
        return model_of(argparse.Namespace(**{**vars(chosen), name: number}))

    fixed = model_at(start) if name == "device_num" else None

    def request_of(model: Model, number: int) -> Request:
        devices = number if name == "device_num" else chosen.device_num
        require_cut(model, devices, wanted)
        return Request(
            cluster, devices, model.global_batch_size, model.seq_length, limit_B, model.name, model.source, wanted
        )

    with progress() as step:
        numbers = numbers_of(name, chosen.device_num, chosen.up_to, cluster)
        found = fit(name, numbers, start, lambda number: fixed or model_at(number), request_of, step)
    plan, graph = found.best
    head = f"{plan.model}: the {'largest' if chosen.most else 'smallest'} {name} that fits is {found.answer.number}"
    if found.is_bounded:
        head += f", the largest that was tried (--up-to {numbers.most})"
    text = fit_text(head, name, found.plans)
    if chosen.out is not None:
        folders.tidy(chosen.out)
        programs = programs_of(plan, graph)
        written = write_plan(plan, graph, programs, plan_texts(plan, graph, programs).whole, chosen.out)
        remembered(written.digest)
        text = f"{text}\n\nWritten to {chosen.out}: {numbered(written.names)}"
    show_found(chosen, fit_json(name, found.answer.number, found.plans, graph), text)
    return 0
