"""The fastest uniform layout: every one that the pins and rules allow is bounded from below, and the promising ones are priced.

Of a layout of P stages with v virtual ones each and M micro-batches, `cost.stage_time` makes a step of at least

    M s / P + (s - s / P) / v

where s are the seconds of a micro-batch in the whole network on one stage, which one program tells for all P, v and M, however
the blocks lie on the stages; and some stage holds a P-th of weights, gradients and states, or more. Layouts are looked at in the
order of a guess: their bound, and what has to be recomputed until they fit. It is made of one program for all micro-batches first
(`Prices.rough`), then, of those that fit with one sample a replica and all blocks recomputed (`least_peaks_B`), of one for this
one (`Prices.least`); then they are priced by few blocks (`folded_bill`), with as little recomputed as fits (`uniform.fitting`),
until the next guess is above the fastest one that fits, or many in a row were no faster. The stages of the fastest then exchange
blocks (`uniform.moving`). The gap is to the lowest bound of what may fit, without the guess.
"""

import heapq
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InfeasibleError, InputError, SymTensorError
from ms_symtensor.garbage_collection import no_garbage_collection
from ms_symtensor.search.constraints.limits import SWAP
from ms_symtensor.search.constraints.obstacle import why_not_on_host
from ms_symtensor.search.constraints.request import GIB, Request
from ms_symtensor.strategy.plan import Plan, SearchReport
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.estimate import estimate
from ms_symtensor.uniform.fitting import Found, fitted, least_peaks_B
from ms_symtensor.uniform.layout import UniformLayout
from ms_symtensor.uniform.moving import moved
from ms_symtensor.uniform.prices import Prices
from ms_symtensor.uniform.rules import ANY, Rules
from ms_symtensor.uniform.space import Refused, layouts, levels_of

METHOD = "uniform layouts within the pins, each bounded, the promising ones priced"

PATIENCE = 8
"""Looking ends when so many layouts in a row, each priced with what it has to recompute, were no faster; empirical."""

KEPT = 3
"""The stages of so many of the fastest layouts exchange blocks; empirical."""


@dataclass
class _Looked:
    """What was found so far: layouts that fit, the lowest bound of one that is not settled, and the least bytes of one."""

    fits: list[Found] = field(default_factory=list)
    least_s: float = math.inf
    least_B: float = math.inf

    @property
    def best_s(self) -> float:
        return min((price.step_time_s for _, price in self.fits), default=math.inf)


def uniform_best(
    config: TransformerConfig | None,
    request: Request,
    progress: Callable[[str], None] = lambda _: None,
    rules: Rules = ANY,
) -> tuple[Plan, Graph, UniformLayout]:
    """The plan of `best_layout`, the graph it is for, and the layout. Errors: those of `best_layout`."""
    if config is None:
        raise none_of(request.model)
    layout, search = best_layout(config, request, progress, rules)
    plan, graph = estimate(config, layout, request)
    if why := why_not_on_host(request.cluster, plan.prediction.host_memory_B):
        raise InfeasibleError(why)
    return replace(plan, search=search), graph, layout


def none_of(model: str) -> InputError:
    """That the network called `model` has no uniform layouts."""
    return InputError(
        f"{model} has no uniform layouts: these are for decoders of the zoo and of a config.json; leave --layouts and"
        " --target out"
    )


@no_garbage_collection()
def best_layout(
    config: TransformerConfig,
    request: Request,
    progress: Callable[[str], None] = lambda _: None,
    rules: Rules = ANY,
) -> tuple[UniformLayout, SearchReport]:
    """The fastest uniform layout of `config`, whose batch is that of a step, that `request` and `rules` allow and that fits.

    Raises:
        InputError: for pins that no layout meets.
        InfeasibleError: if no layout fits; it names the one that needs least.
    """
    prices, started = _prices(config, request, rules), time.perf_counter()
    progress("uniform layouts")
    looked = _fitting(prices, rules)
    progress("blocks of stages")
    layout, price = _best(prices, looked.fits, rules)
    gap = max(0.0, price.step_time_s / min(looked.least_s, price.step_time_s) - 1.0)
    return layout, SearchReport(prices.number, time.perf_counter() - started, gap, METHOD)


@no_garbage_collection()
def fast_layouts(
    config: TransformerConfig,
    request: Request,
    cutoff_s: Callable[[list[Found]], float],
    rules: Rules = ANY,
    work: float = math.inf,
) -> tuple[list[Found], float]:
    """The layouts that `best_layout` prices on its way and that fit, and others that fit and take less than what `cutoff_s` says
    of those, each with as little recomputed as fits: all that so much `work` (`Prices.work`) is enough for, half of it for the
    first ones. Also the seconds that no other takes less than, of all that were left out. Errors: those of `best_layout`.
    """
    prices = _prices(config, request, rules)
    found = _fitting(prices, rules, work / 2).fits
    limit_s, too_large, order = cutoff_s(found), set[UniformLayout](), count()
    waiting: list[tuple[float, int, bool, UniformLayout]] = []  # bound, order, is the bound rough, layout
    for layout in layouts(config, request, rules, Refused()):
        with suppress(SymTensorError):
            least_s, _, least_B = prices.rough(layout)
            if least_B <= request.limit_B:
                waiting.append((least_s, next(order), True, layout))
    heapq.heapify(waiting)
    while waiting and waiting[0][0] < limit_s and prices.work < work:
        least_s, _, is_rough, layout = heapq.heappop(waiting)
        if (alike := _with_one_micro_batch(layout)) in too_large:
            continue
        with suppress(SymTensorError):
            if not is_rough:
                priced = fitted(prices, layout, rules, limit_s, estimates=False)
                found += [one for one in priced if one[1].peak_memory_B <= request.limit_B]
            elif max(_least_peaks_B(prices, layout, rules), default=0) > request.limit_B:
                too_large.add(alike)
            else:
                heapq.heappush(waiting, (max(least_s, prices.least(layout)[0]), next(order), False, layout))
    return found, waiting[0][0] if waiting else math.inf


def _prices(config: TransformerConfig, request: Request, rules: Rules) -> Prices:
    return Prices(config, request, lambda layout: levels_of(config, request.limits, rules, layout)[-1])


def _fitting(prices: Prices, rules: Rules, work: float = math.inf) -> _Looked:
    """Errors: those of `best_layout`."""
    request, refused = prices.request, Refused()
    looked = _look(prices, rules, refused, work)
    if math.isinf(looked.least_B):
        raise InputError(
            f"no uniform layout on {request.device_num} devices: {refused.reason or _left_by_none(prices, rules)}"
        )
    if not looked.fits:
        may_offload = request.cluster.host is not None and not request.limits.names(SWAP)
        others = f", a smaller batch, or --fix {SWAP}=yes" if may_offload else " or a smaller batch"
        raise InfeasibleError(
            f"no uniform layout fits {request.limit_B / GIB:.1f} GiB on {request.device_num} devices: the one that needs least"
            f" needs {looked.least_B / GIB:.1f} GiB at least; give more devices{others}"
        )
    return looked


def _left_by_none(prices: Prices, rules: Rules) -> str:
    """Which pins leave none: those without one of which there would be some, or all."""
    every = prices.request.limits.each
    asked = ((pin, replace(prices.request, limits=others)) for pin, others in every)
    found = [pin for pin, request in asked if any(True for _ in layouts(prices.config, request, rules, Refused()))]
    if not every:
        return "degrees, samples and layers do not divide so; give other devices or another batch"
    return f"none has {', '.join(found or [pin for pin, _ in every])}; leave {'one of them' if len(found) != 1 else 'that'} out"


def _best(prices: Prices, fits: list[Found], rules: Rules) -> Found:
    """The fastest of those that fit, and of what blocks on other stages make of the first few."""
    first = sorted(fits, key=lambda one: one[1].step_time_s)
    if not rules.moves_blocks:
        return first[0]
    few: dict[object, Found] = {}
    for found in first:
        few.setdefault((found[0].degrees, found[0].stages), found)
    tried = [moved(prices, found, rules) for found in list(few.values())[:KEPT]]
    return min(tried, key=lambda one: one[1].step_time_s)


def _with_one_micro_batch(layout: UniformLayout) -> UniformLayout:
    """What layouts have in common that differ in their micro-batches alone."""
    return replace(layout, stages=replace(layout.stages, micro_batch_num=1))


def _least_peaks_B(prices: Prices, layout: UniformLayout, rules: Rules) -> tuple[int, ...]:
    """`least_peaks_B` with micro-batches of one sample a replica and one chunk a stage, with which `layout` needs least."""
    micro_batch_num = prices.config.batch_size // layout.degrees.data_parallel
    few = replace(layout, stages=replace(layout.stages, micro_batch_num=micro_batch_num, interleave=1))
    with suppress(SymTensorError):
        return least_peaks_B(prices, few, rules)
    return ()


def _look(prices: Prices, rules: Rules, refused: Refused, work: float) -> _Looked:
    """Looks until it has done so much `work`, and on where nothing fits so far."""
    found, order, limit_B = _Looked(), count(), prices.request.limit_B
    waiting: list[tuple[float, int, float, bool, UniformLayout]] = []  # guess, order, bound, is the bound rough, layout
    for layout in layouts(prices.config, prices.request, rules, refused):
        try:
            least_s, guess_s, least_B = prices.rough(layout)
        except SymTensorError as error:
            refused.add(str(error))
            continue
        if least_B <= limit_B:
            waiting.append((guess_s, next(order), least_s, True, layout))
        else:
            found.least_B = min(found.least_B, least_B)
    heapq.heapify(waiting)
    idle, too_large, movable = 0, set[UniformLayout](), set[UniformLayout]()
    while waiting and waiting[0][0] < found.best_s and idle < PATIENCE and (prices.work < work or not found.fits):
        _, _, least_s, is_rough, layout = heapq.heappop(waiting)
        alike = _with_one_micro_batch(layout)
        if alike in movable:  # other stages may fit
            found.least_s = min(found.least_s, least_s)
        if alike in too_large:
            continue
        try:
            if not is_rough:
                found.least_s = min(found.least_s, least_s)
                best_s, idle = found.best_s, idle + bool(found.fits)
                for recomputation, price in fitted(prices, layout, rules, best_s):
                    found.least_B = min(found.least_B, price.peak_memory_B)
                    if price.peak_memory_B <= limit_B:
                        found.fits.append((recomputation, price))
                idle = 0 if found.best_s < best_s else idle
                continue
            peaks_B = _least_peaks_B(prices, layout, rules)
            if max(peaks_B, default=0) > limit_B:
                too_large.add(alike)
                found.least_B = min(found.least_B, max(peaks_B))
                if rules.moves_blocks and fmean(peaks_B) <= limit_B:
                    movable.add(alike)
                    found.least_s = min(found.least_s, least_s)
                continue
            exact_s, guess_s = prices.least(layout)
            heapq.heappush(waiting, (guess_s, next(order), max(least_s, exact_s), False, layout))
        except SymTensorError as error:
            refused.add(str(error))
    found.least_s = min([found.least_s, *(least_s for _, _, least_s, _, _ in waiting)])
    return found
