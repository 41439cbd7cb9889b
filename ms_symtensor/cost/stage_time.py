"""The time of a step from the bills of its stages: what is exposed of communication, how stages wait for each other.

A pass of one micro-batch through stage i takes forward_i or backward_i seconds. Communication that the run-time hides runs beside
the computation of its pass; of t seconds under a window of w the step sees

    exposed = max(0, t - w),   and the computation takes slowdown * min(t, w) longer.

M micro-batches, v virtual stages (model chunks) of each of P stages, s_i = forward_i + backward_i (1F1B, interleaved where v > 1;
Narayanan et al. 2021, section 2.2):

    T_pipeline = M max_i s_i + (sum_i s_i - max_i s_i) / v

Stage i waits for its first micro-batch until those before it have passed it forward, and is done with the last one sum_{j<i}
backward_j / v before the first stage is. What it does once per step (start_i: casts and gathers of weights; end_i: sums of
gradients, updates) runs meanwhile:

    T = max_i (start_i - sum_{j<i} forward_j / v) + T_pipeline + max_i (end_i - sum_{j<i} backward_j / v)
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Bill, Key, Message, Part, Product, Work, Written, bill_of, launches_of, work_s
from ms_symtensor.cost.move import SWAP, local_time_s
from ms_symtensor.cost.parameter import kernels_B, parameter_cost, swapped_B
from ms_symtensor.cost.runtime import DEFAULT, Hiding, Runtime, load
from ms_symtensor.program.meanings import meanings
from ms_symtensor.program.program import ParameterPlacement, Phase
from ms_symtensor.program.settings import OptimizerLevel, Settings, StagePlan
from ms_symtensor.program.stage_program import StageProgram
from ms_symtensor.tensor.dtype import size_B

PASSES = ("forward", "backward", "start", "end")
"""Forward and backward are those of every micro-batch; start and end are once per step."""


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of a stage.

    Attributes:
        forward_s, backward_s: of one micro-batch.
        start_s, end_s: once per step, before the first micro-batch and behind the last one.
        spent_s: the same seconds by pass and by what they are spent on (`cost.step.TIMES`, and "overhead": waiting for the host).
        hidden_s: by pass and part of communication, what runs beside computation and is not among those.
        experts_s: by pass and by EXPERTS, what the experts take of all that, hidden or not.
    """

    forward_s: float
    backward_s: float
    start_s: float
    end_s: float
    spent_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    hidden_s: Mapping[tuple[str, Part], float] = field(default_factory=dict)
    experts_s: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def each_s(self) -> float:
        """Of one micro-batch, forward and backward."""
        return self.forward_s + self.backward_s

    @property
    def once_s(self) -> float:
        return self.start_s + self.end_s


def pass_of(key: Key) -> str:
    """The pass that an item belongs to."""
    if key.once:
        return "start" if key.phase is Phase.FORWARD else "end"
    return "forward" if key.phase is Phase.FORWARD else "backward"


KINDS: Mapping[Part, str] = {
    **dict.fromkeys(Part, "communication"),
    Part.COMPUTE: "compute",
    Part.GRADIENTS: "synchronisation",
}
"""What people see of a part (`cost.step.TIMES`)."""


EXPERTS = ("dispatch", "permutation", "products", "imbalance")
"""What experts take time for: tokens sent to them and back, tokens put in their order, their products, and, of these, what they
do for places beyond an even share of the tokens.
"""


def expert_seconds(bill: Bill, seconds_of: Callable[[Work], float]) -> dict[tuple[str, str], float]:
    """By pass and EXPERTS; nothing where there are none."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    room = 1.0
    for key, works in bill.items.items():
        name = "dispatch" if key.part is Part.EXPERT else key.label.removeprefix("experts: ")
        if name not in EXPERTS or key.part not in (Part.EXPERT, Part.COMPUTE):
            continue
        for work, count in works.items():
            found[pass_of(key), name] += count * seconds_of(work)
            if isinstance(work, Product) and work.op.type == "TopKRouter":
                (_, tokens, chosen), (_, experts, places) = work.op.inputs[0].shape, work.op.outputs[0].shape
                room = max(room, experts * (places + 1) / (tokens * chosen))  # the first place stays empty
    for place, _ in [key for key in found if key[1] == "products"]:
        found[place, "imbalance"] = (1 - 1 / room) * found[place, "products"]
    return dict(found)


MERGED = (Part.GRADIENTS, Part.WEIGHTS)
"""What a run-time merges into messages of `Runtime.bucket_B` bytes, or of a block each."""


def _passes_of(key: Key, runtime: Runtime) -> tuple[str, ...]:
    """The passes that run an item. Where weights are sharded wholly (ZeRO-3), every micro-batch gathers them, in either pass, and
    scatters its gradients.
    """
    wholly = runtime.stores is not None and runtime.stores.level is OptimizerLevel.LEVEL3
    if key.once and wholly and key.part in MERGED:
        return ("forward", "backward") if key.part is Part.WEIGHTS else ("backward",)
    return (pass_of(key),)


@dataclass(frozen=True)
class _Needed:
    """What the passes of a stage need: seconds by part, those of them that are recomputed, and launches by a host."""

    seconds: dict[tuple[str, Part], float] = field(default_factory=lambda: defaultdict(float))
    recomputed_s: dict[tuple[str, Part], float] = field(default_factory=lambda: defaultdict(float))
    launches: Counter[str] = field(default_factory=Counter)


def _needed(bill: Bill, runtime: Runtime, seconds_of: Callable[[Work], float]) -> _Needed:
    """Messages of MERGED parts are those that the run-time makes of them."""
    found = _Needed()
    merged = MERGED if runtime.bucket_B or runtime.merges_blocks else ()
    apart: dict[tuple[str, Part, str, tuple[int, ...]], list[tuple[int, int]]] = {}  # bytes, and how often
    for key, place in [(each, place) for each in bill.items for place in _passes_of(each, runtime)]:
        for work, count in bill.items[key].items():
            if key.part in merged and isinstance(work, Message):
                apart.setdefault((place, key.part, work.kind, work.ranks), []).append((work.size_B, count))
                continue
            found.seconds[place, key.part] += count * seconds_of(work)
            if key.phase is Phase.RECOMPUTE:
                found.recomputed_s[place, key.part] += count * seconds_of(work)
            found.launches[place] += count * launches_of(work)
    for (place, part, kind, ranks), sizes in apart.items():
        whole_B = sum(size_B * count for size_B, count in sizes)
        wanted = bill.units if runtime.merges_blocks else max(1, math.ceil(whole_B / runtime.bucket_B))
        number = min(sum(count for _, count in sizes), wanted)
        found.seconds[place, part] += number * seconds_of(Message(kind, ranks, whole_B // number))
        found.launches[place] += number
    return found


def seconds_of_bill(
    bill: Bill, update_s: float, cluster: Cluster, runtime: Runtime, seconds_of: Callable[[Work], float] | None = None
) -> StageSeconds:
    """What a stage spends whose passes `bill` lists; `update_s`: the optimizer's; `seconds_of`: `work_s` on `cluster`, where some
    of it is known already.
    """
    of = seconds_of or (lambda work: work_s(work, cluster))
    needed = _needed(bill, runtime, of)
    spent: dict[tuple[str, str], float] = defaultdict(float, {("end", "optimizer"): update_s})
    hidden: dict[tuple[str, Part], float] = {}
    # What runs once hides beside the computation of one micro-batch.
    free = {place: needed.seconds.get((place, Part.COMPUTE), 0.0) for place in ("forward", "backward")}
    in_order = sorted(needed.seconds.items(), key=lambda item: (PASSES.index(item[0][0]), item[0][1].value))
    for (place, part), seconds in in_order:
        hiding = None if part is Part.COMPUTE else runtime.hides.get(part)
        if hiding is not None:
            beside = {"start": "forward", "end": "backward"}.get(place, place)
            hidable_s = _hidable_s(hiding, beside, seconds, needed.recomputed_s.get((place, part), 0.0))
            gone = min(hiding.share * hidable_s, hiding.window * free[beside])
            if gone > 0:
                free[beside] -= gone
                hidden[place, part] = gone
                spent[place, "compute"] += hiding.slowdown * gone
                seconds -= gone
        spent[place, KINDS[part]] += seconds
    if runtime.is_eager:
        for place, number in needed.launches.items():
            busy = math.fsum(s for (where, _), s in spent.items() if where == place)
            beside_s = 0.0 if runtime.is_blocking else busy
            spent[place, "overhead"] += max(0.0, number * cluster.device.host_overhead_s - beside_s)
    forward_s, backward_s, start_s, end_s = (
        math.fsum(s for (where, _), s in spent.items() if where == place) for place in PASSES
    )
    return StageSeconds(forward_s, backward_s, start_s, end_s, dict(spent), hidden, expert_seconds(bill, of))


def _hidable_s(hiding: Hiding, beside: str, seconds: float, recomputed_s: float) -> float:
    """What `hiding` concerns of so many seconds of communication, some of them recomputed."""
    if beside not in hiding.passes:
        return recomputed_s if "recompute" in hiding.passes else 0.0
    return seconds


def update_s(
    parameters: Iterable[tuple[ParameterPlacement, int]],
    settings: Settings,
    cluster: Cluster,
    kernels: tuple[str, ...] = (),
) -> float:
    """Seconds of the optimizer's update of the parameters that this stage owns, each so many times; `kernels`: those of a
    run-time that has no single one (`Runtime.updates`).
    """
    owned = ((one, count) for one, count in parameters if one.owner is None)
    if not kernels:
        return math.fsum(count * parameter_cost(cluster, one, settings, one.dtype).update_s for one, count in owned)
    alike: Counter[tuple[int, int]] = Counter()  # elements, and bytes that they are stored in
    for one, count in owned:
        if one.requires_grad:
            alike[math.prod(one.slice_shape), size_B(one.dtype)] += count
    found = []
    for (share, stored), count in alike.items():
        for element_B, number in kernels_B(kernels, stored, stored).items():
            found.append(count * number * local_time_s(cluster, "Mul", share * element_B))
        if settings.swap_optimizer:
            found.append(count * local_time_s(cluster, SWAP, swapped_B(share)))
    return math.fsum(found)


def stage_seconds(program: StageProgram, plan: StagePlan, cluster: Cluster) -> StageSeconds:
    """What a rank of `program`, a stage of `plan`, spends where nothing is told of the run-time. Errors: as of `price`."""
    runtime = load(DEFAULT)
    owned = ((one, 1) for one in program.parameters.values())
    bill = bill_of(Written.of(program.graph, plan, program, meanings(program.graph), runtime.fuses))
    return seconds_of_bill(bill, update_s(owned, plan.settings, cluster, runtime.updates), cluster, runtime)


def pipelined_step_s(stages: Sequence[StageSeconds], micro_batch_num: int, interleave: int = 1) -> float:
    """The step of `stages`, first to last, of so many virtual stages each."""
    each = [stage.each_s for stage in stages]
    pace_s = max(each)
    pipeline_s = micro_batch_num * pace_s + (math.fsum(each) - pace_s) / interleave

    def outside(once: Callable[[StageSeconds], float], passed: Callable[[StageSeconds], float]) -> float:
        """What is left of `once` when the stages before have passed a micro-batch."""
        gone = accumulate((passed(stage) / interleave for stage in stages), initial=0.0)
        return max(once(stage) - before for stage, before in zip(stages, gone, strict=False))

    start_s = outside(lambda stage: stage.start_s, lambda stage: stage.forward_s)
    end_s = outside(lambda stage: stage.end_s, lambda stage: stage.backward_s)
    return start_s + pipeline_s + end_s
