"""Recomputation and sharding until a layout fits: as little as its stages need, the cheapest kind first.

A stage's peak hangs on what that stage recomputes alone. So the fewest blocks of every stage are found for all stages at once, by
interpolation, and no selection of the same kind that fits is faster.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from ms_symtensor.cost.plan_price import PlanPrice
from ms_symtensor.errors import SymTensorError
from ms_symtensor.program.schedule import PipelineSchedule
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.uniform.layout import ALL, Recomputation, UniformLayout, first_blocks
from ms_symtensor.uniform.prices import Prices
from ms_symtensor.uniform.request import recomputation
from ms_symtensor.uniform.rules import Parts, Rules
from ms_symtensor.uniform.space import levels_of

Found = tuple[UniformLayout, PlanPrice]


def fitted(
    prices: Prices, layout: UniformLayout, rules: Rules, best_s: float, estimates: bool = True
) -> Iterator[Found]:
    """`layout`, and what of more recomputation and sharding is tried until it fits, each with its price; nothing that is sure to
    take `best_s` seconds or more. `estimates`: nor what is only likely to. Errors: those of `Prices.of`.
    """
    kinds = {prices.config.kind(layer) for layer in range(prices.config.num_layers)}
    expects = estimates or len(kinds) == 1
    limits, limit_B = prices.request.limits, prices.request.limit_B
    every = levels_of(prices.config, prices.request.limits, rules, layout)
    if every and not _is_pinned(limits) and prices.recomputes(layout):
        least = _with_least(prices, layout, every)
        if least is not None and least[1].peak_memory_B > limit_B:
            yield least
            return
    for level in every:
        at = replace(layout, optimizer_level=level)
        if _is_pinned(limits):
            pinned = recomputation(limits, prices.config.num_layers, at.stages.number)
            found = replace(at, recompute=pinned)
            yield found, prices.of(found)
            continue
        try:
            plain = prices.of(at)
        except SymTensorError:
            if at.optimizer_level == layout.optimizer_level:
                raise
            return  # MindSpore has no such level here
        yield at, plain
        if plain.peak_memory_B <= limit_B or plain.step_time_s >= best_s:
            return
        most = _at(prices, at, layout.stages.of(prices.config.num_layers), ())
        yield most
        if most[1].peak_memory_B > limit_B:
            continue
        for parts in ((), *rules.selections):
            fewest = _fewest_alike if rules.recomputes_alike else partial(_fewest, expects=expects)
            for found, price in fewest(prices, at, parts, best_s):
                if price.peak_memory_B <= limit_B:
                    best_s = min(best_s, price.step_time_s)
                yield found, price


def least_peaks_B(prices: Prices, layout: UniformLayout, rules: Rules) -> tuple[int, ...]:
    """Bytes of every stage of `layout` with all blocks recomputed; none where that is pinned or nothing has to be. Errors: those
    of `Prices.of`.
    """
    if _is_pinned(prices.request.limits) or not prices.recomputes(layout):
        return ()
    least = _with_least(prices, layout, levels_of(prices.config, prices.request.limits, rules, layout))
    return () if least is None else least[1].stage_peaks_B


def _with_least(prices: Prices, layout: UniformLayout, every: tuple[OptimizerLevel, ...]) -> Found | None:
    """`layout` with what lowers its peak most: all blocks recomputed, at the last level that MindSpore has; None: it has none."""
    for level in reversed(every):
        try:
            found = replace(layout, optimizer_level=level)
            return _at(prices, found, layout.stages.of(prices.config.num_layers), ())
        except SymTensorError:
            continue
    return None


def _is_pinned(limits: Limits) -> bool:
    return limits.selects or "recompute" in limits.least or "recompute" in limits.most


def _at(prices: Prices, layout: UniformLayout, blocks: tuple[int, ...], parts: Parts) -> Found:
    """`layout` with so many blocks of every stage recomputed as a whole, and the `parts` of the others."""
    found = replace(layout, recompute=Recomputation(blocks, tuple((part, (ALL,)) for part in parts)))
    found = found if parts or any(blocks) else layout
    return found, prices.of(found)


def _fewest(prices: Prices, layout: UniformLayout, parts: Parts, best_s: float, expects: bool) -> Iterator[Found]:
    """`layout`, which fits with all blocks recomputed, with the `parts` of all blocks and as few blocks as a whole as fit;
    what is tried, the best last. `expects`: not if `_expected_s` are too many.
    """
    limit_B = prices.request.limit_B
    held = layout.stages.of(prices.config.num_layers)

    def at(blocks: tuple[int, ...]) -> Found:
        return _at(prices, layout, blocks, parts)

    least = at((0,) * len(held))
    yield least
    if least[1].peak_memory_B <= limit_B or least[1].step_time_s >= best_s:
        return
    most = _at(prices, layout, held, ())
    few = [_End(0, peak_B) for peak_B in least[1].stage_peaks_B]
    many = [
        _End(0 if one.peak_B <= limit_B else number, peak_B)
        for one, number, peak_B in zip(few, held, most[1].stage_peaks_B, strict=True)
    ]
    if expects and _expected_s(layout, least[1], most[1], limit_B) >= best_s:
        return
    while any(high.blocks - low.blocks > 1 for low, high in zip(few, many, strict=True)):
        tried = at(tuple(_guess(low, high, limit_B) for low, high in zip(few, many, strict=True)))
        yield tried
        if _least_s(tried, limit_B) >= best_s:
            return
        for stage, (number, peak_B) in enumerate(zip(tried[0].recompute.blocks, tried[1].stage_peaks_B, strict=True)):
            (many if peak_B <= limit_B else few)[stage] = _End(number, peak_B)
    yield at(tuple(high.blocks for high in many))


def _fewest_alike(prices: Prices, layout: UniformLayout, parts: Parts, best_s: float) -> Iterator[Found]:
    """As `_fewest`, with as many blocks of every model chunk."""
    limit_B, layers = prices.request.limit_B, prices.config.num_layers

    def at(number: int) -> Found:
        found = replace(layout, recompute=first_blocks(layout.stages, layers, number, frozenset(parts)))
        return found, prices.of(found)

    least, most = at(0), max(layout.stages.in_order(layers))
    yield least
    if least[1].peak_memory_B <= limit_B or least[1].step_time_s >= best_s:
        return
    whole = at(most)
    yield whole
    few, many = _End(0, least[1].peak_memory_B), _End(most, whole[1].peak_memory_B)
    while many.blocks - few.blocks > 1:
        number = _guess(few, many, limit_B)
        tried = at(number)
        yield tried
        if _least_s(tried, limit_B) >= best_s:
            return
        end = _End(number, tried[1].peak_memory_B)
        few, many = (few, end) if end.peak_B <= limit_B else (end, many)


@dataclass(frozen=True)
class _End:
    """So many blocks of a stage recomputed as a whole, and the bytes that it then needs."""

    blocks: int
    peak_B: int


def _guess(low: _End, high: _End, limit_B: int) -> int:
    """The fewest blocks that fit, if what every block saves is the same: between `low`, which does not fit, and `high`, which
    does.
    """
    if high.blocks - low.blocks < 2:
        return high.blocks
    share = (low.peak_B - limit_B) / max(1, low.peak_B - high.peak_B)
    wanted = low.blocks + math.ceil(share * (high.blocks - low.blocks))
    return min(max(wanted, low.blocks + 1), high.blocks - 1)


def _expected_s(layout: UniformLayout, least: PlanPrice, most: PlanPrice, limit_B: int) -> float:
    """Seconds of a step whose stages recompute the share of their blocks that fits, between `least` of them and `most`.

    It takes no less where blocks cost alike: what one needs while it is recomputed keeps peaks above the straight line. Where
    kinds differ it is an estimate.
    """
    stages = zip(least.stage_each_s, most.stage_each_s, least.stage_peaks_B, most.stage_peaks_B, strict=True)
    each_s = [
        few_s + max(0.0, min(1.0, (few_B - limit_B) / max(1, few_B - many_B))) * (many_s - few_s)
        for few_s, many_s, few_B, many_B in stages
    ]
    of = layout.stages
    order = PipelineSchedule(of.micro_batch_num, of.interleave, of.scheduler)
    once_s = min(price.step_time_s - order.step_s(price.stage_each_s, 0.0) for price in (least, most))
    return order.step_s(each_s, once_s)


def _least_s(tried: Found, limit_B: int) -> float:
    """Seconds of a step whose stages recompute more than those of `tried` that do not fit."""
    layout, price = tried
    pairs = zip(price.stage_each_s, price.stage_peaks_B, strict=True)
    return layout.stages.micro_batch_num * max((each_s for each_s, peak_B in pairs if peak_B > limit_B), default=0.0)
