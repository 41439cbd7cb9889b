"""`symtensor prove`: run every rank's program here, and compare loss and gradients with one process."""

import argparse
from typing import TYPE_CHECKING

from ms_symtensor.commands import options
from ms_symtensor.errors import InputError
from ms_symtensor.streams import notice

if TYPE_CHECKING:
    from ms_symtensor.bridge.proof.prove import Request
    from ms_symtensor.report.proof_report import Replayed
    from ms_symtensor.strategy.folder import PlanFolder
    from ms_symtensor.strategy.plan import Plan

TEXT = "run every rank's program here, and compare loss and gradients with one process"
EXAMPLES = (
    "symtensor prove plan/llama2_7b --steps 2",
    "symtensor prove net.py:factory --device-num 4",
    "symtensor prove plan/pynative --target mindformers-pynative",
)

TARGETS = ("mindspore", "mindformers-pynative")


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument(
        "subject",
        metavar="DIR|file.py:factory",
        type=options.place,
        help="a plan's directory, one of serve, or a function that returns (cell, inputs); of mindformers-pynative also its YAML",
    )
    options.add_target(command, TARGETS, "a PyNative file runs at reduced dims")
    command.add_argument("--device-num", type=int, help="number of NPUs; a plan knows its own")
    command.add_argument("--ranks", type=int, metavar="R", help="run the first R devices of a plan only")
    command.add_argument("--steps", type=int, default=0, metavar="K", help="prove K optimizer steps too")
    command.add_argument(
        "--time-limit", type=float, default=600.0, metavar="S", help="seconds for the processes (default: %(default)g)"
    )
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.bridge.apply.load_network import load_factory
    from ms_symtensor.bridge.proof.launch import end_on_signals
    from ms_symtensor.bridge.proof.prove import Request, prove_by_hand, prove_plan
    from ms_symtensor.commands.shared import folder_of, require_positive, show_found
    from ms_symtensor.models import is_factory
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.proof_report import proof_json, proof_text
    from ms_symtensor.serving.folder import is_served
    from ms_symtensor.strategy.file import graph_in, plan_in
    from ms_symtensor.strategy.record import PROVED_FILE, record, without_times

    end_on_signals()
    require_positive("--time-limit", chosen.time_limit)
    if chosen.steps < 0:
        raise InputError(f"--steps is {chosen.steps}: give a number of optimizer steps, or leave it out")
    require_positive("--ranks", chosen.ranks)
    request, schedule = Request(chosen.steps, chosen.time_limit, chosen.ranks), None
    require_positive("--device-num", chosen.device_num)
    if chosen.target not in TARGETS:
        raise InputError(f"--target {chosen.target} has no proof of its own: give one of {', '.join(TARGETS)}")
    if chosen.target == TARGETS[1]:
        return _pynative(chosen)
    if is_served(chosen.subject):
        return _phases(chosen, request)
    if is_factory(chosen.subject):
        if chosen.device_num is None:
            raise InputError(
                f"{chosen.subject} is no plan, which would say for how many devices it is: give --device-num"
            )
        if chosen.ranks not in (None, chosen.device_num):
            raise InputError(
                "--ranks shrinks plans; what shard() says by hand is for --device-num devices: leave it out"
            )
        cell, inputs = load_factory(chosen.subject)
        with progress() as step:
            step("processes")
            found = prove_by_hand(cell, inputs, chosen.device_num, request)
    else:
        folder = folder_of(chosen, chosen.subject)
        plan = plan_in(folder, chosen.trust)
        if chosen.device_num not in (None, plan.device_num):
            raise InputError(
                f"--device-num {chosen.device_num} is not that of the plan, {plan.device_num}: leave it out"
            )
        request, schedule = _scheduled(folder, plan, request)
        with progress() as step:
            step("processes")
            found = prove_plan(plan, graph_in(folder), request)
        if why := record(folder, PROVED_FILE, without_times(proof_json(found, schedule))):
            notice(why)
    show_found(chosen, proof_json(found, schedule), proof_text(found, schedule))
    return 0 if found.equal else 1


def _phases(chosen: argparse.Namespace, request: "Request") -> int:
    """Prefill and decode of a deployment that `serve` wrote."""
    from ms_symtensor.bridge.proof.phases import prove_phases
    from ms_symtensor.commands.shared import show_found
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.proof_report import phase_proof_json, phase_proof_text
    from ms_symtensor.serving.folder import plans_of
    from ms_symtensor.strategy.file import plan_in
    from ms_symtensor.strategy.record import PROVED_FILE, record, without_times

    if chosen.device_num is not None:
        raise InputError("--device-num is for a factory; a deployment knows its own: leave it out, or give --ranks")
    folders = plans_of(chosen.subject, chosen.edited)
    with progress() as step:
        step("processes")
        found = prove_phases({name: plan_in(folder, chosen.trust) for name, folder in folders.items()}, request)
    for folder in folders.values():
        if why := record(folder, PROVED_FILE, without_times(phase_proof_json(found))):
            notice(why)
    show_found(chosen, phase_proof_json(found), phase_proof_text(found))
    return 0 if found.equal else 1


def _scheduled(folder: "PlanFolder", plan: "Plan", request: "Request") -> "tuple[Request, Replayed | None]":
    """The request in the order of the schedule in the folder, and what became of that."""
    from dataclasses import replace

    from ms_symtensor.report.proof_report import Replayed
    from ms_symtensor.scheduling.stored import stored

    schedule = stored(folder)
    if schedule is None:
        return request, None
    try:
        order = schedule.turns(plan.pipeline)
    except InputError as error:
        return request, Replayed(schedule.name, schedule.problem.placement, schedule.step_s, str(error))
    return replace(request, order=order), Replayed(schedule.name, schedule.problem.placement, schedule.step_s)


def _pynative(chosen: argparse.Namespace) -> int:
    """A file, or the folder of a plan with one, by MindFormers' own code at reduced dims."""
    from pathlib import Path

    from ms_symtensor.bridge.pynative.prove import prove
    from ms_symtensor.commands.shared import show_found
    from ms_symtensor.report.pynative_proof_report import pynative_proof_json, pynative_proof_text
    from ms_symtensor.targets.mindformers_pynative.planning import natural_device_num, planned_file, read_config

    file, devices = planned_file(Path(chosen.subject))
    if chosen.steps or chosen.ranks is not None:
        raise InputError("--steps and --ranks are for plans of MindSpore's: leave them out for mindformers-pynative")
    config = read_config(str(file))
    found = prove(config, chosen.device_num or devices or natural_device_num(config), chosen.time_limit)
    show_found(chosen, pynative_proof_json(found), pynative_proof_text(found))
    return 0 if found.equal else 1
