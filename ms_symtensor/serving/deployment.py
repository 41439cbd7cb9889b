"""Deployments: instances on devices, and what `search` takes of a request."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ms_symtensor.reshard.slices import Side
from ms_symtensor.serving.memory import cache_B, cache_tokens, weights_B
from ms_symtensor.serving.phases import Passes, decode, prefill
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.strategy import Strategy, strategies

MIXED, SPLIT, TURNS = "mixed", "split", "turns"


@dataclass(frozen=True)
class Instance:
    """`count` instances that run `phase` ("prefill", "decode", or "mixed" for both) under `strategy`.

    `requests`: of a `dp` rank at once; `tokens`: of a `dp` rank in one pass. `requests_per_s`: of one instance, alone.
    `latency_s`: to the first token of a prompt, or per token. `step_s`: a pass through all stages; `parts_s` of it by name.
    """

    phase: str
    count: int
    strategy: Strategy
    requests: int
    tokens: int
    requests_per_s: float
    latency_s: float
    step_s: float
    parts_s: dict[str, float]
    weights_B: int
    cache_B: int
    cache_tokens: int


@dataclass(frozen=True)
class Deployment:
    """Instances on the devices: `mode` "mixed", "split", or "turns": then both kinds are on the same devices, and the way between
    them takes `transition_s` of every cycle.
    """

    mode: str
    instances: tuple[Instance, ...]
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    tokens_per_s_device: float
    transition_s: float = 0.0

    @property
    def devices(self) -> int:
        counted = self.instances[:1] if self.mode == TURNS else self.instances
        return sum(one.count * one.strategy.device_num for one in counted)


@dataclass(frozen=True)
class Found:
    """The best deployments, best first, one for each pair of strategies; `candidates`: passes that were priced."""

    deployments: tuple[Deployment, ...]
    candidates: int

    @property
    def best(self) -> Deployment:
        return self.deployments[0]


class Priced:
    """The passes of a request, each priced once; `count` of them, and the least latencies by option. `sides`: how weights lie;
    `changes_s`: the seconds from one strategy to another with so many portions of so many requests' caches.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.count = 0
        self.closest: dict[str, float] = {}
        self.most_requests = 0
        self.sides: dict[Strategy, Side] = {}
        self.changes_s: dict[tuple[Strategy, Strategy, int, int], float] = {}
        self._known: dict[tuple[str, Strategy], Passes | None] = {}

    def passes(self, phase: str, one: Strategy) -> Passes | None:
        key = (phase, one)
        if key not in self._known:
            self._known[key] = found = (prefill if phase == "prefill" else decode)(self.request, one)
            if found is not None:
                self.count += found.stage_s.size
                self.most_requests = max(self.most_requests, int(found.requests.max()) * one.pp)
        return self._known[key]

    def every(self, phase: str) -> Iterator[Passes]:
        """Those of every strategy that fits and has the pins of `phase`. Errors: those of `strategies`."""
        fixed = degrees_of(self.request.fixed.get(phase, {}))
        every = (self.passes(phase, one) for one in strategies(self.request.config, self.request.device_num, fixed))
        return (passes for passes in every if passes is not None)


def instance_of(
    request: Request, phase: str, count: int, passes: Passes, n: int, rate: float, latency_s: float
) -> Instance:
    """Of entry `n` of `passes`."""
    one = passes.one
    tokens = int(passes.tokens[n])
    requests = max(1, round(float(passes.requests[n]))) if phase == "prefill" else int(passes.requests[n]) * one.pp
    room = cache_tokens(request, one, tokens, requests)
    return Instance(
        phase,
        count,
        one,
        requests,
        tokens,
        rate,
        latency_s,
        float(passes.pass_s[n]),
        {name: float(time[n]) * one.pp for name, time in passes.parts.items()},
        weights_B(request, one),
        room * cache_B(request, one),
        room,
    )


def deployment_of(
    request: Request, mode: str, instances: tuple[Instance, ...], rate: float, ttft_s: float, tpot_s: float
) -> Deployment:
    """Of all instances `rate` requests a second."""
    return Deployment(mode, instances, rate, ttft_s, tpot_s, rate * request.tokens.output / request.device_num)


def degrees_of(fixed: Mapping[str, int]) -> dict[str, int]:
    """What of the pins is of a strategy."""
    return {name: value for name, value in fixed.items() if name not in ("requests", "tokens")}


def batches(fixed: Mapping[str, int], first: Passes | None, steps: Passes | None) -> np.ndarray:
    """Which numbers of tokens and of requests `fixed` leaves: [tokens, requests]."""
    rows: np.ndarray = np.ones(1, dtype=bool) if first is None else first.tokens == fixed.get("tokens", first.tokens)
    columns: np.ndarray = np.ones(1, dtype=bool)
    if steps is not None:
        requests = steps.requests * steps.one.pp
        columns = requests == fixed.get("requests", requests)
    found: np.ndarray = rows[:, None] & columns[None, :]
    return found


def allowed(
    request: Request, ttft_s: np.ndarray | None, tpot_s: np.ndarray | None, closest: dict[str, float]
) -> np.ndarray:
    """Whether latencies keep their limits; the least that there are go to `closest`."""
    found: np.ndarray = np.array(True)
    for name, latency, limit in (("--ttft", ttft_s, request.ttft_s), ("--tpot", tpot_s, request.tpot_s)):
        if latency is not None:
            closest[name] = min(closest.get(name, np.inf), float(latency.min()))
            if limit is not None:
                found = found & (latency <= limit)
    return found
