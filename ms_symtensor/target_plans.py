"""The plan that is asked for: with experts in any form, or the best that a target can say, and what free layouts would gain."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from ms_symtensor.errors import InfeasibleError, InvalidStrategyError, SymTensorError
from ms_symtensor.models import Model, planned, with_loss
from ms_symtensor.search.constraints.limits import SWAP, Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.possible import require_lengths, require_pinnable
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.targets.exporter import Uniform
from ms_symtensor.targets.registry import Target
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.rules import ANY
from ms_symtensor.uniform.search import uniform_best

Progress = Callable[[str], None]

MOST_CANDIDATES = 200_000
"""The other form is not tried where the first search priced more candidates (empirical: each search takes some 8 s then)."""


def planned_in_any_form(model: Model, request: Request, progress: Progress = lambda _: None) -> tuple[Plan, Graph]:
    """`models.planned` of `model` or, if its step takes less, of its other form; the plan's source says which.

    MindSpore lays devices out in the order of an operator's dims. Experts before the places of all samples share the devices
    that are far apart; behind the samples those that are near, but their weights' gradients are made for every sample.
    """
    found, graph = planned(model, request, progress)
    pins = request.limits.operators  # they name the operators of one form
    if model.other_form is None or pins or request.is_trial or found.search.candidates > MOST_CANDIDATES:
        return found, graph
    progress("experts by sample")
    other = model.other_form()
    wanted = replace(request, source=other.source)
    try:
        plan, graph_of_other = planned(
            other, replace(wanted, certified_gap=None), progress, found.prediction.step_time_s
        )
    except (InfeasibleError, InvalidStrategyError):
        return found, graph
    if plan.prediction.step_time_s >= found.prediction.step_time_s:
        return found, graph  # the price of programs may be above that of the tables, which the search was bounded by
    if request.certified_gap is not None:
        return planned(other, wanted, progress)
    took_s = found.search.search_time_s + plan.search.search_time_s
    return replace(plan, search=replace(plan.search, search_time_s=took_s)), graph_of_other


def in_uniform_layouts(
    model: Model, request: Request, target: Target, progress: Progress = lambda _: None
) -> tuple[Plan, Graph, Uniform]:
    """The best plan in uniform layouts within the target's rules. Errors: those of `uniform_best` and of `search.possible`."""
    model = model.by_sample
    request = replace(request, source=model.source)
    require_pinnable(model.graph, request)
    require_lengths(model.graph, request)
    found, graph, layout = uniform_best(model.config, request, progress, target.rules or ANY)
    assert model.config is not None
    return with_loss(found, graph, model.graph), graph, Uniform(model.config, layout)


def model_of_config(config: TransformerConfig) -> Model:
    """The network of `config`, whose batch is that of a step, to plan in free layouts."""

    @cache
    def graph_at(batch: int, layers: int | None) -> Graph:
        return build_graph(replace(config, batch_size=batch, num_layers=layers or config.num_layers))

    graph = graph_at(config.batch_size, None)
    return Model(config.name, graph, config.batch_size, config.seq_length, {}, graph_at, config=config)


def kept_swap(wanted: Limits, swaps: bool) -> Limits:
    """`wanted`, with the optimizer offloaded if it `swaps`, where nothing is said of that."""
    if not swaps or wanted.names(SWAP):
        return wanted
    return replace(wanted, least={**wanted.least, SWAP: 1}, most={**wanted.most, SWAP: 1})


def free_layouts_s(model: Model, request: Request, progress: Progress = lambda _: None) -> float | str:
    """Seconds of a step of the best plan in free layouts for the same request, or why there is none."""
    try:
        return planned_in_any_form(model, request, progress)[0].prediction.step_time_s
    except SymTensorError as error:
        return str(error)


def with_free_layouts(model: Model, request: Request, found: Plan, progress: Progress) -> tuple[str, dict[str, Any]]:
    """What free layouts would gain over `found`: for people, and as data."""
    progress("free layouts")
    free_s = free_layouts_s(model, request, progress)
    if isinstance(free_s, str):
        return f"Free layouts (shard()): none, {free_s}", {"reason": free_s}
    gain = found.prediction.step_time_s / free_s - 1.0
    words = f"{100 * gain:.1f} % faster" if gain < 1 else f"{1 + gain:.1f} times as fast"
    words = words if gain > 5e-4 else "no faster"
    return f"Free layouts (shard()) would take {free_s:.4g} s, {words} (--target mindspore)", {
        "step_time_s": free_s,
        "gain": gain,
    }
