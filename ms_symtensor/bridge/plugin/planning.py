"""From a network in memory to a planned one: capture it, search (or read) a plan, apply it."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ms_symtensor.bridge.apply.apply import apply, remove
from ms_symtensor.bridge.apply.pipeline_network import micro_batch
from ms_symtensor.bridge.apply.whole_count import set_factors, unset_factors
from ms_symtensor.bridge.capture.capture import capture
from ms_symtensor.bridge.compiler import search_mode
from ms_symtensor.bridge.compiler.host import import_mindspore
from ms_symtensor.bridge.plugin.facts import Facts, facts_of_request, request_facts
from ms_symtensor.cluster.load import cluster_of
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError, InputError
from ms_symtensor.search.constraints.checked import batch_and_sequence, memory_B, named, place, whole_number
from ms_symtensor.search.constraints.limits import limits_of
from ms_symtensor.search.constraints.request import Request, free_B
from ms_symtensor.strategy.file import graph_in, plan_in, save
from ms_symtensor.strategy.folder import read
from ms_symtensor.strategy.loss import loss_note, loss_of
from ms_symtensor.strategy.plan import MicroBatchLoss, Plan
from ms_symtensor.tensor.graph import Graph

GIB = 1 << 30
_PLAN = "_symtensor_plan"  # on a network that carries a plan
_PART = "_symtensor_part"  # its plan, on every cell of it
_SHAPES = "_symtensor_shapes"  # of the inputs that it is for, beside the plan


@dataclass(frozen=True)
class Options:
    """How networks are planned. `strategy`: a saved plan to use instead of searching; `save`: where to write the
    plan; `cluster`, `memory_limit_B`, `fix` and `at_most`: as of `ms_symtensor.plan`. `replace_shard`: what is written in the
    network gives way to the plan, `shard()`, `recompute()` and pipeline stages of cells. `edited`: files of the saved plan may
    differ from what was written. InputError for values of another kind.
    """

    cluster: Cluster | str | os.PathLike[str] = "atlas_800t_a2"
    memory_limit_B: int | None = None
    strategy: str | os.PathLike[str] | None = None
    save: str | os.PathLike[str] | None = None
    fix: Mapping[str, object] = field(default_factory=dict)
    at_most: Mapping[str, object] = field(default_factory=dict)
    replace_shard: bool = False
    edited: bool = False

    def __post_init__(self) -> None:
        limits_of(named("fix", self.fix).items(), named("at_most", self.at_most).items())
        if self.memory_limit_B is not None:
            memory_B("memory_limit_B", self.memory_limit_B)
        if not isinstance(self.cluster, Cluster):
            place("cluster", self.cluster)
        for name in ("strategy", "save"):
            if getattr(self, name) is not None:
                place(name, getattr(self, name))
        for name in ("replace_shard", "edited"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is {getattr(self, name)!r}: give True or False")


_configured: dict[str, Any] = {}


def configure(**options: Any) -> None:
    """Set options of the search mode and of `plan_network` for this process. They come before those of the environment.

    Args:
        options: Fields of `Options`: cluster (name, path or cluster), memory_limit_B (bytes), fix, at_most (pins and bounds),
            strategy (folder of a saved plan), save (folder), replace_shard, edited.

    Raises:
        InputError: There is no such option.

    Example:
        >>> ms_symtensor.configure(cluster="atlas_800t_a3", at_most={"recompute": 8})
    """
    _with(Options(), options)
    _configured.update(options)


def _with(base: Options, changes: Mapping[str, Any]) -> Options:
    """`base` with `changes`; InputError for what is no option."""
    unknown = set(changes) - set(Options.__dataclass_fields__)
    if unknown:
        raise InputError(f"unknown option {sorted(unknown)[0]!r}; known: {', '.join(Options.__dataclass_fields__)}")
    return replace(base, **changes)


def current_options() -> Options:
    """The options of `configure`, then of the environment: SYMTENSOR_CLUSTER, SYMTENSOR_STRATEGY, SYMTENSOR_SAVE
    (paths), SYMTENSOR_MEMORY_LIMIT_GIB, SYMTENSOR_REPLACE_SHARD and SYMTENSOR_EDITED (1 or 0).
    """
    found = Options()
    for name in ("cluster", "strategy", "save"):
        if value := os.environ.get(f"SYMTENSOR_{name.upper()}"):
            given: dict[str, Any] = {name: value}
            found = replace(found, **given)
    if text := os.environ.get("SYMTENSOR_MEMORY_LIMIT_GIB"):
        try:
            limit = float(text)
        except ValueError:
            limit = 0.0
        if not 0 < limit < float("inf"):
            raise InputError(f"SYMTENSOR_MEMORY_LIMIT_GIB is {text!r}: give a number of GiB, e.g. 56")
        found = replace(found, memory_limit_B=int(limit * GIB))
    for name in ("replace_shard", "edited"):
        if text := os.environ.get(f"SYMTENSOR_{name.upper()}"):
            if text not in ("0", "1"):
                raise InputError(f"SYMTENSOR_{name.upper()} is {text!r}: give 1, or 0")
            said: dict[str, Any] = {name: text == "1"}
            found = replace(found, **said)
    return _with(found, _configured)


@dataclass(frozen=True)
class StoredPlan(Plan):
    """A plan read from a directory, and the graph that was saved with it, if any."""

    graph: Graph | None = None

    @property
    def plan(self) -> Plan:
        """The plan as it was saved."""
        return Plan(**{f.name: getattr(self, f.name) for f in fields(Plan)})

    def apply(self, cell: Any, *inputs: Any, replace_shard: bool = False) -> None:
        """Give the strategies to `cell`, the forward network with its loss; `inputs` have global shapes, those of all
        micro-batches together. With `replace_shard` what is written in `cell` by hand gives way, as of `Options`.

        InputError if the plan is for another network.
        """
        parts = inputs if self.pipeline is None else micro_batch(inputs, self.micro_batch_num)
        unset_factors(cell)
        graph = capture(cell, *parts)
        put(cell, graph, self.plan, self.graph, replace_shard, inputs)


def load_plan(path: str | os.PathLike[str], edited: bool = False, trust: bool = False) -> StoredPlan:
    """The plan in a directory, or in its plan.json.

    Args:
        path: The directory that `symtensor plan --out` or `save_plan` wrote.
        edited: Go on with files that are not as they were written.
        trust: The file that the plan's factory stands in may run (`verify`), whoever made the plan.

    Returns:
        A plan with its graph; `apply(net, *inputs)` sets it on a network.

    Raises:
        InputError: There is no plan, it is damaged, or a file of the directory is not as it was written.

    Example:
        >>> ms_symtensor.load_plan("plan/mine").apply(net, *inputs)
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"load_plan takes the path of a directory, and was given {path!r}")
    folder = read(path, edited)
    plan = plan_in(folder, trust)
    return StoredPlan(**{f.name: getattr(plan, f.name) for f in fields(Plan)}, graph=graph_in(folder))


def plan_network(
    cell: Any,
    *inputs: Any,
    device_num: int | None = None,
    pipeline_stages: int = 1,
    micro_batch_num: int = 1,
    **options: Any,
) -> Plan:
    """Plan `cell`, a forward network with its loss, and set the strategies on it.

    Afterwards `search_mode="symtensor"` uses this plan. Without it, compile with
    `context_settings(plan.settings, plan.pipeline)`.

    Args:
        cell: The forward network with its loss.
        inputs: Global shapes, of the whole batch; they may be without values.
        device_num: Number of devices; None: that of MindSpore's parallel context.
        pipeline_stages: Stages that the blocks are laid out over.
        micro_batch_num: Micro-batches that the inputs are cut into.
        options: Fields of `Options`, as of `configure`.

    Returns:
        The plan.

    Raises:
        InputError: The batch cannot be cut so, or an option is unknown.
        InfeasibleError: Nothing fits.
        UnknownOperatorError: An operator has no rule.
        CompilerError: MindSpore rejects the network.
    """
    task = task_of(cell, inputs, device_num, pipeline_stages, micro_batch_num, **options)
    return carry_out(cell, task)


@dataclass(frozen=True)
class Task:
    """A network to be planned: `graph` and `inputs` of one micro-batch, the inputs of the `whole` batch, and what is `asked`.

    That is a request for a plan, or the plan itself.
    """

    graph: Graph
    inputs: tuple[Any, ...]
    whole: tuple[Any, ...]
    asked: Request | StoredPlan
    pipeline_stages: int
    micro_batch_num: int
    options: Options

    @property
    def facts(self) -> Facts:
        """What the plan is asked for, or was made for."""
        if isinstance(self.asked, StoredPlan):
            return facts_of_request(self.asked.plan)
        limits, cluster = self.asked.limits, self.asked.cluster
        return request_facts(
            self.graph.hash, self.asked.device_num, self.pipeline_stages, self.micro_batch_num, cluster, self.asked.limit_B,
            limits.fixed, limits.at_most,
        )  # fmt: skip

    @property
    def origin(self) -> str:
        """Where the plan is from, in words."""
        return f"saved plan {self.options.strategy}" if isinstance(self.asked, StoredPlan) else "searched"


def task_of(
    cell: Any,
    inputs: Sequence[Any],
    device_num: int | None = None,
    pipeline_stages: int = 1,
    micro_batch_num: int = 1,
    **options: Any,
) -> Task:
    """What `plan_network` is to do, which takes the same: the network captured, the options read. Nothing is searched."""
    from mindspore.parallel._utils import _get_device_num

    chosen = _with(current_options(), options)
    number = _get_device_num() if device_num is None else whole_number("device_num", device_num)
    whole_number("pipeline_stages", pipeline_stages)
    whole_number("micro_batch_num", micro_batch_num)
    stored = None if chosen.strategy is None else load_plan(chosen.strategy, chosen.edited)
    if stored is not None:
        pipeline_stages, micro_batch_num = _as_stored(stored.plan, pipeline_stages, micro_batch_num)
    else:
        _require_numbers(type(cell).__name__, number, chosen, pipeline_stages, micro_batch_num)
    unset_factors(cell)
    whole = inputs
    if max(pipeline_stages, micro_batch_num) > 1:
        inputs = micro_batch(inputs, micro_batch_num)
    graph = capture(cell, *inputs)
    if stored is not None and stored.plan.device_num != number:
        raise InputError(
            f"the plan {chosen.strategy} is for {stored.plan.device_num} devices, not for {number}: plan again for {number}"
        )
    asked = stored or _request(graph, number, chosen, micro_batch_num)
    return Task(graph, tuple(inputs), tuple(whole), asked, pipeline_stages, micro_batch_num, chosen)


def carry_out(cell: Any, task: Task) -> Plan:
    """The plan of `task`, searched unless it is stored, on `cell`, and written where the options say so."""
    if isinstance(task.asked, StoredPlan):
        found, planned = task.asked.plan, task.asked.graph
    else:
        found, planned = _searched(cell, task, task.asked), task.graph
        found = replace(found, made_with={**found.made_with, "mindspore": import_mindspore().__version__})
    found = put(cell, task.graph, found, planned, task.options.replace_shard, task.whole)
    if task.options.save is not None:
        save(found, Path(task.options.save), task.graph)
    return found


def put(
    cell: Any,
    graph: Graph,
    plan: Plan,
    planned: Graph | None = None,
    replace_shard: bool = False,
    whole: Sequence[Any] = (),
) -> Plan:
    """Apply `plan` to `cell` and note it there; with `replace_shard` in place of what is written in it by hand.

    In micro-batches, of which `graph` is one, its loss is counted over the inputs `whole`. The plan with what comes of it is
    returned.
    """
    apply(cell, graph, plan, planned, replace_shard=replace_shard)
    search_mode.request.planned = True
    if plan.pipeline is not None:
        plan = replace(plan, loss=_loss(cell, whole, graph))
    cell.__dict__[_PLAN] = plan
    cell.__dict__[_SHAPES] = shapes(whole)
    for _, part in cell.cells_and_names():
        part.__dict__[_PART] = plan
    return plan


def count_over_batch(cell: Any, *inputs: Any, micro_batch_num: int) -> str:
    """Have the loss of `cell`, a forward network with its loss, be that of the whole batch in `micro_batch_num` micro-batches.

    For a network that is laid out by `shard()` alone, and is put into MindSpore's `PipelineCell` or `GradAccumulationCell`
    afterwards; planned ones (`plan_network`, `load_plan(…).apply`) have it. What micro-batches make of the loss is returned,
    one of the texts of `MicroBatchLoss`; a warning where that is the mean of micro-batch means.

    Args:
        cell: The forward network with its loss.
        inputs: Of the whole batch, global shapes; they may be without values.
        micro_batch_num: How many micro-batches the batch is cut into.

    Returns:
        "as one batch", "counted over the whole batch" or "mean of micro-batch means".

    Raises:
        InputError: The batch cannot be cut so.
    """
    number = whole_number("micro_batch_num", micro_batch_num)
    unset_factors(cell)
    return _loss(cell, inputs, capture(cell, *micro_batch(inputs, number))).value


def _loss(cell: Any, whole: Sequence[Any], graph: Graph) -> MicroBatchLoss:
    """Have the loss of `cell` counted over the inputs `whole`, `graph` being that of a micro-batch; what comes of it.

    A warning where the loss is another one than that of the whole batch.
    """
    found = loss_of(set_factors(cell, graph, capture(cell, *whole)))
    if found is MicroBatchLoss.MEAN_OF_MEANS:
        warnings.warn(f"ms_symtensor: {type(cell).__name__}: {loss_note(found)}", stacklevel=3)
    return found


def plan_on(cell: Any) -> Plan | None:
    """The plan that `cell`, or a network in it, or one that it is part of, carries."""
    inside = (c.__dict__[_PLAN] for _, c in cell.cells_and_names() if _PLAN in c.__dict__)
    found: Plan | None = next(inside, cell.__dict__.get(_PART))
    return found


def shapes(inputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """The shapes of the tensors in `inputs`."""
    return tuple(tuple(one.shape) for one in inputs if hasattr(one, "shape"))


def planned_shapes(cell: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of the whole batch's inputs that the network in `cell` was planned for; empty where they are not known."""
    found: tuple[tuple[int, ...], ...] = next(
        (c.__dict__[_SHAPES] for _, c in cell.cells_and_names() if _SHAPES in c.__dict__), ()
    )
    return found


def plan_of_parts(cell: Any) -> Plan | None:
    """The plan that all weights in `cell` are part of, if that is one: of a cell that evaluates a planned network."""
    owners = [part for _, part in cell.cells_and_names() if part._params]
    plans = [part.__dict__.get(_PART) for part in owners]
    return plans[0] if plans and all(plan is plans[0] for plan in plans) else None


def require_as_planned(cell: Any, plan: Plan, device_num: int) -> None:
    """InputError if `plan`, which the network in `cell` carries, is for other devices, or not for all its cells."""
    if plan.device_num != device_num:
        raise InputError(
            f"the network is planned for {plan.device_num} devices, and {device_num} are there: plan it again for {device_num}"
        )
    for _, network in cell.cells_and_names():
        if network.__dict__.get(_PLAN) is plan:
            new = [path for path, part in network.cells_and_names() if part.__dict__.get(_PART) is not plan]
            if new:
                raise InputError(
                    f"{type(network).__name__} is not the network that was planned ({new[0]} is new, or was planned with another"
                    " network since): plan it again, ms_symtensor.plan_network(net, *inputs)"
                )


def forget(cell: Any) -> None:
    """Take the plan off `cell` again."""
    for _, owner in cell.cells_and_names():
        for mark in (_PLAN, _PART, _SHAPES):
            owner.__dict__.pop(mark, None)
    remove(cell)


def _as_stored(plan: Plan, pipeline_stages: int, micro_batch_num: int) -> tuple[int, int]:
    """The stages and micro-batches of a saved plan; InputError if the user asks for others."""
    if max(pipeline_stages, micro_batch_num) > 1 and (pipeline_stages, micro_batch_num) != (
        plan.pipeline_stages,
        plan.micro_batch_num,
    ):
        raise InputError(
            f"the saved plan has {plan.pipeline_stages} pipeline stages and {plan.micro_batch_num} micro-batches, the network"
            f" {pipeline_stages} and {micro_batch_num}: plan again, or set it up so"
        )
    return plan.pipeline_stages, plan.micro_batch_num


def _require_numbers(name: str, device_num: int, options: Options, stages: int, micro_batch_num: int) -> None:
    """InputError, before the network is captured, for numbers that no plan can have."""
    from ms_symtensor.search.fixed_pipeline import as_built
    from ms_symtensor.search.possible import require_numbers

    limits = limits_of(options.fix.items(), options.at_most.items())
    if max(stages, micro_batch_num) > 1:
        limits = as_built(limits, name, stages, micro_batch_num)
    require_numbers(cluster_of(options.cluster), device_num, limits)


def _request(graph: Graph, device_num: int, options: Options, micro_batch_num: int) -> Request:
    """What is asked of a plan for the network whose micro-batch is `graph`."""
    batch, sequence = batch_and_sequence(graph)
    cluster = cluster_of(options.cluster)
    limit_B = free_B(cluster) if options.memory_limit_B is None else int(options.memory_limit_B)
    limits = limits_of(options.fix.items(), options.at_most.items())
    return Request(cluster, device_num, batch * micro_batch_num, sequence, limit_B, graph.name, limits=limits)


def _searched(cell: Any, task: Task, request: Request) -> Plan:
    """The best plan of `cell` for `request` in the stages and micro-batches of `task`."""
    from ms_symtensor.bridge.plugin.micro_batches import what_fits_in_micro_batches
    from ms_symtensor.search.constraints.floor import floor_of
    from ms_symtensor.search.fixed_pipeline import fixed_pipeline
    from ms_symtensor.search.nearest import naming_what_fits
    from ms_symtensor.search.plan import planned

    graph, stages, micro_batch_num = task.graph, task.pipeline_stages, task.micro_batch_num
    floor = floor_of(graph)
    floor.require_room(request)
    if max(stages, micro_batch_num) > 1:
        return naming_what_fits(
            request, lambda wanted: fixed_pipeline(graph, wanted, stages, micro_batch_num), floor=floor
        )
    try:
        return naming_what_fits(request, lambda wanted: planned(graph, wanted), floor=floor)
    except InfeasibleError as error:
        raise InfeasibleError(f"{error}{what_fits_in_micro_batches(cell, task.inputs, graph, request)}") from None
