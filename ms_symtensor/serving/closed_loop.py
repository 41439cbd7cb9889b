"""Tokens a second of an engine under so many requests at once, each followed by the next one as soon as it is done.

How benchmarks of serving load an engine (vllm bench serve, AISBench). A pass of prefill takes a chunk of prompts, of which a
share may be cached. A decode step verifies the tokens that were guessed for every request (speculative decoding, Leviathan et
al., arXiv:2211.17192): of `guesses` guesses, each right with probability ACCEPTED, 1 + a + … + a^n tokens come of a step.
"""

from dataclasses import dataclass

import numpy as np

from ms_symtensor.serving.layer import Array, Step
from ms_symtensor.serving.phases import passes_of
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.search import held_up
from ms_symtensor.serving.strategy import Strategy

ACCEPTED = 0.8
"""Of guesses of a multi-token head: 0.85 to 0.9 for the first (DeepSeek-V3 report, section 5.4.3), fewer behind it. empirical,
0.6 to 0.9.
"""
_ROUNDS = 30


@dataclass(frozen=True)
class Engine:
    """`count` engines under `one`. Of a rank of dp: at most `requests` at once, `tokens` in a pass; `guesses` for a request."""

    one: Strategy
    count: int
    requests: int
    tokens: int
    guesses: int = 0


@dataclass(frozen=True)
class Load:
    """`concurrency` requests at once, at most `rate` a second (0: as they come); `cached`: which share of a prompt is."""

    concurrency: int
    rate: float
    cached: float


def tokens_of_a_step(guesses: int) -> float:
    """How many tokens a request gains in a step, on average."""
    return sum(ACCEPTED**n for n in range(guesses + 1))


def mixed_rate(request: Request, engine: Engine, load: Load) -> float:
    """Generated tokens a second of an engine that takes in prompts and generates."""
    dp, output = engine.one.dp * engine.count, request.tokens.output
    each = max(1.0, min(load.concurrency / dp, engine.requests))
    steps = output / tokens_of_a_step(engine.guesses)
    passing = float(held_up(engine.one.dp, np.array([min(1.0, each / steps)]))[0])
    cycle_s = steps * step_s(request, engine, each) + prompt_s(request, engine, load.cached, each) * each * passing
    return _limited(min(load.concurrency, dp * each) / cycle_s, load) * output


def split_rate(request: Request, first: Engine, last: Engine, load: Load) -> float:
    """Generated tokens a second of engines that take in prompts, and others that generate."""
    output, steps = request.tokens.output, request.tokens.output / tokens_of_a_step(last.guesses)
    ranks, rate = last.one.dp * last.count, 0.0
    waiting_s = prompt_s(request, first, load.cached, 1)
    most = first.one.dp * first.count / waiting_s
    for _ in range(_ROUNDS):  # more requests in prefill are fewer in decode
        each = max(1.0, min((load.concurrency - rate * waiting_s) / ranks, last.requests))
        found = min(load.concurrency, ranks * each) / (waiting_s + steps * step_s(request, last, each))
        rate = (rate + min(found, most)) / 2 if rate else min(found, most)
    return _limited(rate, load) * output


def _limited(rate: float, load: Load) -> float:
    return min(rate, load.rate) if load.rate else rate


def step_s(request: Request, engine: Engine, each: float) -> float:
    """Seconds of a decode step with `each` requests of a rank."""
    requests: Array = np.array([each], dtype=np.float64)
    keys = request.tokens.input + request.tokens.output / 2
    step = Step(requests * (1.0 + engine.guesses), requests, keys, is_decode=True)
    return float(passes_of(request, engine.one, step, step.tokens).stage_s[0])


def prompt_s(request: Request, engine: Engine, cached: float, each: float) -> float:
    """Seconds that a rank spends on a prompt: what is not cached, in passes that several prompts share where they fit."""
    new = max(1.0, request.tokens.input * (1 - cached))
    together = max(1.0, min(each, engine.tokens // new))
    size = min(new * together, engine.tokens)
    chunks = np.ceil(new * together / size)
    context = together * (request.tokens.input - new) + max(0.0, new - size) / 2
    prompts: Array = np.array([together], dtype=np.float64)
    step = Step(np.full_like(prompts, size), prompts, request.tokens.input - new / 2, is_decode=False, context=context)
    return float(chunks * passes_of(request, engine.one, step, prompts).pass_s[0] / together)
