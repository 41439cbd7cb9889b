"""A plan that answers a request: what of it the request says, and what was found for it."""

from collections.abc import Sequence

from ms_symtensor.cluster.load import is_known
from ms_symtensor.program.pipeline import Pipeline
from ms_symtensor.program.settings import StagePlan
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.search.constraints.summary import Degrees
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph


def plan_for(
    request: Request,
    graph: Graph,
    stages: Sequence[StagePlan],
    pipeline: Pipeline | None,
    cut: Degrees,
    prediction: Prediction,
    search: SearchReport,
) -> Plan:
    """The plan of these `stages` for `graph`, the network of one micro-batch, which is `cut` so."""
    source = dict(request.source)
    if "batch_size" in source:
        source["batch_size"] = str(graph.inputs[0][1].shape[0])
    return Plan(
        model=request.model,
        graph_hash=graph.hash,
        cluster=request.cluster.name,
        own_cluster=None if is_known(request.cluster) else request.cluster,
        stages=tuple(stages),
        pipeline=pipeline,
        global_batch_size=request.global_batch_size,
        seq_length=request.seq_length,
        data_parallel=cut.data_parallel,
        model_parallel=cut.model_parallel,
        sequence_parallel=cut.sequence_parallel,
        context_parallel=cut.context_parallel,
        expert_parallel=cut.expert_parallel,
        prediction=prediction,
        search=search,
        source=source,
        fixed=request.limits.fixed,
        at_most=request.limits.at_most,
        runtime=request.runtime.name,
        hide=request.runtime.hide,
    )
