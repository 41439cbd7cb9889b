"""The uniform layouts that pins, bounds and the rules of a software allow, nothing recomputed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from model_zoo.config import TransformerConfig
from model_zoo.megatron import require_context
from ms_symtensor.algebra.divisors import divisors
from ms_symtensor.errors import InputError
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.constraints.limits import SWAP, Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.uniform.layout import Degrees, Stages, UniformLayout
from ms_symtensor.uniform.request import pinned_layout
from ms_symtensor.uniform.rules import Rules

TENSOR_RANKS = 64
"""No published configuration cuts layers over more tensor-parallel ranks (empirical)."""


@dataclass
class Refused:
    """The first reason for which a layout was refused."""

    reason: str = ""

    def add(self, reason: str) -> None:
        self.reason = self.reason or reason


def layouts(config: TransformerConfig, request: Request, rules: Rules, refused: Refused) -> Iterator[UniformLayout]:
    """Every one, at the lowest level of the optimizer's sharding that is wanted."""
    limits, batch = request.limits, config.batch_size
    if limits.operators:
        pinned_layout(config, limits, request.device_num)  # says why not
    for degrees, number in _degrees(config, request, rules, refused):
        level = levels(limits, rules, degrees.data_parallel)
        if not level:
            continue
        for form, micro_batches, interleave in product(
            rules.forms(config, degrees), divisors(batch // degrees.data_parallel), limits.interleaves
        ):
            stages = _stages(limits, config, number, micro_batches, interleave)
            if stages is None:
                continue
            swaps = bool(limits.least.get(SWAP, 0))
            layout = UniformLayout(
                form,
                stages,
                optimizer_level=OptimizerLevel(level[0]),
                swap_optimizer=swaps,
                parallel_optimizer_threshold_KB=rules.threshold_KB,
            )
            if reason := rules.refusal(config, layout):
                refused.add(reason)
                continue
            yield layout


def levels(limits: Limits, rules: Rules, data_parallel: int) -> tuple[int, ...]:
    """Levels of the optimizer's sharding to try, the lowest first."""
    if limits.pins("optimizer_level"):
        return (limits.least["optimizer_level"],)
    usual = rules.levels if data_parallel > 1 else (0,)
    return tuple(level for level in usual if limits.allows("optimizer_level", level))


def levels_of(
    config: TransformerConfig, limits: Limits, rules: Rules, layout: UniformLayout
) -> tuple[OptimizerLevel, ...]:
    """Levels of the optimizer's sharding to try, the lowest first: that of `layout`, and others that the rules allow."""
    every = map(OptimizerLevel, levels(limits, rules, layout.degrees.data_parallel))
    return tuple(
        level
        for level in every
        if level is layout.optimizer_level or not rules.refusal(config, replace(layout, optimizer_level=level))
    )


def _stages(
    limits: Limits, config: TransformerConfig, number: int, micro_batches: int, interleave: int
) -> Stages | None:
    """Stages as wanted, with as many micro-batches and virtual stages as MindSpore takes; None: they are not."""
    if micro_batches < number or number * interleave > config.num_layers:
        return None
    if interleave > 1 and (number == 1 or micro_batches % number) and not limits.pins("pp_interleave_num"):
        return None
    if not limits.allows("micro_batch_num", micro_batches) or not limits.allows("pp_interleave_num", interleave):
        return None
    (scheduler,) = limits.schedulers
    if scheduler != DEFAULT_SCHEDULER and interleave == 1:
        return None
    return Stages(number, micro_batches, interleave, scheduler=scheduler)


def _degrees(
    config: TransformerConfig, request: Request, rules: Rules, refused: Refused
) -> Iterator[tuple[Degrees, int]]:
    """Degrees of a stage, and the number of stages."""
    limits, devices = request.limits, request.device_num
    for stages, tensor, context in product(divisors(devices), divisors(devices), divisors(devices)):
        inner = stages * tensor * context
        if devices % inner or stages > config.num_layers or tensor > TENSOR_RANKS:
            continue
        data = devices // inner
        wanted = {
            "pipeline_stages": stages, "model_parallel": tensor, "context_parallel": context, "data_parallel": data,
        }  # fmt: skip
        if config.batch_size % data or not all(limits.allows(name, number) for name, number in wanted.items()):
            continue
        is_pinned = limits.pins("context_parallel")
        if context > 1 and not (is_pinned or rules.mixes_context or data == config.batch_size):
            continue  # samples are cut first
        try:
            require_context(config, context)
        except InputError as error:
            if is_pinned:
                refused.add(str(error))
            continue
        for sequence, expert in product(
            _choices(limits, "sequence_parallel", int(tensor > 1)), _experts(config, data * tensor)
        ):
            if limits.allows("expert_parallel", expert or 1):
                yield Degrees(data, tensor, bool(sequence), context, expert), stages


def _choices(limits: Limits, name: str, usual: int) -> tuple[int, ...]:
    """The values of `name` to try: that which is pinned, or the usual one, where it is allowed."""
    if limits.pins(name):
        return (limits.least[name],)
    return (usual,) if limits.allows(name, usual) else ()


def _experts(config: TransformerConfig, most: int) -> tuple[int, ...]:
    if config.experts is None:
        return (0,)
    return tuple(n for n in divisors(config.experts.number) if most % n == 0)
