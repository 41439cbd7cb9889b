"""The price of a configuration in uniform layouts, as a plan: nothing is searched."""

from collections.abc import Mapping
from dataclasses import replace

from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.cost.plan_price import PlanPrice, price_plan, priced
from ms_symtensor.cost.runtime import Runtime
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.summary import Degrees
from ms_symtensor.search.plan_for import plan_for
from ms_symtensor.strategy.as_run import as_run_by
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph
from ms_symtensor.uniform.folded import folded_bill
from ms_symtensor.uniform.layout import UniformLayout
from ms_symtensor.uniform.plan import UniformPlan, uniform_plan
from ms_symtensor.uniform.request import as_run, of_micro_batch

METHOD = "uniform layouts, as given"


def estimate(config: TransformerConfig, layout: UniformLayout, request: Request) -> tuple[Plan, Graph]:
    """`layout` for `config`, whose batch is that of a step, as a plan with its price, and the graph it is for.

    Raises:
        InputError: for what the network or MindSpore does not allow.
    """
    network, runtime = of_micro_batch(config, layout), request.runtime
    price = priced(folded_bill(network, as_run(layout, runtime), runtime.fuses), request.cluster, runtime)
    prediction = prediction_of(price, request.limit_B, _host_memory_B(network, layout, runtime))
    found = uniform_plan(network, layout)
    return _plan(found, layout, prediction, request), found.graph


def _host_memory_B(network: TransformerConfig, layout: UniformLayout, runtime: Runtime) -> int:
    """Bytes of optimizer states that stay on the host, of a device of the fullest stage: what they would take on the device."""
    if not layout.swap_optimizer:
        return 0
    on_device = folded_bill(network, as_run(replace(layout, swap_optimizer=False), runtime), runtime.fuses)
    return max(stage.stored_as(runtime.stores)["optimizer_states"] for stage in on_device.stages)


def reprice(plan: Plan, graph: Graph, cluster: Cluster, runtime: Runtime) -> Prediction:
    """The prediction of `plan` on `cluster` under `runtime`; its limit stays."""
    stages = as_run_by(plan, graph, runtime)
    return prediction_of(price_plan(graph, stages, plan.pipeline, cluster, runtime), plan.prediction.limit_B)


def prediction_of(price: PlanPrice, limit_B: int, host_memory_B: int = 0) -> Prediction:
    """What a plan says of its price."""
    memory: Mapping[str, int] = price.fullest_B
    fits = sum(memory.values()) <= limit_B
    return Prediction(price.time_s, memory, fits, limit_B, host_memory_B, price.hidden_s, price.experts_s)


def _plan(found: UniformPlan, layout: UniformLayout, prediction: Prediction, request: Request) -> Plan:
    of = layout.degrees
    cut = Degrees(
        of.data_parallel, of.model_parallel, of.sequence_parallel, of.context_parallel, of.expert_parallel or 1
    )
    search = SearchReport(1, 0.0, 0.0, METHOD)
    return plan_for(request, found.graph, found.stages, found.pipeline, cut, prediction, search)
