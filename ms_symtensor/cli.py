"""The command `symtensor`: plan, fit, verify, prove, audit, explain, capture, validate, calibrate, compare.

A mistake of the user is one line on the standard error stream and exit code 2; a check that fails is exit code 1.
"""

import argparse
import json
import logging
import math
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ms_symtensor.arguments import limits, memory_limit_B
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cluster.ranges import outside_ranges
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.command_line import parse
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.models import Model, is_factory, resolve
from ms_symtensor.report.progress import progress
from ms_symtensor.search.asked.limits import Limits
from ms_symtensor.strategy import folder as folders
from ms_symtensor.strategy.file import graph_in, plan_in
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.trust import remember
from ms_symtensor.streams import logged, notice, one_line, show, shown_alone
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.version import VERSION

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 a check failed, 2 a mistake in the request."""
    try:
        chosen = parse(arguments)
    except InputError as error:
        notice(f"error: {one_line(str(error))}")
        return 2
    return run(chosen)


def run(chosen: argparse.Namespace) -> int:
    """Run the command that was asked for; its exit code. With --json, standard output holds what the command shows alone."""
    logged(chosen.verbose)
    _log.info("symtensor %s: %s", VERSION, chosen.command)
    try:
        with shown_alone() if getattr(chosen, "json", False) else nullcontext():
            return _COMMANDS[chosen.command](chosen)
    except SymTensorError as error:
        _log.debug("where it happened", exc_info=True)
        notice(f"error: {one_line(str(error))}")
        return 2
    except BrokenPipeError:  # who read the output (head, less) has seen enough
        return 141


def _plan(chosen: argparse.Namespace) -> int:
    from ms_symtensor.cost.runtime import DEFAULT, runtime_of
    from ms_symtensor.models import planned, with_loss
    from ms_symtensor.report.alternatives import priced
    from ms_symtensor.report.considered import considered_text
    from ms_symtensor.report.emit import write_plan
    from ms_symtensor.report.pareto import pareto_json, pareto_text
    from ms_symtensor.report.plan_report import plan_json, plan_text
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.report.text import numbered, seconds
    from ms_symtensor.search.asked.floor import floor_of
    from ms_symtensor.search.asked.request import Request
    from ms_symtensor.search.nearest import naming_what_fits
    from ms_symtensor.search.pareto import front
    from ms_symtensor.search.possible import require_numbers
    from ms_symtensor.strategy.loss import loss_note
    from ms_symtensor.strategy.plan import MicroBatchLoss
    from ms_symtensor.uniform.search import uniform_best

    cluster = _warned(load_cluster(chosen.cluster))
    _require_positive("--device-num", chosen.device_num)
    limit_B = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin)
    if chosen.top is not None:
        _require_positive("--top", chosen.top)
    if chosen.replace_shard and not is_factory(chosen.model):
        raise InputError(f"--replace-shard is for file.py:factory, not for {chosen.model}: leave it out")
    wanted = limits(chosen.fix, chosen.max)
    require_numbers(cluster, chosen.device_num, wanted, chosen.global_batch_size)
    folders.tidy(chosen.out)
    with progress() as step:
        step("graph")
        model = _model(chosen)
        _require_cut(model, chosen.device_num, wanted)
        request = Request(
            cluster, chosen.device_num, model.global_batch_size, model.seq_length,
            limit_B, model.name, model.source, wanted, runtime=runtime_of(chosen.runtime or DEFAULT, chosen.hide),
        )  # fmt: skip
        if chosen.layouts == "uniform":
            found, graph = uniform_best(model.config, request, step)
            found = with_loss(found, graph, model.graph)
        else:
            found, graph = naming_what_fits(
                request, lambda wanted: planned(model, wanted, step), model.graph_at is not None, floor_of(model.graph)
            )
        if chosen.exact_loss and found.loss is MicroBatchLoss.MEAN_OF_MEANS:
            raise InputError(
                f"{model.name} in {found.micro_batch_num} micro-batches: {loss_note(found.loss)}; plan one batch (--fix"
                " micro_batch_num=1), or divide one sum by one count of the inputs"
            )
        step("report")
        others = priced(graph, model.by_hand(found.stage.settings), cluster) if found.pipeline is None else ()
        programs = programs_of(found, graph)
        text = plan_text(found, graph, programs, others)
        data = plan_json(found, graph)
        if chosen.top:
            text = f"{text}\n\n{considered_text(found, chosen.top)}"
        if chosen.pareto:
            plans = front(found, lambda limit_B: planned(model, replace(request, limit_B=limit_B), step)[0])
            text, data["pareto"] = f"{text}\n\n{pareto_text(plans)}", pareto_json(plans)
        step("write")
        written = write_plan(found, graph, programs, text, chosen.out)
    _remember(written.digest)
    took = f"Searched in {seconds(found.search.search_time_s)}"  # not in report.txt: the same plan, the same bytes
    _show(chosen, data, f"{text}\n\n{took}\nWritten to {chosen.out}: {numbered(written.names)}")
    return 0


def _fit(chosen: argparse.Namespace) -> int:
    from ms_symtensor.fit import STARTS, fit, numbers_of
    from ms_symtensor.report.emit import write_plan
    from ms_symtensor.report.fit_report import fit_json, fit_text
    from ms_symtensor.report.plan_report import plan_text
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.report.text import numbered
    from ms_symtensor.search.asked.request import Request

    name = chosen.most or chosen.least
    if (chosen.device_num is None) == (name != "device_num"):
        raise InputError(
            "--least device_num looks for the number of devices: leave --device-num out" if chosen.least else f"--most {name}"
            " is for a number of devices: give --device-num"
        )  # fmt: skip
    cluster = _warned(load_cluster(chosen.cluster))
    for option, number in (("--device-num", chosen.device_num), ("--up-to", chosen.up_to)):
        if number is not None:
            _require_positive(option, number)
    limit_B, wanted = memory_limit_B(cluster, chosen.memory_limit, chosen.memory_margin), limits(chosen.fix, chosen.max)
    start = getattr(chosen, name) or STARTS[name]

    def model_at(number: int) -> Model:
        return _model(argparse.Namespace(**{**vars(chosen), name: number}))

    fixed = model_at(start) if name == "device_num" else None

    def request_of(model: Model, number: int) -> Request:
        devices = number if name == "device_num" else chosen.device_num
        _require_cut(model, devices, wanted)
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
        written = write_plan(plan, graph, programs, plan_text(plan, graph, programs), chosen.out)
        _remember(written.digest)
        text = f"{text}\n\nWritten to {chosen.out}: {numbered(written.names)}"
    _show(chosen, fit_json(name, found.answer.number, found.plans, graph), text)
    return 0


def _estimate(chosen: argparse.Namespace) -> int:
    from ms_symtensor.estimates import estimates, of_plan
    from ms_symtensor.report.estimate_report import estimate_json, estimate_text, estimates_text

    given = [bool(chosen.model), chosen.plan is not None, chosen.requests is not None]
    if sum(given) != 1:
        raise InputError("give one of MODEL, --plan DIR and --from FILE.json to estimate")
    if chosen.plan is not None:
        folder = _folder(chosen, chosen.plan)
        plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
        found = [of_plan(plan, graph, chosen.cluster, chosen.runtime, chosen.hide)]
    else:
        found = estimates(chosen)
    if chosen.requests is not None:
        _show(chosen, {"estimates": [estimate_json(*one) for one in found]}, estimates_text(found))
        return 0
    _show(chosen, estimate_json(*found[0]), estimate_text(*found[0]))
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    from ms_symtensor.bridge.judge.fewer_blocks import fewer_blocks
    from ms_symtensor.bridge.judge.verify import verify
    from ms_symtensor.bridge.judge.verify_stages import verify_stages
    from ms_symtensor.report.blocks_note import blocks_note, fewer_blocks_json, fewer_blocks_note
    from ms_symtensor.report.certificate import certificate_json, certify, with_certificate
    from ms_symtensor.report.stage_report import verdicts_json, verdicts_text
    from ms_symtensor.report.verdict_report import verdict_json, verdict_text

    folder = _folder(chosen, chosen.directory)
    planned, saved = plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
    note, blocks = blocks_note(plan, graph), {}
    if chosen.blocks is not None:
        fewer = fewer_blocks(plan, chosen.blocks, graph)
        note, blocks = fewer_blocks_note(plan, fewer), fewer_blocks_json(plan, fewer)
        plan, graph = fewer.plan, fewer.graph
    if note:
        notice(note)
    if plan.pipeline is not None:
        verdicts = verify_stages(plan, graph, chosen.rank)
        passed, data, text = all(one.passed for one in verdicts), verdicts_json(verdicts), verdicts_text(verdicts)
    else:
        verdict = verify(plan, graph, chosen.rank or 0)
        passed, data, text = verdict.passed, verdict_json(verdict), verdict_text(verdict)
    files = certify(folder, planned, saved)
    _show(chosen, data | blocks | certificate_json(files), with_certificate(text, files))
    return 0 if passed and files.holds else 1


def _prove(chosen: argparse.Namespace) -> int:
    from ms_symtensor.bridge.apply.load_network import load_factory
    from ms_symtensor.bridge.proof.launch import end_on_signals
    from ms_symtensor.bridge.proof.prove import Request, prove_by_hand, prove_plan
    from ms_symtensor.report.proof_report import proof_json, proof_text

    end_on_signals()
    _require_positive("--time-limit", chosen.time_limit)
    if chosen.steps < 0:
        raise InputError(f"--steps is {chosen.steps}: give a number of optimizer steps, or leave it out")
    if chosen.ranks is not None:
        _require_positive("--ranks", chosen.ranks)
    request = Request(chosen.steps, chosen.time_limit, chosen.ranks)
    if chosen.device_num is not None:
        _require_positive("--device-num", chosen.device_num)
    if is_factory(chosen.target):
        if chosen.device_num is None:
            raise InputError(
                f"{chosen.target} is no plan, which would say for how many devices it is: give --device-num"
            )
        if chosen.ranks not in (None, chosen.device_num):
            raise InputError(
                "--ranks shrinks plans; what shard() says by hand is for --device-num devices: leave it out"
            )
        cell, inputs = load_factory(chosen.target)
        found = prove_by_hand(cell, inputs, chosen.device_num, request)
    else:
        folder = _folder(chosen, chosen.target)
        plan = plan_in(folder, chosen.trust)
        if chosen.device_num not in (None, plan.device_num):
            raise InputError(
                f"--device-num {chosen.device_num} is not that of the plan, {plan.device_num}: leave it out"
            )
        found = prove_plan(plan, graph_in(folder), request)
    _show(chosen, proof_json(found), proof_text(found))
    return 0 if found.equal else 1


def _audit(chosen: argparse.Namespace) -> int:
    from ms_symtensor.bridge.apply.load_network import load_factory
    from ms_symtensor.bridge.judge.audit import audit
    from ms_symtensor.report.verdict_report import audit_json, audit_text
    from ms_symtensor.search.possible import require_devices

    cluster = _warned(load_cluster(chosen.cluster))
    _require_positive("--device-num", chosen.device_num)
    require_devices(cluster, chosen.device_num)
    cell, inputs = load_factory(chosen.factory)
    found = audit(cell, *inputs, device_num=chosen.device_num, cluster=chosen.cluster, rank=chosen.rank or 0)
    _show(chosen, audit_json(found), audit_text(found))
    return 0 if found.verdict.passed else 1


def _explain(chosen: argparse.Namespace) -> int:
    from ms_symtensor.models import replanner
    from ms_symtensor.report.explain import explain
    from ms_symtensor.report.why_not import why_not
    from ms_symtensor.strategy.file import check

    if chosen.why_not is not None and (chosen.latex or chosen.operator is not None):
        option = "--latex" if chosen.latex else "--operator"
        raise InputError(
            f"--why-not compares two plans, and {option} is for the formulas of one: leave one of them out"
        )
    folder = _folder(chosen, chosen.directory)
    plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
    if graph is None:
        raise InputError(f"{chosen.directory} holds no graph.json, on which the formulas stand: plan again")
    check(plan, graph)
    _know_operators(plan, graph)
    if chosen.why_not is not None:
        with progress() as step:
            step(f"best plan with {chosen.why_not}")
            text = why_not(plan, chosen.why_not, replanner(plan, graph))
        show(text)
    else:
        show(explain(plan, graph, chosen.operator, chosen.latex))
    return 0


def _capture(chosen: argparse.Namespace) -> int:
    from ms_symtensor.tensor.graph_file import save

    model = _model(chosen)
    save(model.graph, chosen.out)
    show(f"{model.name}: {len(model.graph.ops)} operators, {len(model.graph.parameters)} parameters, in {chosen.out}")
    return 0


def _validate(chosen: argparse.Namespace) -> int:
    from ms_symtensor.report.timing_report import timing_json, timing_text
    from ms_symtensor.report.validation_report import validation_json, validation_text
    from ms_symtensor.validation.reading import TIMING_FORMS
    from ms_symtensor.validation.table import read_table
    from ms_symtensor.validation.timings import form_of, validate_timings
    from ms_symtensor.validation.validate import validate

    if chosen.calibrate is not None:
        _require_positive("--calibrate", chosen.calibrate)
    if chosen.seed < 0:
        raise InputError(f"--seed is {chosen.seed}: give 0 or more")
    cluster, timed = _warned(load_cluster(chosen.cluster)), read_table(chosen.table)
    form = form_of(timed, TIMING_FORMS)
    if form is not None:
        if chosen.calibrate is not None:
            raise InputError(
                f"--calibrate fits measured steps, and {chosen.table.name} has single kernels: leave it out"
            )
        timings = validate_timings(timed, form, cluster)
        _show(chosen, timing_json(timings), timing_text(timings))
        return 0
    found = validate(chosen.table, cluster, calibrate=chosen.calibrate, seed=chosen.seed)
    _show(chosen, validation_json(found), validation_text(found))
    return 0


def _calibrate(chosen: argparse.Namespace) -> int:
    from ms_symtensor.cluster.load import SUFFIXES
    from ms_symtensor.files.writing import write_file
    from ms_symtensor.report.validation_report import calibration_json, calibration_text
    from ms_symtensor.validation.calibrate import fit
    from ms_symtensor.validation.cluster_file import calibrated_yaml
    from ms_symtensor.validation.evaluate import of_cluster, priceable
    from ms_symtensor.validation.reading import read

    if chosen.out is not None and chosen.out.suffix not in SUFFIXES:
        raise InputError(
            f"--out is {chosen.out}: give a file {' or '.join(f'*{s}' for s in SUFFIXES)}, as --cluster takes it"
        )
    cluster = _warned(load_cluster(chosen.cluster))
    found = fit(priceable(of_cluster(read(chosen.table), cluster), cluster).cases, cluster)
    out = chosen.out or Path(f"{cluster.name}_calibrated.yaml")
    write_file(out, calibrated_yaml(chosen.cluster, found, chosen.table.name))
    _show(chosen, calibration_json(found, cluster.name, str(out)), calibration_text(found, cluster.name, str(out)))
    return 0


def _compare(chosen: argparse.Namespace) -> int:
    from ms_symtensor.measured.comparison import compare
    from ms_symtensor.measured.reading import read_run
    from ms_symtensor.measured.rows import add_row
    from ms_symtensor.report.compare_report import comparison_json, comparison_text
    from ms_symtensor.report.programs import programs_of
    from ms_symtensor.strategy.file import check

    if chosen.profiled_steps is not None:
        _require_positive("--profiled-steps", chosen.profiled_steps)
    folder = _folder(chosen, chosen.directory)
    plan, graph = plan_in(folder, chosen.trust), graph_in(folder)
    if graph is not None:
        check(plan, graph)
        _know_operators(plan, graph)
    found = compare(plan, graph, read_run(chosen.runs, chosen.profiled_steps), programs_of)
    text = comparison_text(found)
    if chosen.rows is not None:
        rows = add_row(chosen.rows, chosen.directory, found)
        text = f"{text}\n\nWritten to {chosen.rows}, which has {rows} row{'s' * (rows > 1)}"
    _show(chosen, comparison_json(found), text)
    return 0


def _know_operators(plan: Plan, graph: Graph) -> None:
    """Run the file of a plan's network where that may register operators which are not known."""
    from ms_symtensor.ops.registry import is_known

    if "factory" in plan.source and not all(op.body or is_known(op.type) for op in graph.ops):
        from ms_symtensor.bridge.apply.load_network import require_trusted, run_file

        require_trusted(plan)
        run_file(plan.source["factory"])


def _model(chosen: argparse.Namespace) -> Model:
    options = {
        "num_layers": chosen.num_layers,
        "attention": chosen.attention,
        "compute_dtype": chosen.dtype,
        "experts": chosen.experts,
        "load_imbalance": chosen.load_imbalance,
    }
    return resolve(
        chosen.model,
        global_batch_size=chosen.global_batch_size,
        seq_length=chosen.seq_length,
        options={name: value for name, value in options.items() if value is not None},
        replace_shard=chosen.replace_shard,
    )


def _folder(chosen: argparse.Namespace, path: str | os.PathLike[str]) -> folders.PlanFolder:
    """The plan's folder at `path`. With --edited a line says what differs from what was written."""
    folder = folders.read(path, chosen.edited)
    if folder.differences:
        notice(f"as it is, --edited: {folders.told(folder.differences)}")
    return folder


def _remember(digest: str) -> None:
    """Note that this user made the plan. A state folder that cannot be written is no error: then its factory needs --trust."""
    try:
        remember(digest)
    except InputError as error:
        notice(f"not noted as your own plan, so that its factory needs --trust: {error}")


def _warned(cluster: Cluster) -> Cluster:
    """`cluster`, whose warnings are printed beside the output."""
    for warning in (cluster.warning, outside_ranges(cluster)):
        if warning:
            notice(f"warning: cluster {cluster.name}: {warning}")
    return cluster


def _show(chosen: argparse.Namespace, data: dict[str, Any], text: str) -> None:
    show(json.dumps(data, indent=1, allow_nan=False) if chosen.json else text)


def _require_positive(option: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{option} is {value:g}: give a number above 0")


def _require_cut(model: Model, device_num: int, wanted: Limits) -> None:
    """InputError for a batch of several samples of which no number of devices can take equal parts, where nothing that is pinned
    says how it is laid out all the same.
    """
    batch = model.global_batch_size
    is_laid_out = wanted.operators or any(wanted.least.get(name, 1) > 1 for name in _WITHOUT_SAMPLES)
    if is_laid_out or wanted.most.get("data_parallel") == 1:
        return
    if "model" in model.source and batch > 1 and device_num > 1 and math.gcd(batch, device_num) == 1:
        raise InputError(
            f"a global batch of {batch} samples cannot be cut for {device_num} devices: give a batch that shares a divisor"
            f" with {device_num}, such as {device_num}; or pin how to do without (--fix model_parallel={device_num}, --fix"
            f" micro_batch_num={batch})"
        )


_WITHOUT_SAMPLES = ("pipeline_stages", "micro_batch_num", "model_parallel", "context_parallel", "expert_parallel")
"""What gives several devices work on one sample, or takes samples one after the other."""

_COMMANDS = {
    "plan": _plan, "fit": _fit, "estimate": _estimate, "verify": _verify, "prove": _prove, "audit": _audit,
    "explain": _explain, "capture": _capture, "validate": _validate, "calibrate": _calibrate, "compare": _compare,
}  # fmt: skip
