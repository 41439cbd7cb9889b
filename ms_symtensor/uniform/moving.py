"""Other numbers of blocks on the stages than even ones: from the slowest stage to the fastest, as long as that helps."""

from collections.abc import Iterator
from dataclasses import replace

from ms_symtensor.errors import SymTensorError
from ms_symtensor.uniform.fitting import Found, fitted
from ms_symtensor.uniform.layout import NO_RECOMPUTATION
from ms_symtensor.uniform.prices import Prices
from ms_symtensor.uniform.rules import Rules

MOVES = 6
"""Blocks are moved at most so often; empirical."""


def moved(prices: Prices, found: Found, rules: Rules) -> Found:
    """`found`, or a faster layout whose stages hold other numbers of blocks."""
    for _ in range(MOVES):
        better = min(_neighbours(prices, found, rules), key=lambda one: one[1].step_time_s, default=found)
        if better[1].step_time_s >= found[1].step_time_s:
            break
        found = better
    return found


def _neighbours(prices: Prices, found: Found, rules: Rules) -> Iterator[Found]:
    """What fits of the layouts in which the slowest stage gives a block to the fastest."""
    layout, price = found
    held = layout.stages.of(prices.config.num_layers)
    slowest = max(range(len(held)), key=lambda stage: price.stage_each_s[stage])
    fastest = min(range(len(held)), key=lambda stage: price.stage_each_s[stage])
    if fastest == slowest:
        return
    layers = list(held)
    layers[slowest] -= 1
    layers[fastest] += 1
    stages = replace(layout.stages, layers=tuple(layers))
    plain = replace(layout, stages=stages, recompute=NO_RECOMPUTATION)
    if layers[slowest] < layout.stages.interleave or rules.refusal(prices.config, plain):
        return
    try:
        every = list(fitted(prices, plain, rules, price.step_time_s))
    except SymTensorError:
        return
    yield from (one for one in every if one[1].peak_memory_B <= prices.request.limit_B)
