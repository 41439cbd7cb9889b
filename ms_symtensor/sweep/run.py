"""The plan of one point, and what is told of it; a process of its own may run it."""

import argparse
from collections.abc import Mapping
from typing import Any

from ms_symtensor.arguments import limits, memory_limit_B
from ms_symtensor.cluster.load import FRACTIONS
from ms_symtensor.cluster.load import load as load_cluster
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.bill import Bill, Message, work_s
from ms_symtensor.cost.plan_price import PlanBill, plan_bill
from ms_symtensor.cost.runtime import DEFAULT, runtime_of
from ms_symtensor.errors import InputError, SymTensorError
from ms_symtensor.models import asked
from ms_symtensor.program.program import Phase
from ms_symtensor.report.html.exchanges import level_of
from ms_symtensor.report.rates import rates
from ms_symtensor.report.recomputation import in_short
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.possible import require_devices
from ms_symtensor.strategy.as_run import as_run_by
from ms_symtensor.strategy.plan import Plan
from ms_symtensor.sweep.elasticities import elasticities
from ms_symtensor.sweep.parameters import changed, value_at
from ms_symtensor.sweep.points import Point
from ms_symtensor.target_plans import planned_in_any_form
from ms_symtensor.tensor.graph import Graph

DEGREES = (
    "data_parallel", "model_parallel", "context_parallel", "expert_parallel", "pipeline_stages", "micro_batch_num",
    "pp_interleave_num",
)  # fmt: skip
Row = dict[str, Any]


def cluster_of(point: Point) -> Cluster:
    """The cluster of a point, its numbers changed. InputError for an unknown one, for a path that it does not have, and for a
    number that no file may have or no plan hangs on.
    """
    found = load_cluster(point.cluster)
    for path, factor in point.factors:
        if path == "device.hbm_capacity_B":
            raise InputError(f"no plan hangs on {path}, but on what is usable of it: vary device.hbm_usable_B")
        found = changed(found, path, factor)
        value = value_at(found, path)
        if path.rpartition(".")[2] in FRACTIONS and value > 1:
            raise InputError(f"--vary {path}={factor:g}: {value:.3g} on {point.cluster} is no fraction: give less")
    return found


def row_of(point: Point, options: Mapping[str, Any]) -> Row:
    """What is told of a point: the figures of its plan, or `why` there is none. `options`: those of the command line."""
    row: Row = {
        "cluster": point.cluster, "device_num": point.device_num, "factors": dict(point.factors),
        "global_batch_size": point.global_batch_size, "seq_length": point.seq_length,
    }  # fmt: skip
    try:
        cluster = cluster_of(point)
        require_devices(cluster, point.device_num)
        model = asked({**options, "global_batch_size": point.global_batch_size, "seq_length": point.seq_length})
        row |= {"global_batch_size": model.global_batch_size, "seq_length": model.seq_length}
        request = Request(
            cluster, point.device_num, model.global_batch_size, model.seq_length,
            memory_limit_B(cluster, options["memory_limit"], options["memory_margin"]), model.name, model.source,
            limits(options["fix"], options["max"]),
            runtime=runtime_of(options["runtime"] or DEFAULT, options["hide"]),
        )  # fmt: skip
        plan, graph = planned_in_any_form(model, request)
    except SymTensorError as error:
        return {**row, "why": str(error)}
    return row | _figures(plan, graph, cluster, options["cost_per_hour"])


def _figures(plan: Plan, graph: Graph, cluster: Cluster, cost_per_hour: float | None) -> Row:
    runtime = runtime_of(plan.runtime, plan.hide)
    bill = plan_bill(graph, as_run_by(plan, graph, runtime), plan.pipeline, fuses=runtime.fuses)
    rate, found = rates(plan, graph), elasticities(bill, cluster, runtime)
    tokens_s = rate["tokens_per_s_device"]
    power_W, cost = cluster.device.power_W, cost_per_hour or cluster.device.cost_per_hour
    recompute_s = _recompute_s(bill, cluster, plan.micro_batch_num)
    parts = dict(plan.prediction.time_s)
    parts["compute"] -= recompute_s
    return {
        "step_time_s": plan.prediction.step_time_s,
        **rate,
        "tokens_per_s": tokens_s * plan.device_num,
        "peak_memory_B": plan.prediction.peak_memory_B,
        "fits": plan.prediction.fits,
        **{name: getattr(plan, name) for name in DEGREES},
        "sequence_parallel": plan.sequence_parallel,
        "optimizer_level": int(plan.settings.optimizer_level),
        "recompute": in_short(plan.settings.recompute),
        "time_s": {**parts, "recompute": recompute_s},
        "levels": levels(bill, cluster),
        "power_W": power_W,
        "tokens_per_J": None if power_W is None else tokens_s / power_W,
        "cost_per_hour": cost,
        "cost_per_1e12_tokens": None if cost is None else cost / 3600 / tokens_s * 1e12,
        "elasticities": found.of,
        "elasticities_euler": found.euler,
        "optimality_gap": plan.search.optimality_gap,
    }


def levels(bill: PlanBill, cluster: Cluster) -> dict[str, str]:
    """For every part of communication the levels of the cluster on which most of its seconds are spent."""
    sums: dict[str, dict[str, float]] = {}
    for one in (stage.bill for stage in bill.stages):
        for key, works in one.items.items():
            for work, count in works.items():
                if isinstance(work, Message) and len(work.ranks) > 1:
                    of = sums.setdefault(key.part.value, {})
                    level = level_of(cluster, work.ranks)
                    of[level] = of.get(level, 0.0) + count * work_s(work, cluster)
    return {part: max(sorted(of), key=of.__getitem__) for part, of in sorted(sums.items())}


def _recompute_s(bill: PlanBill, cluster: Cluster, micro_batch_num: int) -> float:
    """Seconds of operators that an average stage recomputes in a step."""

    def of(one: Bill) -> float:
        return sum(
            count * work_s(work, cluster)
            for key, works in one.items.items()
            for work, count in works.items()
            if key.phase is Phase.RECOMPUTE and not isinstance(work, Message)
        )

    return micro_batch_num * sum(of(stage.bill) for stage in bill.stages) / len(bill.stages)


def options_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """What of the command line every point shares, as plain data."""
    return {name: value for name, value in vars(chosen).items() if name not in ("global_batch_size", "seq_length")}
