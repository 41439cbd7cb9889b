"""Prefill and decode in turns on the same devices, each under its own strategy (Seesaw, arXiv 2503.06433).

As many prompts as the cache holds are taken in. Then weights and cache are resharded, all requests are decoded to the end, and
the weights go back. The transition's cost is spread over what the cache holds.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ms_symtensor.errors import InputError
from ms_symtensor.reshard import reshard as resharding
from ms_symtensor.reshard.slices import Held, Side, Slices
from ms_symtensor.serving.deployment import (
    TURNS,
    Deployment,
    Priced,
    allowed,
    batches,
    deployment_of,
    instance_of,
)
from ms_symtensor.serving.memory import cache_tokens, layer_B, request_tokens
from ms_symtensor.serving.phases import Passes, first_token_s
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.sides import Served, side_of_instances
from ms_symtensor.serving.strategy import Strategy
from ms_symtensor.tensor.layout import Layout

_PORTIONS = 8
"""In so many parts a layer's cache moves, so that a message of one finds room."""


_SHARES = (1.0, 0.95, 0.8)
"""Of the requests that the cache holds, which are tried."""


class _Cost(NamedTuple):
    """Of a cycle's transition: seconds, seconds of a request, and how many requests it takes at most."""

    time_s: float = 0.0
    each_s: float = 0.0
    most: float = math.inf


@dataclass(frozen=True)
class _Turn:
    """Cycles of prefill under `first` and decode under `steps`: the best rate of an instance, of which size and batch."""

    rate: float
    n: int
    b: int
    ttft_s: float
    tpot_s: float


def in_turns(request: Request, priced: Priced, top: int) -> Iterator[Deployment]:
    """The best `top` pairs of strategies of instances of one size. A pair's transition is priced only while its rate without one
    could still be among them.
    """
    decoding = _by_size("decode", priced)
    pairs = [
        (_bound(request, first, steps), first, steps)
        for size, firsts in _by_size("prefill", priced).items()
        for first in firsts
        for steps in decoding[size]
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1].one, pair[2].one))
    best = [0.0] * top
    for bound, first, steps in pairs:
        if bound <= best[-1]:
            return
        free = _best(request, priced, first, steps, _Cost())
        if free is None or request.device_num // first.one.device_num * free.rate <= best[-1]:
            continue
        found = _deployment(request, priced, first, steps, free)
        if found is not None:
            best = sorted((*best, found.requests_per_s), reverse=True)[:top]
            yield found


def _bound(request: Request, first: Passes, steps: Passes) -> float:
    """No pair takes more requests a second than at the least time of a prompt and of a decoded request, whatever the cache."""
    prompt_s = float((first.stage_s / first.requests).min()) / first.one.dp
    decoded_s = float((steps.stage_s / steps.requests).min()) * request.tokens.output / steps.one.dp
    return request.device_num // first.one.device_num / (prompt_s + decoded_s)


def _by_size(phase: str, priced: Priced) -> dict[int, list[Passes]]:
    found = defaultdict(list)
    for passes in priced.every(phase):
        found[passes.one.device_num].append(passes)
    return found


def _best(request: Request, priced: Priced, first: Passes, steps: Passes, cost: _Cost) -> _Turn | None:
    """Over all sizes of prefill's passes and all numbers of requests."""
    one, other = first.one, steps.one
    held = np.array([cache_tokens(request, one, int(size), max(1, int(rows))) for size, rows in _sizes(first)])
    requests = other.dp * other.pp * steps.requests
    fits = requests[None, :] <= (one.dp * (held // request_tokens(request, one)))[:, None]
    prompts_s = first.stage_s / first.requests / one.dp
    taken_s = prompts_s[:, None] * requests[None, :] + (first.pass_s - first.stage_s)[:, None]
    changed_s = cost.time_s + cost.each_s * requests
    decoded_s = request.tokens.output * steps.pass_s
    waits_s = np.maximum(0.0, taken_s - first.pass_s[:, None])
    tpot_s = (waits_s + changed_s + decoded_s) / request.tokens.output
    ttft_s = np.broadcast_to(first_token_s(request, first)[:, None], tpot_s.shape)
    kept = fits & (requests <= cost.most) & allowed(request, ttft_s, tpot_s, priced.closest)
    kept = kept & batches(request.fixed.get("prefill", {}), first, None)
    kept = kept & batches(request.fixed.get("decode", {}), None, steps)
    rate = np.where(kept, requests / (taken_s + changed_s + decoded_s), 0.0)
    n, b = (int(at) for at in np.unravel_index(int(rate.argmax()), rate.shape))
    return _Turn(float(rate[n, b]), n, b, float(ttft_s[n, b]), float(tpot_s[n, b])) if rate[n, b] > 0 else None


def _sizes(passes: Passes) -> Iterator[tuple[float, float]]:
    return zip(passes.tokens.tolist(), passes.requests.tolist(), strict=True)


def _deployment(request: Request, priced: Priced, first: Passes, steps: Passes, free: _Turn) -> Deployment | None:
    """With the transition's time; with fewer requests where those of `free` leave no room for a message."""
    most = int(steps.requests[free.b]) * steps.one.dp * steps.one.pp
    for room in _SHARES:
        try:
            weights_s, each_s = _transition(priced, first.one, steps.one, int(room * most))
        except InputError:
            continue
        best = _best(request, priced, first, steps, _Cost(weights_s, each_s, int(room * most)))
        if best is None:
            return None
        count = request.device_num // first.one.device_num
        pair = (
            instance_of(request, "prefill", count, first, best.n, best.rate, best.ttft_s),
            instance_of(request, "decode", count, steps, best.b, best.rate, best.tpot_s),
        )
        requests = int(steps.requests[best.b]) * steps.one.dp * steps.one.pp
        found = deployment_of(request, TURNS, pair, count * best.rate, best.ttft_s, best.tpot_s)
        return replace(found, transition_s=weights_s + each_s * requests)
    return None


def _transition(priced: Priced, one: Strategy, other: Strategy, requests: int) -> tuple[float, float]:
    """Seconds of the weights there and back, and of the cache of each of so many requests. InputError where there is no room."""
    unit = math.lcm(one.dp, other.dp)
    portions = max(1, min(_PORTIONS, requests // unit))
    each = max(1, requests // (unit * portions)) * unit
    there_s, back_s = (_seconds(priced, *pair, 0, 0) for pair in ((one, other), (other, one)))
    whole_s = _seconds(priced, one, other, portions, each)
    return there_s + back_s, max(0.0, whole_s - there_s) / (portions * each)


def _seconds(priced: Priced, source: Strategy, target: Strategy, portions: int, each: int) -> float:
    """Of the weights, and so many portions of the caches of `each` requests, from one strategy to the other."""
    key = source, target, portions, each
    if key not in priced.changes_s:
        request = resharding.Request(priced.request.cluster, priced.request.limit_B)
        first, second = (_side(priced, one, portions, each) for one in (source, target))
        priced.changes_s[key] = resharding.reshard(first, second, request).time_s
    return priced.changes_s[key]


def _side(priced: Priced, one: Strategy, portions: int, each: int) -> Side:
    request, config = priced.request, priced.request.config
    if one not in priced.sides:
        priced.sides[one] = side_of_instances(Served(config, one, 1, request.cluster.name), request.stored_as, 1)
    side = priced.sides[one]
    layers, caches = -(-config.num_layers // one.pp), []
    for n, kind in enumerate(config.kinds or map(config.kind, range(config.num_layers))):
        heads = config.n_kv_heads if config.latent_attention is None else 1
        heads = config.delta.key_heads if config.delta is not None and kind.linear else heads
        cut = min(one.tp, heads)
        shape = (
            each,
            heads,
            math.ceil(layer_B(request, Strategy(), kind, request_tokens(request, Strategy())) / heads),
        )
        lies = ((n // layers, Slices(Layout((one.dp, cut, one.tp // cut), (2, 1, -1), shape))),)
        caches += [Held(f"layers.{n}.cache.{part}", shape, "int8", lies, (n // layers,)) for part in range(portions)]
    return replace(side, tensors=(*side.tensors, *caches))
