"""Every strategy, every batch and every number of instances: what gives most tokens a second and device.

One engine for both (`mixed`): in the time of a request's output the prefills of others pass by, too. Two kinds of instances
(`split`): the slower kind decides, and the devices are shared out so that neither waits. Both in turns: `turns`.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ms_symtensor.cluster.collective_time import collective_time_s
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.serving.deployment import (
    MIXED,
    SPLIT,
    TURNS,
    Deployment,
    Found,
    Instance,
    Priced,
    allowed,
    batches,
    degrees_of,
    deployment_of,
    instance_of,
)
from ms_symtensor.serving.layer import Array
from ms_symtensor.serving.memory import cache_B, held_B, request_tokens, weights_B
from ms_symtensor.serving.phases import PREFILL_TOKENS, first_token_s, most_requests
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.strategy import strategies
from ms_symtensor.serving.turns import in_turns


def search(request: Request, modes: tuple[str, ...] = (MIXED, SPLIT), top: int = 1) -> Found:
    """The best `top` deployments of `request` in one of `modes`.

    Errors: InputError for a network that cannot be cut as `fixed`; InfeasibleError where nothing fits, or none is fast enough.
    """
    priced = Priced(request)
    found: list[Deployment] = []
    refused: list[str] = []
    for mode in modes:
        try:
            found += _OF_MODE[mode](request, priced, top)
        except InputError as error:
            refused.append(str(error))
    if len(refused) == len(modes):
        raise InputError(refused[-1])
    if not found:
        raise InfeasibleError(_why_nothing(request, priced))
    found.sort(key=lambda one: (-one.tokens_per_s_device, one.devices, str(one.instances)))
    return Found(tuple(found[:top]), priced.count)


def _mixed(request: Request, priced: Priced, top: int) -> Iterator[Deployment]:
    """The best batch of every strategy."""
    pins, fixed = request.fixed.get("prefill", {}), dict(request.fixed.get("decode", {}))
    for name, value in pins.items():
        if fixed.setdefault(name, value) != value:
            raise InputError(
                f"prefill.{name}={value} and decode.{name}={fixed[name]} of one instance: give both one value"
            )
    output = request.tokens.output
    for one in strategies(request.config, request.device_num, degrees_of(fixed)):
        first, steps = priced.passes("prefill", one), priced.passes("decode", one)
        if first is None or steps is None:
            continue
        most = np.array([most_requests(request, one, int(tokens)) for tokens in first.tokens])
        each_s = first.stage_s / first.requests  # of a prompt, in a stage's time
        passing = held_up(one.dp, steps.requests / output)
        cycle_s = output * steps.stage_s[None, :] + each_s[:, None] * (steps.requests * passing)[None, :]
        tpot_s = one.pp * cycle_s / output
        ttft_s = first_token_s(request, first)[:, None] + steps.pass_s[None, :]
        kept = allowed(request, ttft_s, tpot_s, priced.closest) & batches(fixed, first, steps)
        kept = kept & (steps.requests[None, :] <= most[:, None])
        rate = np.where(kept, one.dp * steps.requests[None, :] / cycle_s, 0.0)
        n, b = np.unravel_index(int(rate.argmax()), rate.shape)
        if rate[n, b] <= 0:
            continue
        count = request.device_num // one.device_num
        best, first_s, next_s = (float(of[n, b]) for of in (rate, ttft_s, tpot_s))
        instance = instance_of(request, "mixed", count, steps, int(b), best, next_s)
        instance = replace(instance, tokens=int(first.tokens[n]))
        yield deployment_of(request, MIXED, (instance,), count * best, first_s, next_s)


def held_up(dp: int, arrivals: Array) -> Array:
    """How many prefill passes a rank waits for, for each of its own.

    Ranks of `dp` take every step together, idle ones with a dummy batch (vLLM's data-parallel engines). `arrivals` are prompts
    of a rank in a decode step; where prompts are rare the passes of all ranks come one after the other, where every step has one
    they coincide: the chance that any rank has a prompt, over that of one.
    """
    chance = np.minimum(arrivals, 1.0)
    found: Array = (1 - (1 - chance) ** dp) / chance
    return found


def _split(request: Request, priced: Priced, top: int) -> list[Deployment]:
    """Of the best instances of every size for either phase the pairs, and of those the best numbers."""
    firsts = _best_of_sizes(request, "prefill", priced)
    steps = _best_of_sizes(request, "decode", priced)
    least = sum(min((one.strategy.device_num for one in side), default=0) for side in (firsts, steps))
    if least > request.device_num:
        raise InputError(
            f"instances for prefill and others for decode need {least} devices, and there are {request.device_num}: ask for more,"
            " or --colocated"
        )
    found = []
    for first in firsts:
        sent_s = _transfer_s(request, first)
        if request.ttft_s is not None and first.latency_s + sent_s > request.ttft_s:
            continue
        for step in steps:
            rate, count, needed = _numbers(first, step, request.device_num)
            if count:
                pair = replace(first, count=count), replace(step, count=needed)
                found.append(deployment_of(request, SPLIT, pair, rate, first.latency_s + sent_s, step.latency_s))
    found.sort(key=lambda one: -one.tokens_per_s_device)
    return found[:top]


_OF_MODE = {MIXED: _mixed, SPLIT: _split, TURNS: in_turns}


def _numbers(first: Instance, step: Instance, device_num: int) -> tuple[float, int, int]:
    """The requests a second of the best numbers of both, and these; 0 where there is no room.

    The more there are of the first, the more requests they take in, and the fewer of the second are left: the best number is the
    last one that these keep up with, or the next.
    """
    size, other = first.strategy.device_num, step.strategy.device_num

    def left(count: int) -> int:
        return (device_num - count * size) // other

    counts = range(1, (device_num - other) // size + 1)
    kept = bisect_left(counts, True, key=lambda n: n * first.requests_per_s > left(n) * step.requests_per_s)
    best = (0.0, 0, 0)
    for count in counts[max(kept - 1, 0) : kept + 1]:
        rate = min(count * first.requests_per_s, left(count) * step.requests_per_s)
        needed = max(1, min(left(count), -int(-rate // step.requests_per_s)))  # no more than keep up
        best = (rate, count, needed) if rate > best[0] * (1 + 1e-9) else best
    return best


def _best_of_sizes(request: Request, phase: str, priced: Priced) -> list[Instance]:
    """Of every number of devices the instance that takes most requests a second."""
    fixed = request.fixed.get(phase, {})
    best: dict[int, Instance] = {}
    for passes in priced.every(phase):
        rate = passes.one.dp * passes.requests / passes.stage_s
        if phase == "prefill":
            latency = first_token_s(request, passes)
            kept = allowed(request, latency, None, priced.closest) & batches(fixed, passes, None)[:, 0]
        else:
            latency, rate = passes.pass_s, rate / request.tokens.output
            kept = allowed(request, None, latency, priced.closest) & batches(fixed, None, passes)[0]
        rate = np.where(kept, rate, 0.0)
        n, size = int(rate.argmax()), passes.one.device_num
        if rate[n] > 0 and (size not in best or rate[n] > best[size].requests_per_s * (1 + 1e-9)):
            best[size] = instance_of(request, phase, 1, passes, n, float(rate[n]), float(latency[n]))
    return list(best.values())


def _transfer_s(request: Request, first: Instance) -> float:
    """A prompt's cache from the devices of a stage to those that decode, each over its port, to the farthest device."""
    size_B = held_B(request, first.strategy, request.tokens.most)
    return collective_time_s(request.cluster, "Send", (0, request.device_num - 1), size_B)


def _why_nothing(request: Request, priced: Priced) -> str:
    name, devices = request.config.name, request.device_num
    if not priced.count:
        need = min(
            weights_B(request, one) + request_tokens(request, one) * cache_B(request, one)
            for one in strategies(request.config, devices, degrees_of(dict(request.fixed.get("decode", {}))))
        )
        return (
            f"{name} does not fit {devices} devices: weights and the cache of one request take {need / 2**30:.1f} GiB of each,"
            f" and there are {request.limit_B / 2**30:.1f}: give more devices, or --weights int8"
        )
    pins = [f"{pin}={one[pin]}" for one in request.fixed.values() for pin in ("requests", "tokens") if pin in one]
    if pins:
        return (
            f"{name} on {devices} devices has no batch with {', '.join(dict.fromkeys(pins))}: a pass has one of"
            f" {', '.join(map(str, PREFILL_TOKENS))} tokens, and at most {priced.most_requests} requests of a dp rank fit;"
            " give others, or higher limits"
        )
    if request.ttft_s is None and request.tpot_s is None:
        return f"{name} on {devices} devices has no room for what moves between prefill and decode in turns: leave --turns out"
    reached = ", ".join(f"{option} {least * 1e3:.1f} ms" for option, least in sorted(priced.closest.items()))
    return f"{name} on {devices} devices keeps no such limits; the least that any strategy reaches alone: {reached}: ask for more"
