"""From a training file to a better one: its price, the best layout that it could say, and what free layouts would gain."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model_zoo.config import TransformerConfig
from ms_symtensor.errors import SymTensorError
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.strategy.plan import Plan, SearchReport
from ms_symtensor.targets.mindformers.rules import LEGACY_RULES, RULES, refusal, refused_degrees
from ms_symtensor.targets.mindformers.training_file import TrainingFile
from ms_symtensor.targets.mindformers.writing import Change, with_layout
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.estimate import estimate
from ms_symtensor.uniform.layout import UniformLayout
from ms_symtensor.uniform.rules import Rules
from ms_symtensor.uniform.search import uniform_best

Progress = Callable[[str], None]
Free = Callable[[TransformerConfig, Request, Progress], "float | str"]
"""Seconds of the best step in free layouts, or why there is none."""


@dataclass(frozen=True)
class Better:
    """What became of a training file.

    Attributes:
        yours: the step that the file says, or why it has no price.
        planned: the best one; the file's own where nothing faster fits.
        text: of the planned file.
        free_s: seconds of the best step in free layouts, or why there is none.
    """

    file: TrainingFile
    yours: Plan | str
    yours_graph: Graph | None
    planned: Plan
    graph: Graph
    layout: UniformLayout
    text: str
    changes: tuple[Change, ...]
    free_s: float | str


def better(file: TrainingFile, request: Request, free: Free, progress: Progress = lambda _: None) -> Better:
    """The file's price, and the best layout for `request` with the same step.

    Raises:
        InputError, InfeasibleError: those of `uniform_best` and `with_layout`.
    """
    progress("the file as it is")
    yours = price_of(file, request)
    rules = rules_of(file)
    plan, graph, layout = uniform_best(file.config, request, progress, rules)
    plan, graph, layout = _as_sharded(file, request, plan, graph, layout)
    if (
        not isinstance(yours, str)
        and not isinstance(file.layout, str)
        and _is_better(file, file.layout, yours[0], plan)
    ):
        plan, graph, layout = replace(yours[0], search=_search(plan, yours[0])), yours[1], file.layout
    text, changes = (file.text, ()) if layout == file.layout else with_layout(file, layout)
    progress("free layouts")
    free_s = free(file.config, request, progress)
    own, own_graph = (yours, None) if isinstance(yours, str) else yours
    return Better(file, own, own_graph, plan, graph, layout, text, changes, free_s)


def rules_of(file: TrainingFile) -> Rules:
    """MindFormers' rules, and what the file's other keys add to them."""
    own = replace(LEGACY_RULES if file.is_legacy else RULES, threshold_KB=file.threshold_KB)

    def refused(config: TransformerConfig, layout: UniformLayout) -> str:
        if config.experts is not None and layout.degrees.expert_parallel < file.least_experts:
            return f"MindFormers: alltoall_deredundency needs expert_parallel of at least {file.least_experts}"
        return own.refusal(config, layout)

    return replace(own, refusal=refused)


def price_of(file: TrainingFile, request: Request) -> tuple[Plan, Graph] | str:
    """The step that the file says, or why it has no price. It fits where the device, or what the file allows of it, has room."""
    if isinstance(file.layout, str):
        return file.layout
    if file.devices != request.device_num:
        return f"the file is for {file.devices} devices, not {request.device_num}"
    reason = "" if file.is_legacy else refused_degrees(file.config, file.layout.degrees)
    if reason:
        return reason
    limit_B = file.memory_limit_B or request.cluster.device.hbm_usable_B
    try:
        return estimate(file.config, file.layout, replace(request, limit_B=int(limit_B)))
    except SymTensorError as error:
        return str(error)


AS_FAST = 1e-3
"""A key of the file stays where the step with it is at most by this share slower."""


def _as_sharded(
    file: TrainingFile, request: Request, plan: Plan, graph: Graph, layout: UniformLayout
) -> tuple[Plan, Graph, UniformLayout]:
    """The plan with the optimizer sharded as the file has it, where that is as fast and fits."""
    own = file.layout
    if isinstance(own, str):
        return plan, graph, layout
    kept = replace(layout, optimizer_level=own.optimizer_level)
    if (
        kept == layout
        or refusal(file.config, kept)
        or not request.limits.allows("optimizer_level", own.optimizer_level)
    ):
        return plan, graph, layout
    other, other_graph = estimate(file.config, kept, request)
    is_as_fast = other.prediction.step_time_s <= plan.prediction.step_time_s * (1 + AS_FAST)
    if not (other.prediction.fits and is_as_fast):
        return plan, graph, layout
    return replace(other, search=plan.search), other_graph, kept


def _is_better(file: TrainingFile, layout: UniformLayout, yours: Plan, planned: Plan) -> bool:
    """Whether the file's own step is as fast as the planned one, fits, and is one that MindFormers runs as it was priced."""
    is_priced_as_run = not any("priced as" in note and "scheduler" in note for note in file.notes)
    can_be = yours.prediction.fits and is_priced_as_run and not refusal(file.config, layout)
    return can_be and yours.prediction.step_time_s <= planned.prediction.step_time_s


def _search(planned: Plan, yours: Plan) -> SearchReport:
    """The search of `planned`, with the gap of `yours`."""
    found = planned.search
    least_s = planned.prediction.step_time_s / (1 + found.optimality_gap)
    return replace(found, optimality_gap=max(0.0, yours.prediction.step_time_s / least_s - 1))
