"""Plans as files: `plan.json` holds the plan, and only what the plan's input decides, so equal input gives equal bytes.

How long the search took differs from run to run and stands beside it, in `timing.json`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.load import from_content
from ms_symtensor.cost.runtime import DEFAULT
from ms_symtensor.errors import InputError
from ms_symtensor.files.reading import parsed_json
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.schedules import DEFAULT_SCHEDULER, SCHEDULERS
from ms_symtensor.program.settings import OptimizerLevel, Recompute, Settings, StagePlan
from ms_symtensor.strategy.considered import Considered
from ms_symtensor.strategy.digest import sealed
from ms_symtensor.strategy.folder import (
    DIGESTS_FILE,
    GRAPH_FILE,
    PLAN_FILE,
    TIMING_FILE,
    PlanFolder,
    missing_digests,
    read,
    write,
)
from ms_symtensor.strategy.plan import SIZES, MicroBatchLoss, Plan, Prediction, SearchReport
from ms_symtensor.strategy.reading import Field
from ms_symtensor.strategy.trust import is_trusted
from ms_symtensor.strategy.writing import json_text
from ms_symtensor.tensor import graph_file
from ms_symtensor.tensor.graph import Graph

FORMAT = "symtensor-plan"
VERSION = 6
KNOWN_CLUSTERS_VERSION = 5
"""Plans for clusters that come with the package."""
BLOCKS_AS_CELLS_VERSION = 4
"""Plans in which no operator is recomputed by itself."""
DEVICE_STATES_VERSION = 3
"""Plans whose optimizer states stay on the device."""
WHOLE_BLOCKS_VERSION = 2
"""Plans that recompute whole blocks, or none."""
ONE_STAGE_VERSION = 1
"""Plans of one stage only, as they were written before there were pipelines; they are still read."""
_REMEDY = "plan again"
_NAMED = ("kept", "kept_communication", "only")
"""The keys of `Recompute` that name operators."""


def files_of(plan: Plan, graph: Graph | None = None) -> dict[str, str]:
    """The files of a plan's directory, by name: the plan, the search time, and the `graph` it was found on, if
    given.
    """
    files = {
        PLAN_FILE: json_text(to_json(plan)),
        TIMING_FILE: sealed({"search_time_s": plan.search.search_time_s}),
    }
    if graph is not None:
        files[GRAPH_FILE] = json_text(graph_file.to_json(graph))
    return files


def save(plan: Plan, directory: str | os.PathLike[str], graph: Graph | None = None) -> None:
    """Write `plan` into a directory, in place of the plan that was there: all files or none.

    Args:
        plan: The plan.
        directory: Where to write it, with the digests of its files.
        graph: The graph that it is for; `explain` and `verify` read it.

    Raises:
        InputError: The directory cannot be written.
    """
    if not (isinstance(plan, Plan) and isinstance(directory, str | os.PathLike) and isinstance(graph, Graph | None)):
        found = ", ".join(type(given).__name__ for given in (plan, directory, graph))
        raise InputError(f"save_plan takes (plan, directory, graph), and was given ({found})")
    write(directory, files_of(plan, graph))


def load(path: str | os.PathLike[str], edited: bool = False, trust: bool = False) -> Plan:
    """The plan in a directory that `save` wrote, or in a `plan.json` itself; `edited` and `trust` as of `plan_in`.

    The search time is 0 where its file is missing. InputError, with file and key, if the plan cannot be read, is
    truncated, foreign, from a newer version, or was edited into something that is no plan; unless `edited`, if any file of the
    directory is not as it was written.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"load_plan takes the path of a directory, and was given {path!r}")
    return plan_in(read(path, edited), trust)


def plan_in(folder: PlanFolder, trust: bool = False) -> Plan:
    """The plan in `folder`. It is trusted (`Plan.trusted`) with `trust`, or where this user's own `plan` made the folder.

    Errors: as of `load`.
    """
    data = parsed_json(folder.files.get(folder.file.name, b""), folder.file, "the plan", _REMEDY)
    seconds = 0.0
    if TIMING_FILE in folder:
        timing = folder.path(TIMING_FILE)
        times = parsed_json(folder.files[TIMING_FILE], timing, "the search time", _REMEDY)
        seconds = Field(times, str(timing), remedy=_REMEDY)["search_time_s"].number(0.0)
    plan = from_json(data, str(folder.file), seconds)
    if plan.made_with and DIGESTS_FILE not in folder and not folder.edited:
        raise missing_digests(folder)
    return replace(plan, trusted=True) if not plan.trusted and (trust or is_trusted(folder)) else plan


def load_graph(path: str | os.PathLike[str], edited: bool = False) -> Graph | None:
    """The graph saved in a plan's directory (or beside a `plan.json`), None if there is none. InputError as of `load`."""
    return graph_in(read(path, edited))


def graph_in(folder: PlanFolder) -> Graph | None:
    """The graph in `folder`, None if there is none. InputError if it cannot be read."""
    return graph_file.read(folder.files[GRAPH_FILE], folder.path(GRAPH_FILE)) if GRAPH_FILE in folder else None


def check(plan: Plan, graph: Graph, planned: Graph | None = None) -> None:
    """InputError if `plan` was made for another graph; `planned`, the graph it was made for, makes the reason exact."""
    if plan.graph_hash == graph.hash:
        return
    reason = _difference(plan, graph, planned)
    raise InputError(
        f"the plan is for graph {plan.graph_hash[:12]} ({plan.model}), this network's graph is {graph.hash[:12]}"
        f" ({graph.name}); {reason}: plan this network, or build it as it was when it was planned"
    )


def _difference(plan: Plan, graph: Graph, planned: Graph | None) -> str:
    if planned is not None and planned.hash == plan.graph_hash:
        for ours, theirs in zip(graph.ops, planned.ops, strict=False):
            if ours != theirs:
                before, now = (", ".join(map(str, op.outputs)) for op in (theirs, ours))
                if ours.name != theirs.name:
                    return f"first difference: the plan has {theirs.name}, the network {ours.name}"
                if before != now:
                    return f"first difference: {ours.name} gave {before} in the plan and gives {now} in the network"
                return f"first difference: {ours.name} has other inputs or attributes"
        if len(graph.ops) != len(planned.ops):
            longer = max(graph.ops, planned.ops, key=len)
            extra = longer[min(len(graph.ops), len(planned.ops))].name
            return f"first difference: {extra} is in {'the network' if longer is graph.ops else 'the plan'} only"
        return "their operators are alike, but not their inputs or parameters"
    for name in plan.strategies:
        if name not in graph.op_by_name:
            return f"first difference: the plan's operator {name} is not in the network"
    blocks = {op.block for op in graph.ops}
    for block in plan.settings.recompute:
        if block not in blocks:
            return f"first difference: the plan's block {block} is not in the network"
    types = {graph.op_by_name[name].type for name in plan.strategies}
    for op in graph.ops:
        if op.type in types and op.name not in plan.strategies:
            return f"first difference: the network's operator {op.name} is not in the plan"
    return "the operators have the same names, but other shapes, types or attributes"


def to_json(plan: Plan) -> dict[str, Any]:
    """`plan` as plain JSON data, the search time left out."""
    return {
        "format": FORMAT,
        "version": _version(plan),
        "model": plan.model,
        "graph_hash": plan.graph_hash,
        "cluster": plan.cluster,
        **({} if plan.own_cluster is None else {"cluster_file": to_content(plan.own_cluster)}),
        "made_with": dict(sorted(plan.made_with.items())),
        "source": dict(sorted(plan.source.items())),
        **({"runtime": plan.runtime} if plan.runtime != DEFAULT else {}),
        **({"hide": plan.hide} if plan.hide else {}),
        **{name: getattr(plan, name) for name in SIZES},
        "micro_batch_num": plan.micro_batch_num,
        **({} if plan.pipeline_scheduler == DEFAULT_SCHEDULER else {"pipeline_scheduler": plan.pipeline_scheduler}),
        **({} if plan.loss is None else {"loss": plan.loss.value}),
        "fixed": dict(plan.fixed),
        "at_most": dict(plan.at_most),
        "prediction": {
            "time_s": dict(sorted(plan.prediction.time_s.items())),
            "memory_B": dict(sorted(plan.prediction.memory_B.items())),
            "fits": plan.prediction.fits,
            "limit_B": plan.prediction.limit_B,
            **({"host_memory_B": plan.prediction.host_memory_B} if plan.settings.swap_optimizer else {}),
            **{
                name: dict(sorted(seconds.items()))
                for name, seconds in (("hidden_s", plan.prediction.hidden_s), ("experts_s", plan.prediction.experts_s))
                if seconds
            },
        },
        "search": {
            "candidates": plan.search.candidates,
            "optimality_gap": plan.search.optimality_gap,
            "method": plan.search.method,
            "considered": [_considered_to_json(one) for one in plan.search.considered],
        },
        "stages": [
            {
                "layers": []
                if plan.pipeline is None
                else [[run.start, run.stop] for run in plan.pipeline.layers[number]],
                "settings": _settings_to_json(stage.settings),
                "strategies": {name: _strategy_to_json(strategy) for name, strategy in stage.strategies.items()},
            }
            for number, stage in enumerate(plan.stages)
        ],
    }


def _version(plan: Plan) -> int:
    """The oldest version that can say it."""
    every = plan.settings.recompute.values()
    if plan.own_cluster is not None:
        return VERSION
    if any(recomputation.only for recomputation in every):
        return KNOWN_CLUSTERS_VERSION
    if plan.settings.swap_optimizer:
        return BLOCKS_AS_CELLS_VERSION
    in_part = any(recomputation.in_part for recomputation in every)
    return DEVICE_STATES_VERSION if in_part else WHOLE_BLOCKS_VERSION


def _settings_to_json(settings: Settings) -> dict[str, Any]:
    return {
        "device_num": settings.device_num,
        "enable_alltoall": settings.enable_alltoall,
        "optimizer_level": int(settings.optimizer_level),
        "optimizer_weight_shard_size": settings.optimizer_weight_shard_size,
        "parallel_optimizer_threshold_KB": settings.parallel_optimizer_threshold_KB,
        "gradient_fp32_sync": settings.gradient_fp32_sync,
        **({"swap_optimizer": True} if settings.swap_optimizer else {}),
        "recompute": {block: _recompute_to_json(recompute) for block, recompute in settings.recompute.items()},
    }


def _recompute_to_json(recompute: Recompute) -> dict[str, Any]:
    named = {key: list(names) for key in _NAMED if (names := getattr(recompute, key))}
    return {"communication": recompute.communication} | named


def from_json(data: Any, origin: str = "the data", search_time_s: float = 0.0) -> Plan:
    """The plan behind `to_json`'s data, not trusted if it names a factory; InputError, naming `origin` and the key, if it is
    something else.
    """
    root = Field(data, origin, remedy=_REMEDY)
    older = (
        KNOWN_CLUSTERS_VERSION,
        BLOCKS_AS_CELLS_VERSION,
        DEVICE_STATES_VERSION,
        WHOLE_BLOCKS_VERSION,
        ONE_STAGE_VERSION,
    )
    root.require_format(FORMAT, VERSION, "a plan of ms_symtensor", older)
    prediction, search = root["prediction"], root["search"]
    stages = [root] if root.value["version"] == ONE_STAGE_VERSION else root["stages"].items_of_list()
    try:
        return _plan(root, prediction, search, stages, search_time_s)
    except InputError as error:
        raise error if origin in str(error) else InputError(f"{origin}: {error}") from error


def _plan(root: Field, prediction: Field, search: Field, stages: Sequence[Field], search_time_s: float) -> Plan:
    return Plan(
        model=root["model"].text(),
        graph_hash=root["graph_hash"].text(),
        cluster=root["cluster"].text(),
        stages=tuple(
            StagePlan(_mapping(s["strategies"], _strategy_from_json), _settings_from_json(s["settings"]))
            for s in stages
        ),
        global_batch_size=root["global_batch_size"].integer(0),
        seq_length=root["seq_length"].integer(0),
        data_parallel=root["data_parallel"].integer(1),
        model_parallel=root["model_parallel"].integer(1),
        sequence_parallel=root["sequence_parallel"].flag(),
        prediction=Prediction(
            time_s=_time_s_from_json(prediction["time_s"]),
            memory_B=_mapping(prediction["memory_B"], lambda item: item.integer(0)),
            fits=prediction["fits"].flag(),
            limit_B=prediction["limit_B"].integer(0),
            host_memory_B=prediction["host_memory_B"].integer(0) if "host_memory_B" in prediction else 0,
            **{
                name: _mapping(prediction[name], lambda item: item.number(0.0))
                for name in ("hidden_s", "experts_s")
                if name in prediction
            },
        ),
        search=SearchReport(
            candidates=search["candidates"].integer(0),
            search_time_s=search_time_s,
            optimality_gap=search["optimality_gap"].number(0.0),
            method=search["method"].text(),
            considered=tuple(map(_considered_from_json, search["considered"].items_of_list()))
            if "considered" in search
            else (),
        ),
        runtime=root["runtime"].text() if "runtime" in root else DEFAULT,
        hide=root["hide"].text() if "hide" in root else "",
        pipeline=_pipeline_from_json(stages, root["micro_batch_num"], _scheduler(root)),
        source=_mapping(root["source"], lambda item: item.text()),
        fixed=_mapping(root["fixed"], Field.text) if "fixed" in root else {},
        at_most=_mapping(root["at_most"], Field.text) if "at_most" in root else {},
        trusted="factory" not in root["source"],
        made_with=_mapping(root["made_with"], Field.text) if "made_with" in root else {},
        own_cluster=from_content(root["cluster_file"].value, root.origin) if "cluster_file" in root else None,
        loss=_loss_from_json(root["loss"]) if "loss" in root else None,
        context_parallel=root["context_parallel"].integer(1) if "context_parallel" in root else 1,
        expert_parallel=root["expert_parallel"].integer(1) if "expert_parallel" in root else 1,
    )


def _loss_from_json(field: Field) -> MicroBatchLoss:
    found = {one.value: one for one in MicroBatchLoss}.get(field.text())
    if found is None:
        known = ", ".join(one.value for one in MicroBatchLoss)
        raise InputError(f"{field.origin}: {field.key} must be one of {known}: {field.remedy}")
    return found


def _time_s_from_json(field: Field) -> Mapping[str, float]:
    """What the parts of a step take; InputError if that is nothing."""
    found = _mapping(field, lambda item: item.number(0.0))
    if not sum(found.values()) > 0:
        raise InputError(f"{field.origin}: {field.key} must hold the seconds of a step, above 0: {field.remedy}")
    return found


def _considered_to_json(one: Considered) -> dict[str, Any]:
    data = asdict(one) | {"mesh": list(one.mesh), "time_s": dict(sorted(one.time_s.items()))}
    if one.pp_interleave_num == 1:
        del data["pp_interleave_num"]
    if one.pipeline_scheduler == DEFAULT_SCHEDULER:
        del data["pipeline_scheduler"]
    return {name: value for name, value in data.items() if value is not None and value not in ({}, inf)}


def _considered_from_json(field: Field) -> Considered:
    return Considered(
        pipeline_stages=field["pipeline_stages"].integer(1),
        micro_batch_num=field["micro_batch_num"].integer(1),
        mesh=tuple(axis.integer(1) for axis in field["mesh"].items_of_list()),
        bound_s=field["bound_s"].number(0.0) if "bound_s" in field else inf,
        fits=field["fits"].flag(),
        step_time_s=field["step_time_s"].number(0.0) if "step_time_s" in field else None,
        peak_memory_B=field["peak_memory_B"].integer(0) if "peak_memory_B" in field else None,
        time_s=_mapping(field["time_s"], lambda item: item.number(0.0)) if "time_s" in field else {},
        pp_interleave_num=field["pp_interleave_num"].integer(1) if "pp_interleave_num" in field else 1,
        pipeline_scheduler=_scheduler(field),
    )


def _scheduler(field: Field) -> str:
    return field["pipeline_scheduler"].one_of(SCHEDULERS) if "pipeline_scheduler" in field else DEFAULT_SCHEDULER


def _pipeline_from_json(stages: Sequence[Field], micro_batch_num: Field, scheduler: str) -> Pipeline | None:
    if len(stages) == 1 and micro_batch_num.integer(1) == 1:
        return None
    layers = tuple(tuple(map(_run_from_json, stage["layers"].items_of_list())) for stage in stages)
    return Pipeline(layers, micro_batch_num.integer(1), scheduler=scheduler)


def _run_from_json(field: Field) -> range:
    ends = [end.integer(0) for end in field.items_of_list()]
    if len(ends) != 2:
        raise InputError(
            f"{field.origin}: {field.key} must be the first layer and the one behind the last: {field.remedy}"
        )
    return range(*ends)


def _settings_from_json(settings: Field) -> Settings:
    return Settings(
        device_num=settings["device_num"].integer(1),
        enable_alltoall=settings["enable_alltoall"].flag(),
        optimizer_level=OptimizerLevel(settings["optimizer_level"].integer(0, max(OptimizerLevel))),
        optimizer_weight_shard_size=settings["optimizer_weight_shard_size"].integer(-1),
        parallel_optimizer_threshold_KB=settings["parallel_optimizer_threshold_KB"].integer(0),
        gradient_fp32_sync=settings["gradient_fp32_sync"].flag(),
        swap_optimizer="swap_optimizer" in settings and settings["swap_optimizer"].flag(),
        recompute=_mapping(settings["recompute"], _recompute_from_json),
    )


def _recompute_from_json(field: Field) -> Recompute:
    named: dict[str, Any] = {}
    for key in (key for key in _NAMED if key in field):
        named[key] = tuple(name.text() for name in field[key].items_of_list())
    if named.get("only") and len(named) > 1:
        raise InputError(f"{field.key} has only, and what is kept beside it: {field.remedy}")
    return Recompute(field["communication"].flag(), **named)


def _mapping(field: Field, read: Callable[[Field], Any]) -> Mapping[str, Any]:
    return {name: read(item) for name, item in field.items()}


def _strategy_to_json(strategy: OpStrategy) -> dict[str, Any]:
    data: dict[str, Any] = {"in": [list(degrees) for degrees in strategy.inputs]}
    if strategy.outputs is not None:
        data["out"] = [list(degrees) for degrees in strategy.outputs]
    return data


def _strategy_from_json(field: Field) -> OpStrategy:
    return OpStrategy(field["in"].degrees(), field["out"].degrees() if "out" in field else None)
