"""`symtensor verify`: have MindSpore compile a plan, and compare with the prediction."""

import argparse

from ms_symtensor.commands import options
from ms_symtensor.streams import notice

TEXT = "have MindSpore compile a plan, or the phases of serve, and compare with the prediction"
EXAMPLES = (
    "symtensor verify plan/llama2_7b",
    "symtensor verify plan/llama2_7b --blocks 2 --json",
)


def arguments(command: argparse.ArgumentParser) -> None:
    """What the command takes."""
    command.add_argument("directory", metavar="DIR", type=options.path, help="a plan's directory, or one of serve")
    command.add_argument(
        "--blocks",
        type=int,
        metavar="N",
        help="zoo: compile at most N of every run of equal blocks, and few micro-batches",
    )
    options.add_rank(command)
    options.add_folder(command)
    options.add_json(command)


def run(chosen: argparse.Namespace) -> int:
    """Run it; its exit code."""
    from ms_symtensor.bridge.judge.fewer_blocks import fewer_blocks
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.bridge.judge.verify_stages import verify_stages
    from ms_symtensor.commands.shared import folder_of, show_found
    from ms_symtensor.report.blocks_note import blocks_note, fewer_blocks_json, fewer_blocks_note
    from ms_symtensor.report.certificate import certificate_json, certify, with_certificate
    from ms_symtensor.report.plan_report import overlap_json
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.stage_report import verdicts_json, verdicts_text
    from ms_symtensor.report.verdict_report import verdict_json, verdict_text
    from ms_symtensor.serving.folder import is_served
    from ms_symtensor.strategy.file import graph_in, plan_in
    from ms_symtensor.strategy.record import VERIFIED_FILE, record, without_times

    if is_served(chosen.directory):
        return _phases(chosen)
    folder = folder_of(chosen, chosen.directory)
    planned, saved = plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
    note, blocks = blocks_note(plan, graph), {}
    if chosen.blocks is not None:
        fewer = fewer_blocks(plan, chosen.blocks, graph)
        note, blocks = fewer_blocks_note(plan, fewer), fewer_blocks_json(plan, fewer)
        plan, graph = fewer.plan, fewer.graph
    if note:
        notice(note)
    with progress() as step:
        step("compile")
        if plan.pipeline is not None:
            verdicts = verify_stages(plan, graph, chosen.rank, progress=step)
            passed, data, text = all(one.passed for one in verdicts), verdicts_json(verdicts), verdicts_text(verdicts)
        else:
            verdict = verify(plan, graph, chosen.rank or 0)
            passed, data, text = verdict.passed, verdict_json(verdict), verdict_text(verdict)
    for name, trust in overlap_json(plan).items():
        notice(f"overlap.{name}: {trust}")
    files = certify(folder, planned, saved)
    data |= blocks | certificate_json(files)
    if why := record(folder, VERIFIED_FILE, without_times(data)):
        notice(why)
    show_found(chosen, data, with_certificate(text, files))
    return 0 if passed and files.holds else 1


def _phases(chosen: argparse.Namespace) -> int:
    """Every plan of a deployment that `serve` wrote."""
    from ms_symtensor.bridge.judge.fewer_blocks import fewer_blocks
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.commands.shared import show_found
    from ms_symtensor.report.certificate import certificate_json, certify, with_certificate
    from ms_symtensor.report.progress import progress
    from ms_symtensor.report.stage_report import verdicts_json
    from ms_symtensor.report.verdict_report import verdict_json, verdict_text
    from ms_symtensor.serving.folder import plans_of
    from ms_symtensor.strategy.file import graph_in, plan_in
    from ms_symtensor.strategy.record import VERIFIED_FILE, record, without_times

    verdicts, texts, phases, holds = [], [], {}, True
    for name, folder in plans_of(chosen.directory, chosen.edited).items():
        planned, saved = plan_in(folder, chosen.trust), graph_in(folder)
        plan, graph = planned, saved
        if chosen.blocks is not None:
            fewer = fewer_blocks(plan, chosen.blocks, graph)
            plan, graph = fewer.plan, fewer.graph
        with progress() as step:
            step(f"compile {name}")
            verdict = verify(plan, graph, chosen.rank or 0)
        files = certify(folder, planned, saved)
        phases[name] = verdict_json(verdict) | certificate_json(files)
        if why := record(folder, VERIFIED_FILE, without_times(phases[name])):
            notice(why)
        verdicts.append(verdict)
        texts.append(f"{name}: {with_certificate(verdict_text(verdict), files)}")
        holds = holds and files.holds
    whole = {key: value for key, value in verdicts_json(verdicts).items() if key != "stages"}
    show_found(chosen, whole | {"phases": phases}, "\n\n".join(texts))
    return 0 if holds and all(one.passed for one in verdicts) else 1
