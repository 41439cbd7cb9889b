"""Training and rollout plans chosen together for a step of reinforcement learning.

A step generates an answer to every prompt, scores all samples without gradients, and trains on them, on the same devices. The
weights are resharded before and after. Optimizer states wait on the host, where the cluster says what it has. Uniform layouts of
training and every strategy of rollout are paired in the order of their times without the way between, until no pair can be faster
than the best. A pair of what the uniform search priced on its way bounds the training of a better one: layouts below that are
priced too, those of the lowest bounds first, as long as `WORK` and `PAIRS` last. The gap is to the lowest bound that is left, and
to `Prices.rough` where that is all that is known of a layout.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.move import SWAP, local_time_s
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.stage_program import StageProgram, partition_stages
from ms_symtensor.reshard import reshard as resharding
from ms_symtensor.reshard.reshard import Resharding, reshard
from ms_symtensor.reshard.slices import Side, in_type, side_of
from ms_symtensor.search.constraints.request import Request as PlanRequest
from ms_symtensor.serving.deployment import Instance, degrees_of, instance_of
from ms_symtensor.serving.phases import decode, first_token_s, most_requests, prefill
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.sides import Served, side_of_instances
from ms_symtensor.serving.strategy import Strategy, strategies
from ms_symtensor.uniform.fitting import Found
from ms_symtensor.uniform.layout import NO_RECOMPUTATION, UniformLayout
from ms_symtensor.uniform.plan import uniform_plan
from ms_symtensor.uniform.request import of_micro_batch
from ms_symtensor.uniform.search import fast_layouts

FORWARD = 1 / 3
"""Of a training step: a forward pass, as the backward one has twice its products."""
TYPE = "bfloat16"
"""In which weights move; those of 32 bit stay where the optimizer's states are."""
WORK = 3000
"""Programs of training that are priced (`Prices.work`); empirical: some 20 to 40 s."""
PAIRS, FEW = 1 << 18, 2
"""Pairs whose ways are priced, each time: so many over the square of the devices, but a few; empirical: some seconds."""
SCORES = 2
"""Passes without gradients over all samples: by the policy and by the reference model (GRPO, arXiv 2402.03300)."""


@dataclass(frozen=True)
class Training:
    """A layout of training, and its seconds for all samples; `swap_s` of optimizer states to the host and back."""

    layout: UniformLayout
    update_s: float
    swap_s: float

    @property
    def strategy(self) -> Strategy:
        """Its degrees, those without context parallelism, of which rollout knows nothing."""
        of = self.layout.degrees
        tensor, expert = of.model_parallel, of.expert_parallel or 1
        return Strategy(self.layout.stages.number, of.data_parallel, tensor, expert, tensor)


@dataclass(frozen=True)
class Rollout:
    """`instance`, so often as it says, generates all samples in `generation_s`, in `waves`; `ttft_s`: to a first token."""

    strategy: Strategy
    waves: int
    generation_s: float
    instance: Instance = field(compare=False)
    ttft_s: float = field(compare=False)


@dataclass(frozen=True)
class Step:
    """Seconds of a step: `reshard_s` to the rollout and back."""

    training: Training
    rollout: Rollout
    scores_s: float
    reshard_s: tuple[float, float]
    received_B: int

    @property
    def time_s(self) -> float:
        return math.fsum(
            (self.training.update_s, self.scores_s, self.rollout.generation_s, *self.reshard_s, self.training.swap_s)
        )


@dataclass(frozen=True)
class Joint:
    """The fastest `step`, `first` the pair of what is fastest by itself, how many `pairs` were priced, and the seconds that no
    other step takes less than.
    """

    step: Step
    first: Step
    pairs: int
    bound_s: float

    @property
    def gap(self) -> float:
        """By how much another step may be faster, at most: a share of that one's time."""
        return max(0.0, self.step.time_s / self.bound_s - 1)


def joint(request: Request, samples: int, trained: TransformerConfig, asked: PlanRequest) -> Joint:
    """The fastest pair for the network `trained`, whose batch is that of a step.

    Errors: those of `fast_layouts` and of `best_pair`; InfeasibleError where no instance has room for a request.
    """
    rollouts = sorted(rollouts_of(request, samples), key=lambda one: (one.generation_s, one.strategy))
    if not rollouts:
        raise InfeasibleError(
            f"{request.config.name} does not generate on {request.device_num} devices: the cache of a request does not fit"
        )
    priced = cache(partial(step_of, request, cache(partial(side_of_training, trained))))
    most = max(FEW, PAIRS // request.device_num**2)

    def cutoff_s(fits: Sequence[Found]) -> float:
        try:
            best = best_pair(trainings_of(fits, request.cluster), rollouts, priced, most).step
        except InfeasibleError:
            return math.inf
        return (best.time_s - rollouts[0].generation_s) / (1 + SCORES * FORWARD)

    fits, least_s = fast_layouts(trained, asked, cutoff_s, work=WORK)
    found = best_pair(trainings_of(fits, request.cluster), rollouts, priced, most)
    others_s = least_s * (1 + SCORES * FORWARD) + rollouts[0].generation_s
    return replace(found, bound_s=min(found.bound_s, others_s))


def best_pair(
    trainings: Sequence[Training],
    rollouts: Sequence[Rollout],
    priced: Callable[[Training, Rollout], Step],
    most: float = math.inf,
) -> Joint:
    """The fastest of all pairs, as `priced`, `most` of them. Errors: InfeasibleError where no pair has room for what moves."""
    pairs = sorted(
        ((alone_s(one) + one.swap_s + other.generation_s, one, other) for one in trainings for other in rollouts),
        key=lambda pair: (pair[0], pair[1].strategy, pair[2].strategy),
    )
    steps: list[Step] = []
    least_s = math.inf
    for bound_s, one, other in pairs:
        best_s = min((step.time_s for step in steps), default=math.inf)
        if bound_s >= best_s or len(steps) >= most:
            least_s = bound_s
            break
        try:
            steps.append(priced(one, other))
        except InputError:  # experts that do not lie evenly, or no room to move
            continue
    if not steps:
        raise InfeasibleError("no pair of layouts has room for what moves between them: give more devices")
    best = min(steps, key=lambda step: step.time_s)
    return Joint(best, steps[0], len(steps), min(best.time_s, least_s))


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
        taken_s, step_s = each * one.pp * float(prompts_s.min()), float(steps.pass_s[each - 1])
        time_s = waves * (taken_s + request.tokens.output * step_s)
        instance = instance_of(request, "mixed", count, steps, each - 1, samples / time_s / count, step_s)
        n = int(prompts_s.argmin())
        instance = replace(instance, tokens=int(first.tokens[n]))
        yield Rollout(one, waves, time_s, instance, float(first_token_s(request, first)[n]))


def step_of(request: Request, side: Callable[[UniformLayout], Side], training: Training, rollout: Rollout) -> Step:
    """Both with the way between them; `side` tells how the weights of a layout lie. Errors: those of `moves`."""
    there, back = moves(request, side(training.layout), rollout)
    scores_s = training.update_s * SCORES * FORWARD
    return Step(training, rollout, scores_s, (there.time_s, back.time_s), int(there.received_B().max()))


def moves(request: Request, training: Side, rollout: Rollout) -> tuple[Resharding, Resharding]:
    """The weights in 16 bit to the instances of `rollout`, and back; what these have not (a second token's head) waits where
    the optimizer's states do. Errors: those of `reshard`, and of `side_of_instances`.
    """
    served = Served(request.config, rollout.strategy, 1, request.cluster.name)
    other = side_of_instances(served, TYPE, rollout.instance.count)
    wanted = resharding.Request(request.cluster, request.limit_B)
    moved = {held.name for held in other.tensors}
    of_both = replace(training, tensors=tuple(held for held in training.tensors if held.name in moved))
    return reshard(of_both, other, wanted), reshard(other, of_both, wanted)


def _as_weights_lie(layout: UniformLayout) -> UniformLayout:
    """What of `layout` says how its weights lie."""
    return replace(layout, stages=replace(layout.stages, micro_batch_num=1), recompute=NO_RECOMPUTATION)


def side_of_training(trained: TransformerConfig, layout: UniformLayout) -> Side:
    """How the weights of `layout` lie between two steps, as its products read them. Errors: those of `uniform_plan`."""
    found = uniform_plan(of_micro_batch(trained, layout), layout)
    if found.pipeline is None:
        return in_training([partition(found.graph, found.stages[0])])
    return in_training(partition_stages(found.graph, found.stages, found.pipeline))


def in_training(programs: Sequence[Program] | Sequence[StageProgram]) -> Side:
    """The weights in 16 bit as a plan's `programs` hold them."""
    return in_type(side_of(programs, has_states=False), TYPE)


def trainings_of(fits: Sequence[Found], cluster: Cluster) -> tuple[Training, ...]:
    """Of all layouts whose weights lie alike the fastest. Optimizer states stay where the cluster does not name its hosts."""
    best: dict[UniformLayout, Training] = {}
    for layout, price in sorted(fits, key=lambda found: found[1].step_time_s):
        states_B = float(price.fullest_B["optimizer_states"])
        swap_s = 2 * float(local_time_s(cluster, SWAP, states_B)) if cluster.host is not None else 0.0
        one = Training(layout, price.step_time_s, swap_s)
        best.setdefault(_as_weights_lie(layout), one)
    return tuple(best.values())
