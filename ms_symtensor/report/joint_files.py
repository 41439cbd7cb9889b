"""The folder of `reshard --joint --out`: both plans, as `plan` and `serve` write theirs, and the ways between them."""

from pathlib import Path
from typing import Any

from ms_symtensor.files.folder import write_named
from ms_symtensor.joint import Joint, in_training, moves
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.plan_report import plan_texts
from ms_symtensor.report.programs import programs_of
from ms_symtensor.report.reshard_files import checkpoint_of, checkpoint_of_side, write_reshard
from ms_symtensor.report.reshard_report import reshard_json, reshard_text
from ms_symtensor.report.serve_report import serve_json, serve_text, write_serve
from ms_symtensor.serving.deployment import MIXED, Found, deployment_of
from ms_symtensor.serving.plans import phase_plans, why_no_plans
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.sides import Served
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.strategy.writing import json_text
from ms_symtensor.streams import notice
from ms_symtensor.targets.exporter import Uniform
from ms_symtensor.tensor.graph import Graph

TRAINING, ROLLOUT, THERE, BACK = "training", "rollout", "to_rollout", "to_training"
Trained = tuple[Plan, Graph, Uniform]
"""The plan of training, its graph, and what it was made of."""
FILES = ("joint.json", "report.txt")


def write_joint(
    directory: Path, request: Request, trained: Trained, found: Joint, data: dict[str, Any], text: str
) -> tuple[str, ...]:
    """Write the plan `trained`, the deployment of the rollout of `found`, and the ways between; the names of the files.

    Errors: InputError if that is impossible.
    """
    plan, graph, uniform = trained
    programs = programs_of(plan, graph)
    write_plan(plan, graph, programs, plan_texts(plan, graph, programs).whole, directory / TRAINING, uniform)
    rollout = found.step.rollout
    one = rollout.instance
    rate = one.count * one.requests_per_s
    served = Found((deployment_of(request, MIXED, (one,), rate, rollout.ttft_s, one.latency_s),), found.pairs)
    refused = why_no_plans(request, served.best)
    if refused:
        notice(f"no plans of the rollout to verify: {refused}")
    deployed = serve_json(request, served, 0.0) | ({"plans_refused": refused} if refused else {})
    plans = () if refused else phase_plans(request, served, 0.0)
    write_serve(directory / ROLLOUT, request, served.best, deployed, serve_text(request, served), plans)
    side = in_training(programs)
    there, back = moves(request, side, rollout)
    other = Served(request.config, one.strategy, one.count, request.cluster.name)
    of_plan, of_rollout = checkpoint_of(plan, graph, programs, side, False), checkpoint_of_side(there.target)
    write_reshard(
        directory / THERE, of_plan, of_rollout, reshard_json(there, plan, other, None), reshard_text(there, plan)
    )
    write_reshard(
        directory / BACK, of_rollout, of_plan, reshard_json(back, other, plan, None), reshard_text(back, other)
    )
    written = dict(zip(FILES, (json_text(data), f"{text}\n"), strict=True))
    write_named(directory, written, FILES)
    return (*FILES, *(f"{name}/" for name in (TRAINING, ROLLOUT, THERE, BACK)))
