"""Training and rollout plans chosen together for a step of reinforcement learning.

A step generates an answer to every prompt, scores all samples without gradients, and trains on them, on the same devices. The
weights are resharded before and after. Optimizer states wait on the host, where the cluster says what it has. Layouts of training
that the uniform search priced, and every strategy of rollout, are paired in the order of their times without the way between,
until no pair can be faster than the best.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import SWAP, local_time_s
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.reshard import reshard as resharding
from ms_symtensor.reshard.slices import Side
from ms_symtensor.serving.deployment import degrees_of
from ms_symtensor.serving.phases import decode, most_requests, prefill
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.sides import Served, side_of_instances
from ms_symtensor.serving.strategy import Strategy, strategies
from ms_symtensor.uniform.layout import UniformLayout

FORWARD = 1 / 3
"""Of a training step: a forward pass, as the backward one has twice its products."""
SCORES = 2
"""Passes without gradients over all samples: by the policy and by the reference model (GRPO, arXiv 2402.03300)."""


@dataclass(frozen=True)
class Training:
    """A layout of training by its degrees, and its seconds for all samples; a device holds `states_B` of the optimizer."""

    strategy: Strategy
    update_s: float
    states_B: int


@dataclass(frozen=True)
class Rollout:
    """`count` instances that generate all samples in `generation_s`, `requests` of a dp rank at once, in `waves`."""

    strategy: Strategy
    count: int
    requests: int
    waves: int
    generation_s: float


@dataclass(frozen=True)
class Step:
    """Seconds of a step: `reshard_s` to the rollout and back, `swap_s` of optimizer states out and in."""

    training: Training
    rollout: Rollout
    scores_s: float
    reshard_s: tuple[float, float]
    swap_s: float
    received_B: int

    @property
    def time_s(self) -> float:
        return math.fsum(
            (self.training.update_s, self.scores_s, self.rollout.generation_s, *self.reshard_s, self.swap_s)
        )


@dataclass(frozen=True)
class Joint:
    """The fastest `step`, `first` the pair of what is fastest by itself, and how far the step is at most from the optimum."""

    step: Step
    first: Step
    gap: float
    pairs: int


def joint(request: Request, samples: int, trainings: Sequence[Training], least_s: float) -> Joint:
    """The fastest pair; no training takes less than `least_s`.

    Errors: InfeasibleError where no instance has room for a request, InputError for what cannot be pinned.
    """
    rollouts = sorted(rollouts_of(request, samples), key=lambda one: (one.generation_s, one.strategy))
    if not rollouts:
        raise InfeasibleError(
            f"{request.config.name} does not generate on {request.device_num} devices: the cache of a request does not fit"
        )
    pairs = sorted(
        ((alone_s(one) + other.generation_s, one, other) for one in trainings for other in rollouts),
        key=lambda pair: (pair[0], pair[1].strategy, pair[2].strategy),
    )
    priced: list[Step] = []
    for bound_s, one, other in pairs:
        if priced and bound_s >= min(step.time_s for step in priced):
            break
        try:
            priced.append(step_of(request, one, other))
        except InputError:  # experts that do not lie evenly, or no room to move
            continue
    if not priced:
        raise InfeasibleError("no pair of layouts has room for what moves between them: give more devices")
    best = min(priced, key=lambda step: step.time_s)
    bound_s = least_s * (1 + SCORES * FORWARD) + rollouts[0].generation_s
    return Joint(best, priced[0], max(0.0, best.time_s / bound_s - 1), len(priced))


def alone_s(training: Training) -> float:
    """Seconds of the update and of the scores."""
    return training.update_s * (1 + SCORES * FORWARD)


def rollouts_of(request: Request, samples: int) -> Iterator[Rollout]:
    """Every strategy, on as many instances as there are devices for: samples in waves that the cache holds, each one taken in and
    generated to its end.
    """
    for one in strategies(request.config, request.device_num, degrees_of(request.fixed.get("decode", {}))):
        first, steps = prefill(request, one), decode(request, one)
        count = request.device_num // one.device_num
        if first is None or steps is None:
            continue
        prompts_s = first.stage_s / first.requests
        room = most_requests(request, one, int(first.tokens[prompts_s.argmin()]))
        if not room:
            continue
        share = math.ceil(samples / (count * one.dp * one.pp))
        waves = math.ceil(share / room)
        each = math.ceil(share / waves)
        taken_s = each * one.pp * float(prompts_s.min())
        time_s = waves * (taken_s + request.tokens.output * float(steps.pass_s[each - 1]))
        yield Rollout(one, count, each * one.pp, waves, time_s)


def step_of(request: Request, training: Training, rollout: Rollout) -> Step:
    """Both with the way between them. Errors: those of `reshard`, and of `side_of_instances`."""
    config, cluster = request.config, request.cluster
    there, back = _moves(config, cluster, request.limit_B, training.strategy, rollout.strategy, rollout.count)
    swap_s = 2 * float(local_time_s(cluster, SWAP, float(training.states_B))) if cluster.host is not None else 0.0
    scores_s = training.update_s * SCORES * FORWARD
    return Step(training, rollout, scores_s, (there.time_s, back.time_s), swap_s, int(there.received_B().max()))


def _moves(
    config: TransformerConfig, cluster: Cluster, limit_B: int, one: Strategy, other: Strategy, count: int
) -> tuple[resharding.Resharding, resharding.Resharding]:
    """Of the weights in 16 bit, to `count` instances and back."""
    source, target = _side(config, cluster, one, 1), _side(config, cluster, other, count)
    asked = resharding.Request(cluster, limit_B)
    return resharding.reshard(source, target, asked), resharding.reshard(target, source, asked)


def _side(config: TransformerConfig, cluster: Cluster, one: Strategy, count: int) -> Side:
    return side_of_instances(Served(config, one, 1, cluster.name), "bfloat16", count)


def training_of(layout: UniformLayout, update_s: float, states_B: int) -> Training:
    """Of a layout without context parallelism, of which rollout knows nothing."""
    of = layout.degrees
    assert of.context_parallel == 1
    expert = of.expert_parallel or 1
    return Training(
        Strategy(layout.stages.number, of.data_parallel, of.model_parallel, expert, of.model_parallel),
        update_s,
        states_B,
    )


def without_slower(trainings: Sequence[Training]) -> tuple[Training, ...]:
    """Of every strategy the fastest."""
    best: dict[Strategy, Training] = {}
    for one in trainings:
        known = best.get(one.strategy)
        if known is None or one.update_s < known.update_s:
            best[one.strategy] = one
    return tuple(best.values())
