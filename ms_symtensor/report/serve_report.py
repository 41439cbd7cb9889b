"""A deployment, for people and for programs, and its folder."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from model_zoo.described import text_of
from ms_symtensor.files.folder import write_named
from ms_symtensor.report.emit import write_plan
from ms_symtensor.report.operators import operators_text, sections
from ms_symtensor.report.plan_report import times_and_memory
from ms_symtensor.report.serve_mindformers import predict_files
from ms_symtensor.report.text import seconds, share, size, table
from ms_symtensor.serving.commands import ASCEND, MINDSPORE, EngineCommand, engine_commands
from ms_symtensor.serving.deployment import Deployment, Found, Instance
from ms_symtensor.serving.folder import FILE, PLANS
from ms_symtensor.serving.plans import PhasePlan
from ms_symtensor.serving.request import Request
from ms_symtensor.strategy.digest import sealed
from ms_symtensor.streams import notice

NAMES = (
    FILE, "report.txt", "vllm_ascend.sh", "vllm_mindspore.sh", "predict_mixed.yaml", "predict_prefill.yaml",
    "predict_decode.yaml",
)  # fmt: skip
_SCRIPT = """#!/bin/sh
# One command for each kind of instance; MODEL is a folder or a name that vLLM loads. Predicted, not measured on NPUs.
# Ranks of several nodes need --data-parallel-address and --data-parallel-size-local too.
"""


_MODES = {
    "mixed": "prefill and decode on the same instances",
    "split": "instances for prefill and for decode",
    "turns": "prefill and decode in turns on the same devices",
}


def serve_json(request: Request, found: Found, search_time_s: float) -> dict[str, Any]:
    """The keys that `symtensor serve --json` promises: seconds, bytes, tokens a second."""
    return {
        "model": request.config.name,
        "dimensions": text_of(request.config),
        "cluster": request.cluster.name,
        "device_num": request.device_num,
        "weights": request.weights,
        "input_tokens": request.tokens.input,
        "output_tokens": request.tokens.output,
        "ttft_limit_s": request.ttft_s,
        "tpot_limit_s": request.tpot_s,
        **_deployment_json(request, found.best),
        "optimality_gap": 0.0,  # every strategy, batch and number of instances was priced
        "candidates": found.candidates,
        "search_time_s": search_time_s,
        "memory_limit_B": request.limit_B,
        "top": [_deployment_json(request, one) for one in found.deployments],
    }


def serve_text(request: Request, found: Found) -> str:
    """The deployment, its instances and their time and memory."""
    best = found.best
    lines = [
        f"{request.config.name}: {request.device_num} devices of {request.cluster.name}, prompts of"
        f" {request.tokens.input:g} tokens, {request.tokens.output} generated, weights in {request.weights}",
        "",
        f"  {best.tokens_per_s_device:.1f} tokens/s and device, {best.requests_per_s:.2f} requests/s; {_limits(request, best)}",
        f"  {_MODES[best.mode]}, {best.devices} devices in use"
        + (f", {seconds(best.transition_s)} of every cycle between the two" if best.mode == "turns" else ""),
        "",
        table(
            [_row(one) for one in best.instances],
            ("instances", "strategy", "devices", "requests", "tokens", "pass", "weights", "cache"),
            right=(2, 3, 4, 5, 6, 7),
        ),
        "",
        *(_parts(one) for one in best.instances),
    ]
    if len(found.deployments) > 1:
        rows = [
            (f"{one.tokens_per_s_device:.1f}", one.mode, _short(one), seconds(one.ttft_s), seconds(one.tpot_s))
            for one in found.deployments
        ]
        lines += [
            "",
            table(rows, ("tokens/s/device", "mode", "instances", "first token", "per token"), right=(0, 3, 4)),
        ]
    lines += [
        "",
        f"Best of {found.candidates:,} passes that were priced: every strategy, batch and number of instances",
    ]
    return "\n".join(lines)


def why_not_text(asked: str, best: Deployment, other: Deployment) -> str:
    """What another deployment loses, and by which part of a pass."""
    lost = 1 - other.tokens_per_s_device / best.tokens_per_s_device
    lines = [
        f"Why not {asked}: {100 * lost:.1f} % fewer tokens, {other.tokens_per_s_device:.1f} a second and device against"
        f" {best.tokens_per_s_device:.1f}"
    ]
    lines.append(f"  {_short(other)}: first token {seconds(other.ttft_s)}, per token {seconds(other.tpot_s)}")
    for one in other.instances:
        lines.append(_parts(one))
        lines.append(f"    cache for {one.cache_tokens * one.strategy.dp:,} tokens of an instance")
    for one in best.instances:
        lines.append(f"  the best: {one.phase} cache for {one.cache_tokens * one.strategy.dp:,} tokens of an instance")
    return "\n".join(lines)


def write_serve(
    directory: str | os.PathLike[str],
    request: Request,
    best: Deployment,
    data: dict[str, Any],
    text: str,
    plans: Sequence[PhasePlan] = (),
) -> tuple[str, ...]:
    """Write the report, the JSON, the engines' commands and the plans of the phases (`data` has why there are none, else their
    digests are put there); the names. InputError if that is impossible.
    """
    digests = {one.name: _write_phase(Path(directory) / one.name, one) for one in plans}
    data = {**data, PLANS: digests} if digests else data
    files: dict[str, str | bytes] = {
        FILE: sealed({key: value for key, value in data.items() if key != "search_time_s"}),
        "report.txt": text + "\n",
        "vllm_ascend.sh": _script(engine_commands(request, best, ASCEND)),
        "vllm_mindspore.sh": _script(engine_commands(request, best, MINDSPORE)),
    }
    predicted, reason = predict_files(request, best)
    files |= predicted
    if reason:
        notice(f"no file for MindFormers: {reason}")
    write_named(directory, files, NAMES)
    return (*files, *(f"{name}/" for name in digests))


def _script(commands: Sequence[EngineCommand]) -> str:
    lines = []
    for one in commands:
        lines.append(f"# {one.count} x {one.phase}" + (f"; vLLM cannot say: {one.refused}" if one.refused else ""))
        lines.append(f"{'# ' if one.refused else ''}{one.line}")
    return _SCRIPT + "\n".join(lines) + "\n"


def _write_phase(directory: Path, one: PhasePlan) -> str:
    """Write the plan of a phase; the digest of its folder."""
    plan = one.plan
    tokens = plan.global_batch_size * plan.seq_length
    lines = [
        f"{one.name} of {plan.model} on {plan.device_num} devices of {plan.cluster}: {tokens:,} tokens of"
        f" {plan.global_batch_size} requests",
        times_and_memory(plan),
        "Operators (dim/slices)",
        operators_text(sections(one.graph, plan.whole)),
    ]
    return write_plan(plan, one.graph, [one.program], "\n\n".join(lines), directory).digest


def _deployment_json(request: Request, one: Deployment) -> dict[str, Any]:
    commands = engine_commands(request, one)
    return {
        "mode": one.mode,
        "tokens_per_s_device": one.tokens_per_s_device,
        "requests_per_s": one.requests_per_s,
        "ttft_s": one.ttft_s,
        "tpot_s": one.tpot_s,
        "transition_s": one.transition_s,
        "devices": one.devices,
        "peak_memory_B": max(each.weights_B + each.cache_B for each in one.instances),
        "instances": [
            _instance_json(each) | {"vllm": list(command.arguments), "vllm_refused": command.refused}
            for each, command in zip(one.instances, commands, strict=True)
        ],
    }


def _instance_json(one: Instance) -> dict[str, Any]:
    return {
        "phase": one.phase,
        "count": one.count,
        "device_num": one.strategy.device_num,
        "strategy": asdict(one.strategy),
        "requests": one.requests,
        "tokens": one.tokens,
        "requests_per_s": one.requests_per_s,
        "latency_s": one.latency_s,
        "step_time_s": one.step_s,
        "time_s": dict(sorted(one.parts_s.items())),
        "memory_B": {"weights": one.weights_B, "cache": one.cache_B},
        "cache_tokens": one.cache_tokens * one.strategy.dp,
    }


def _limits(request: Request, best: Deployment) -> str:
    def of(name: str, time_s: float, limit_s: float | None) -> str:
        return f"{name} {seconds(time_s)}" + (f" of {seconds(limit_s)}" if limit_s is not None else "")

    return f"{of('first token', best.ttft_s, request.ttft_s)}, {of('per token', best.tpot_s, request.tpot_s)}"


def _row(one: Instance) -> tuple[str, ...]:
    return (
        f"{one.count} x {one.phase}",
        one.strategy.text(),
        str(one.strategy.device_num),
        str(one.requests),
        str(one.tokens),
        seconds(one.step_s),
        size(one.weights_B),
        size(one.cache_B),
    )


def _short(one: Deployment) -> str:
    return ", ".join(f"{each.count} x {each.phase} {each.strategy.text()}" for each in one.instances)


def _parts(one: Instance) -> str:
    longest = sorted(one.parts_s.items(), key=lambda part: -part[1])
    words = (
        f"{name.replace('_', ' ')} {share(time, one.step_s)}" for name, time in longest if time > 0.005 * one.step_s
    )
    name = "decode step" if one.phase != "prefill" else "prefill pass"
    return f"  {name}: {', '.join(words)}"
