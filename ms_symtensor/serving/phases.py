"""The time of a pass of either phase through an instance, for all numbers of requests at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.stats import norm

from ms_symtensor.serving.layer import Array, Layer, Step
from ms_symtensor.serving.memory import buffers_B, cache_B, cache_tokens, layers_of, request_tokens, resident_B
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.strategy import Strategy

PREFILL_TOKENS = tuple(1 << n for n in range(10, 18))
"""Tokens of a `dp` rank in one prefill pass that are tried (vLLM's --max-num-batched-tokens)."""
MOST_REQUESTS = 2048
"""Requests of a `dp` rank that are tried; empirical: with more a step takes longer than any reader waits."""


@dataclass(frozen=True)
class Passes:
    """Passes through `one`, an entry for each number of requests (decode) or tokens (prefill) of a `dp` rank.

    `stage_s`: seconds of the slowest stage, so the time between two passes where stages are busy; `parts` of it by name.
    `requests`: how many requests a `dp` rank takes in a pass; `tokens`: how many tokens.
    """

    one: Strategy
    requests: Array
    tokens: Array
    stage_s: Array
    parts: dict[str, Array]

    @property
    def pass_s(self) -> Array:
        """Seconds through all stages."""
        return self.stage_s * self.one.pp


def most_requests(request: Request, one: Strategy, tokens_of_prefill: int = 0) -> int:
    """How many requests of a `dp` rank and stage the cache holds, beside buffers of a prefill pass of so many tokens where the
    same engine makes some.
    """
    left_B = request.limit_B - resident_B(request, one) - buffers_B(request.config, one, tokens_of_prefill, 0)
    each_B = one.pp * request_tokens(request, one) * cache_B(request, one) + buffers_B(request.config, one, 1, 1)
    return max(0, min(left_B // each_B, MOST_REQUESTS))


def decode(request: Request, one: Strategy) -> Passes | None:
    """Decode steps with 1, 2, … requests of a `dp` rank and stage, as many as the cache holds; None where it holds none."""
    most = most_requests(request, one)
    if not most:
        return None
    batch = np.arange(1.0, most + 1)
    keys = request.tokens.input + request.tokens.output / 2
    return passes_of(request, one, Step(batch, batch, keys, is_decode=True), batch)


def prefill(request: Request, one: Strategy, tokens: tuple[int, ...] = PREFILL_TOKENS) -> Passes | None:
    """Prefill passes of so many tokens of a `dp` rank; None where weights and one request do not fit.

    Of a prompt in chunks a pass reads on average half of what the others hold.
    """
    fits = [
        n for n in tokens if cache_tokens(request, one, n, max(1, int(n / request.tokens.input))) >= request.tokens.most
    ]
    if not fits:
        return None
    size = np.array(fits, dtype=float)
    prompts = size / request.tokens.input
    uneven = longest_rank(request, one, prompts)
    context = np.maximum(0.0, request.tokens.input - size) / 2  # of a prompt's chunks before this one
    step = Step(size, prompts, request.tokens.seen, is_decode=False, **uneven, context=context)
    return passes_of(request, one, step, np.minimum(prompts, np.ceil(prompts)))


def longest_rank(request: Request, one: Strategy, prompts: Array) -> dict[str, Array]:
    """`imbalance` and `attended` of a `Step`: what the rank of `dp` that all others wait for has over the mean of those with so
    many `prompts`. Of `dp` sums of evenly spread lengths the largest lies Blom's share of a deviation above the mean (Blom 1958).
    """
    above = norm.ppf((one.dp - 0.375) / (one.dp + 0.25)) if one.dp > 1 else 0.0
    share = above / np.sqrt(np.maximum(prompts, 1.0))
    tokens = request.tokens
    return {"imbalance": 1 + share * tokens.deviation, "attended": 1 + share * tokens.deviation_of_squares}


def batch_s(request: Request, one: Strategy, requests: int) -> float:
    """Seconds of a static batch of so many requests of a `dp` rank: one prefill pass of all, a decode step per further token."""
    batch = np.array([float(requests)])
    tokens = request.tokens
    first = passes_of(request, one, Step(batch * tokens.input, batch, tokens.seen, is_decode=False), batch)
    step = passes_of(request, one, Step(batch, batch, tokens.input + tokens.output / 2, is_decode=True), batch)
    return float(first.pass_s[0] + (tokens.output - 1) * step.pass_s[0])


def first_token_s(request: Request, passes: Passes) -> Array:
    """Seconds of a prompt through all stages, with no queue before it: its chunks follow each other."""
    chunks = np.maximum(1.0, np.ceil(request.tokens.input / passes.tokens))
    seconds: Array = (chunks + passes.one.pp - 1) * passes.stage_s
    return seconds


def passes_of(request: Request, one: Strategy, step: Step, rows: Array) -> Passes:
    """Passes of `step` through all layers, that give logits of `rows` tokens."""
    parts: dict[str, Array] = {}

    def add(count: float, part: Callable[[Layer], None]) -> None:
        layer = Layer(request, one, step)
        part(layer)
        for name, time in layer.parts.items():
            parts[name] = parts.get(name, 0.0) + count * time

    layers = layers_of(request, one)
    attentions = {kind: replace(kind, experts=False) for kind in layers}
    for one_kind in dict.fromkeys(attentions.values()):
        count = sum(number for kind, number in layers.items() if attentions[kind] == one_kind)
        add(count, partial(Layer.attention, kind=one_kind))
    for has_experts, part in ((False, Layer.dense), (True, Layer.experts)):
        if count := sum(number for kind, number in layers.items() if kind.experts == has_experts):
            add(count, part)
    add(1, lambda layer: layer.head(rows))
    add(1, Layer.to_next_stage)
    stage_s = np.sum(list(parts.values()), axis=0)
    return Passes(one, step.requests, step.tokens, stage_s, parts)
