"""The fastest uniform layout: every one that the pins allow is bounded from below, and the promising ones are priced.

A layout without recomputation is a lower bound for all that recompute. Layouts are priced in the order of the steps of the same
network with few blocks, which grow linearly with the blocks of a stage; recomputation is added until what a stage keeps fits: the
cores of attention, whole blocks in halves, all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from model_zoo.config import TransformerConfig
from ms_symtensor.cost.plan_price import priced
from ms_symtensor.errors import InfeasibleError, InputError, SymTensorError
from ms_symtensor.program.settings import OptimizerLevel
from ms_symtensor.search.asked.limits import SWAP, Limits
from ms_symtensor.search.asked.request import GIB, Request
from ms_symtensor.strategy.plan import Plan, SearchReport
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.estimate import estimate
from ms_symtensor.uniform.layout import (
    ALL,
    NO_RECOMPUTATION,
    SELECTIVE_RECOMPUTATION,
    Degrees,
    Recomputation,
    Stages,
    UniformLayout,
)
from ms_symtensor.uniform.plan import uniform_bill
from ms_symtensor.uniform.request import of_micro_batch, pinned_layout, recomputation

METHOD = "uniform layouts, every one within the pins bounded or priced"

TENSOR_RANKS = 64
"""No published configuration cuts layers over more tensor-parallel ranks (empirical)."""

HALVINGS = 3
"""Recomputed blocks are tried in halves, quarters and eighths of a stage's blocks (empirical)."""


@dataclass(frozen=True)
class _Bounded:
    layout: UniformLayout
    least_s: float


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
    bounded: list[_Bounded] = []
    reason = ""
    progress("uniform layouts")
    for layout in _space(config, request):
        try:
            least_s = _least_s(config, layout, request)
        except SymTensorError as error:
            reason = reason or str(error)
            continue
        bounded.append(_Bounded(layout, least_s))
    if not bounded:
        raise InputError(f"no uniform layout on {request.device_num} devices: {reason or 'the pins leave none'}")
    bounded.sort(key=lambda one: one.least_s)
    best: tuple[Plan, Graph] | None = None
    least_B = None
    number = 0
    for one in bounded:
        if best is not None and one.least_s >= best[0].prediction.step_time_s:
            break
        for layout in _recomputing(config, one.layout, request.limits):
            found = estimate(config, layout, request)
            number += 1
            prediction = found[0].prediction
            least_B = min(prediction.peak_memory_B, least_B or prediction.peak_memory_B)
            if prediction.fits:
                if best is None or prediction.step_time_s < best[0].prediction.step_time_s:
                    best = found
                break
    if best is None:
        raise InfeasibleError(
            f"no uniform layout fits {request.limit_B / GIB:.1f} GiB on {request.device_num} devices: the one that needs least"
            f" needs {(least_B or 0) / GIB:.1f} GiB; give more devices, a smaller batch, or --fix swap_optimizer=yes"
        )
    search = SearchReport(number, 0.0, _gap(bounded, best[0]), METHOD)
    return replace(best[0], search=search), best[1]


def _gap(bounded: list[_Bounded], best: Plan) -> float:
    least_s = bounded[0].least_s
    return max(0.0, best.prediction.step_time_s / least_s - 1.0)


def _least_s(config: TransformerConfig, layout: UniformLayout, request: Request) -> float:
    """Seconds of a step that recomputes nothing."""
    runtime = request.runtime
    return priced(
        uniform_bill(of_micro_batch(config, layout), layout, runtime.fuses), request.cluster, runtime
    ).step_time_s


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
        for micro_batches, interleave, sequence, level, expert in product(
            _divisors(batch // data), (1, 2, 4), (False, True), (0, 1), _experts(config, data * tensor)
        ):
            if micro_batches < stages or (interleave > 1 and (stages == 1 or micro_batches % stages)):
                continue
            if stages * interleave > config.num_layers or (sequence and tensor == 1):
                continue
            chosen = {
                "micro_batch_num": micro_batches, "pp_interleave_num": interleave, "sequence_parallel": int(sequence),
                "optimizer_level": level, "expert_parallel": expert or 1,
            }  # fmt: skip
            if not all(limits.allows(name, number) for name, number in chosen.items()):
                continue
            if "optimizer_level" not in limits.least and level != int(data > 1):
                continue
            if "sequence_parallel" not in limits.least and sequence != (tensor > 1):
                continue
            yield UniformLayout(
                Degrees(data, tensor, sequence, context, expert),
                Stages(stages, micro_batches, interleave),
                optimizer_level=OptimizerLevel(level),
                swap_optimizer=bool(limits.least.get(SWAP, 0)),
            )


def _experts(config: TransformerConfig, most: int) -> tuple[int, ...]:
    if config.experts is None:
        return (0,)
    return tuple(n for n in _divisors(config.experts.number) if most % n == 0)


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, number + 1) if number % n == 0)
