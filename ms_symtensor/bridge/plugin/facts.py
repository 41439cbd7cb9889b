"""What decides the program of a rank, as short texts that ranks compare: what is asked of its plan, and the plan."""

from collections.abc import Mapping
from dataclasses import fields

import ms_symtensor.version
from ms_symtensor.cluster.content import to_content
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.search.constraints.request import GIB
from ms_symtensor.strategy.digest import of_data
from ms_symtensor.strategy.file import to_json
from ms_symtensor.strategy.plan import Plan

Facts = Mapping[str, str]
"""Values by name, in the order in which differences are told."""
_DIGITS = 8
"""Hexadecimal digits of a digest that people are shown; one in 4e9 pairs that differ is equal in them."""


def request_facts(
    graph_hash: str,
    device_num: int,
    pipeline_stages: int,
    micro_batch_num: int,
    cluster: Cluster,
    limit_B: int,
    fixed: Mapping[str, str],
    at_most: Mapping[str, str],
) -> Facts:
    """What a plan is asked for, or was made for."""
    import mindspore

    return {
        "version of ms_symtensor": ms_symtensor.__version__,
        "version of MindSpore": str(mindspore.__version__),
        "network": graph_hash[:_DIGITS],
        "device_num": str(device_num),
        "pipeline_stages": str(pipeline_stages),
        "micro_batch_num": str(micro_batch_num),
        "cluster": f"{cluster.name} ({of_data(to_content(cluster))[:_DIGITS]})",
        "memory limit": f"{limit_B / GIB:.11g} GiB",  # 11 digits tell bytes apart
        "fix": _pairs(fixed),
        "at_most": _pairs(at_most),
    }


def facts_of_request(plan: Plan) -> Facts:
    """What `plan` was made for; the versions are those of this process, which carries it out."""
    return request_facts(
        plan.graph_hash,
        plan.device_num,
        plan.pipeline_stages,
        plan.micro_batch_num,
        plan.planned_for,
        plan.prediction.limit_B,
        plan.fixed,
        plan.at_most,
    )


def plan_facts(plan: Plan) -> Facts:
    """What `plan` says of the program: no prediction, which may differ in the last digit from machine to machine."""
    settings = plan.settings
    stages = to_json(plan)["stages"]
    return {
        "data_parallel": str(plan.data_parallel),
        "model_parallel": str(plan.model_parallel),
        "context_parallel": str(plan.context_parallel),
        "expert_parallel": str(plan.expert_parallel),
        **{
            f.name: str(getattr(settings, f.name))
            for f in fields(settings)
            if f.name not in ("device_num", "recompute")
        },
        "layers of the stages": of_data([stage["layers"] for stage in stages])[:_DIGITS],
        "recompute": of_data([stage["settings"]["recompute"] for stage in stages])[:_DIGITS],
        "strategies": of_data([stage["strategies"] for stage in stages])[:_DIGITS],
    }


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in sorted(values)) or "nothing"
