"""A step of reinforcement learning, for people and for programs."""

from dataclasses import asdict
from typing import Any

from ms_symtensor.joint import Joint, Step
from ms_symtensor.report.text import seconds, share, size, table
from ms_symtensor.serving.request import Request


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
