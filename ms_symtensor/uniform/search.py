"""The fastest uniform layout: every one that the pins allow is bounded from below, and the promising ones are priced.

Of a layout of P stages with v virtual ones each and M micro-batches, `cost.stage_time` makes a step of at least

    M s / P + (s - s / P) / v

where s are the seconds of a micro-batch in the whole network on one stage, which one program tells for all P, v and M; and some
stage holds a P-th of weights, gradients and states, or more. Layouts whose share fits are priced in the order of these bounds,
by few blocks (`folded_bill`), until the next bound is above the fastest one that fits. A layout that recomputes nothing is no
slower than those that recompute; recomputation is added until what a stage keeps fits: the cores of attention, whole blocks in
eighths of a stage, all of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.plan_price import PlanPrice, each_s, priced
from ms_symtensor.errors import InfeasibleError, InputError, SymTensorError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.asked.limits import SWAP, Limits
from ms_symtensor.search.asked.request import GIB, Request
from ms_symtensor.strategy.plan import Plan, SearchReport
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.estimate import estimate
from ms_symtensor.uniform.folded import folded_bill
from ms_symtensor.uniform.layout import (
    ALL,
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    Degrees,
    Recomputation,
    Stages,
    UniformLayout,
)
from ms_symtensor.uniform.request import of_micro_batch, pinned_layout, recomputation

METHOD = "uniform layouts, every one within the pins bounded or priced"

TENSOR_RANKS = 64
"""No published configuration cuts layers over more tensor-parallel ranks (empirical)."""

HALVINGS = 3
"""Recomputed blocks are tried in halves, quarters and eighths of a stage's blocks (empirical)."""


@dataclass
class _Prices:
    """Prices of layouts of one network for one request."""

    config: TransformerConfig
    request: Request
    number: int = 0
    _whole: dict[tuple, tuple[float, int]] = field(default_factory=dict)

    def least(self, layout: UniformLayout) -> tuple[float, float]:
        """Seconds that no step of `layout` is faster than, and bytes that some device needs at least, whatever is recomputed."""
        config, stages = of_micro_batch(self.config, layout), layout.stages
        if stages.number == stages.micro_batch_num == 1:
            return self.of(layout).step_time_s, 0
        level = min(layout.optimizer_level, OptimizerLevel.LEVEL1)
        key = config.batch_size, layout.degrees, layout.optimizer_level
        if key not in self._whole:
            # of two micro-batches, so that what is done once stands apart
            one = replace(layout, stages=Stages(1, 2), optimizer_level=level)
            bill = folded_bill(config, one, self.request.runtime.fuses)
            memory = priced(bill, self.request.cluster, self.request.runtime).fullest_B
            kept = ("parameters", "optimizer_states", *(("gradients",) if level == layout.optimizer_level else ()))
            at_rest_B = sum(memory[name] for name in kept)
            self._whole[key] = each_s(bill, self.request.cluster, self.request.runtime), at_rest_B
        (whole_s, at_rest_B), number = self._whole[key], stages.number
        least_s = stages.micro_batch_num * whole_s / number + (whole_s - whole_s / number) / stages.interleave
        return least_s, at_rest_B / number

    def of(self, layout: UniformLayout) -> PlanPrice:
        self.number += 1
        bill = folded_bill(of_micro_batch(self.config, layout), layout, self.request.runtime.fuses)
        return priced(bill, self.request.cluster, self.request.runtime)


def uniform_best(
    config: TransformerConfig | None, request: Request, progress: Callable[[str], None] = lambda _: None
) -> tuple[Plan, Graph]:
    """The fastest uniform layout of the network `config` that `request` allows and that fits, and the graph it is for.

    Raises:
        InputError: for a network that is not of the zoo, and for pins that no layout meets.
        InfeasibleError: if no layout fits; it names the one that needs least.
    """
    if config is None:
        raise InputError(
            f"{request.model} is no network of the zoo: uniform layouts know these only; leave --layouts out"
        )
    prices = _Prices(config, request)
    bounded: list[tuple[float, UniformLayout]] = []
    reason = ""
    best: UniformLayout | None = None
    best_s = least_s = least_B = math.inf
    progress("uniform layouts")
    for layout in _space(config, request):
        try:
            bound_s, bound_B = prices.least(layout)
        except SymTensorError as error:
            reason = reason or str(error)
            continue
        if bound_B <= request.limit_B:
            bounded.append((bound_s, layout))
        else:
            least_B = min(least_B, bound_B)
    for bound_s, layout in sorted(bounded, key=lambda one: one[0]):
        if bound_s >= best_s:
            break
        try:
            every = list(_recomputing(config, layout, request.limits))
            plain = prices.of(every[0])
        except SymTensorError as error:
            reason = reason or str(error)
            continue
        least_s = min(least_s, plain.step_time_s)
        for again, price in _until_fits(prices, every, plain, best_s):
            least_B = min(least_B, price.peak_memory_B)
            if price.peak_memory_B <= request.limit_B and price.step_time_s < best_s:
                best, best_s = again, price.step_time_s
    if math.isinf(least_s) and math.isinf(least_B):
        raise InputError(f"no uniform layout on {request.device_num} devices: {reason or 'the pins leave none'}")
    if best is None:
        raise InfeasibleError(
            f"no uniform layout fits {request.limit_B / GIB:.1f} GiB on {request.device_num} devices: the one that needs least"
            f" needs {least_B / GIB:.1f} GiB at least; give more devices, a smaller batch, or --fix swap_optimizer=yes"
        )
    plan, graph = estimate(config, best, request)
    gap = max(0.0, best_s / min(least_s, best_s) - 1.0)
    return replace(plan, search=SearchReport(prices.number, 0.0, gap, METHOD)), graph


def _until_fits(
    prices: _Prices, every: Sequence[UniformLayout], plain: PlanPrice, best_s: float
) -> Iterator[tuple[UniformLayout, PlanPrice]]:
    """The layouts of `every`, each of which recomputes more, and their prices: up to the first that fits, none that is too slow.

    `plain`: the price of the first; the last one comes next, since nothing fits where that does not.
    """
    limit_B = prices.request.limit_B
    yield every[0], plain
    if plain.peak_memory_B <= limit_B or plain.step_time_s >= best_s or len(every) == 1:
        return
    most = prices.of(every[-1])
    yield every[-1], most
    if most.peak_memory_B > limit_B:
        return
    for layout in every[1:-1]:
        price = prices.of(layout)
        yield layout, price
        if price.peak_memory_B <= limit_B or price.step_time_s >= best_s:
            return


def _recomputing(config: TransformerConfig, layout: UniformLayout, limits: Limits) -> Iterator[UniformLayout]:
    """`layout` with more and more recomputed; as pinned, if it is."""
    if limits.selects or "recompute" in limits.least or "recompute" in limits.most:
        yield replace(layout, recompute=recomputation(limits, config.num_layers, layout.stages.number))
        return
    yield replace(layout, recompute=NO_RECOMPUTATION)
    yield replace(layout, recompute=SELECTIVE_RECOMPUTATION)
    held = max(layout.stages.of(config.num_layers))
    for share in sorted({max(1, held * n // (1 << HALVINGS)) for n in range(1, 1 << HALVINGS)} - {held}):
        yield replace(layout, recompute=Recomputation(blocks=(share,)))
    yield replace(layout, recompute=Recomputation(blocks=(ALL,)))


def _space(config: TransformerConfig, request: Request) -> Iterator[UniformLayout]:
    """The layouts that the pins and bounds allow, nothing recomputed."""
    limits, devices, batch = request.limits, request.device_num, config.batch_size
    if limits.operators:
        pinned_layout(config, limits, devices)  # says why not
    for stages, tensor, context in product(_divisors(devices), _divisors(devices), _divisors(devices)):
        inner = stages * tensor * context
        if devices % inner or stages > config.num_layers or tensor > TENSOR_RANKS:
            continue
        data = devices // inner
        wanted = {
            "pipeline_stages": stages, "model_parallel": tensor, "context_parallel": context, "data_parallel": data,
        }  # fmt: skip
        if batch % data or not all(limits.allows(name, number) for name, number in wanted.items()):
            continue
        if context > 1 and (config.experts is not None or (data < batch and "context_parallel" not in limits.least)):
            continue
        levels = _choices(limits, "optimizer_level", int(data > 1))
        sequences = _choices(limits, "sequence_parallel", int(tensor > 1))
        for micro_batches, interleave, sequence, level, expert in product(
            _divisors(batch // data), limits.interleaves, sequences, levels, _experts(config, data * tensor)
        ):
            if micro_batches < stages or stages * interleave > config.num_layers:
                continue
            if interleave > 1 and (stages == 1 or micro_batches % stages) and not limits.pins("pp_interleave_num"):
                continue
            chosen = {
                "micro_batch_num": micro_batches, "pp_interleave_num": interleave, "expert_parallel": expert or 1,
            }  # fmt: skip
            if not all(limits.allows(name, number) for name, number in chosen.items()):
                continue
            yield UniformLayout(
                Degrees(data, tensor, bool(sequence), context, expert),
                Stages(stages, micro_batches, interleave),
                optimizer_level=OptimizerLevel(level),
                swap_optimizer=bool(limits.least.get(SWAP, 0)),
            )


def _choices(limits: Limits, name: str, usual: int) -> tuple[int, ...]:
    """The values of `name` to try: that which is pinned, or the usual one, where it is allowed."""
    if limits.pins(name):
        return (limits.least[name],)
    return (usual,) if limits.allows(name, usual) else ()


def _experts(config: TransformerConfig, most: int) -> tuple[int, ...]:
    if config.experts is None:
        return (0,)
    return tuple(n for n in _divisors(config.experts.number) if most % n == 0)


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, number + 1) if number % n == 0)
