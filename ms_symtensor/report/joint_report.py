"""A step of reinforcement learning, for people and for programs, and the folder of `reshard --joint --out`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ms_symtensor.files.folder import write_named
from ms_symtensor.joint import Joint, Step, in_training, moves
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.plan_report import plan_texts
from ms_symtensor.report.programs import programs_of
from ms_symtensor.report.reshard_files import checkpoint_of, checkpoint_of_side, write_reshard
from ms_symtensor.report.reshard_report import reshard_json, reshard_text
from ms_symtensor.report.serve_report import serve_json, serve_text, write_serve
from ms_symtensor.report.text import seconds, share, size, table
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


def joint_json(request: Request, samples: int, found: Joint) -> dict[str, Any]:
    """The keys that `symtensor reshard --joint --json` promises: seconds, bytes, tokens a second."""
    return {
        "model": request.config.name,
        "cluster": request.cluster.name,
        "device_num": request.device_num,
        "global_batch_size": samples,
        **_step_json(request, samples, found.step),
        "optimality_gap": found.gap,
        "pairs_priced": found.pairs,
        "each_alone": _step_json(request, samples, found.first),
    }


def joint_text(request: Request, samples: int, found: Joint) -> str:
    """Both plans, where the time of a step goes, and the commands that plan each."""
    step, first = found.step, found.first
    one = step.rollout.instance
    lines = [
        f"{request.config.name}: {samples} samples of {request.tokens.input:g} and {request.tokens.output} tokens on"
        f" {request.device_num} devices of {request.cluster.name}",
        "",
        f"  a step takes {seconds(step.time_s)}, {_rate(request, samples, step):.0f} tokens/s and device",
        f"  training  {step.training.strategy.text()}",
        f"  rollout   {one.count} x {step.rollout.strategy.text()}, {one.requests} requests of a dp rank at"
        f" once, {step.rollout.waves} times",
        "",
        table([(name, seconds(time), share(time, step.time_s)) for name, time in _parts(step).items()], right=(1, 2)),
        "",
        f"A device receives at most {size(step.received_B)} on the way to the rollout",
        f"No other step is more than {found.gap:.1%} faster" if found.gap else "No other step is faster",
    ]
    if first != step:
        lines.append(
            f"The fastest of each alone, {first.training.strategy.text()} and {first.rollout.strategy.text()}, take"
            f" {seconds(first.time_s)}"
        )
    return "\n".join(lines)


def write_joint(
    directory: Path, request: Request, trained: Trained, found: Joint, data: dict[str, Any], text: str
) -> tuple[str, ...]:
    """Write the plan `trained` and the deployment of the rollout of `found`, as `plan` and `serve` write theirs, and the ways
    between; the names of the files.

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


def _parts(step: Step) -> dict[str, float]:
    return {
        "generation": step.rollout.generation_s,
        "scores": step.scores_s,
        "update": step.training.update_s,
        "reshard to the rollout": step.reshard_s[0],
        "reshard back": step.reshard_s[1],
        "optimizer states out and in": step.training.swap_s,
    }


def _rate(request: Request, samples: int, step: Step) -> float:
    return samples * (request.tokens.input + request.tokens.output) / step.time_s / request.device_num


def _step_json(request: Request, samples: int, step: Step) -> dict[str, Any]:
    return {
        "step_time_s": step.time_s,
        "tokens_per_s_device": _rate(request, samples, step),
        "time_s": {name.replace(" ", "_"): time for name, time in _parts(step).items()},
        "training": asdict(step.training.strategy),
        "rollout": {
            "strategy": asdict(step.rollout.strategy), "count": step.rollout.instance.count,
            "requests": step.rollout.instance.requests,
            "waves": step.rollout.waves,
        },
        "received_B": step.received_B,
    }  # fmt: skip
