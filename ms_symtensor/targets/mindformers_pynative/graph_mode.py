"""What the same degrees take in graph mode, as `--target mindformers` would run them."""

from dataclasses import dataclass

from model_zoo.config import TransformerConfig
from ms_symtensor.cluster.topology import Cluster
from ms_symtensor.errors import InfeasibleError, SymTensorError
from ms_symtensor.search.constraints.limits import Limits
from ms_symtensor.search.constraints.request import Request
from ms_symtensor.targets.mindformers.rules import RULES
from ms_symtensor.targets.mindformers_pynative.degrees import Degrees
from ms_symtensor.uniform.estimate import estimate
from ms_symtensor.uniform.search import best_layout


@dataclass(frozen=True)
class GraphMode:
    """The fastest step of a graph-mode file with the degrees of a PyNative plan, or why there is none."""

    step_time_s: float | None = None
    peak_memory_B: int | None = None
    reason: str = ""


def in_graph_mode(config: TransformerConfig, degrees: Degrees, cluster: Cluster, limit_B: int) -> GraphMode:
    """The fastest uniform layout of `config` with the degrees of a PyNative plan that fits `limit_B` bytes of a device.

    Recomputation, micro-batches and the level of the sharded optimizer are searched anew: each mode needs its own.
    """
    pinned = {
        "data_parallel": degrees.data,
        "model_parallel": degrees.tensor,
        "context_parallel": degrees.context,
        "pipeline_stages": degrees.pipeline,
        "pp_interleave_num": degrees.interleave,
    }
    if config.experts is not None:
        pinned["expert_parallel"] = degrees.expert
    batch, sequence = config.batch_size, config.seq_length
    limits = Limits(pinned, pinned)
    request = Request(cluster, degrees.device_num, batch, sequence, limit_B, config.name, {}, limits)
    try:
        plan, _ = estimate(config, best_layout(config, request, rules=RULES)[0], request)
    except InfeasibleError as error:
        return GraphMode(reason=str(error).partition(";")[0])
    except SymTensorError as error:
        return GraphMode(reason=str(error))
    return GraphMode(plan.prediction.step_time_s, plan.prediction.peak_memory_B)
