"""mindspeed_rl.csv: tokens a second and card of MindSpeed RL's steps of reinforcement learning on Ascend.

Answers are taken to be as long as they may be, prompts too: what was generated is not published.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ms_symtensor.cluster.load import load
from ms_symtensor.errors import InfeasibleError
from ms_symtensor.joint import joint
from ms_symtensor.search.constraints.limits import SWAP, Limits
from ms_symtensor.search.constraints.request import Request as PlanRequest
from ms_symtensor.search.constraints.request import free_B
from ms_symtensor.serving.request import Request
from ms_symtensor.validation.dataset import Form, UnusableRowError
from ms_symtensor.validation.readers.devices import cluster_of
from ms_symtensor.validation.readers.served_networks import Asked, request_of, served_network
from ms_symtensor.validation.table import Row
from ms_symtensor.validation.timings import Timing

COLUMNS = (
    "algorithm", "model", "machine", "global_batch", "samples_per_prompt", "max_prompt", "max_response",
    "tokens_per_s_per_card", "train_tp", "train_pp", "train_ep", "infer_tp", "infer_ep", "npus",
)  # fmt: skip
_MOST = 1 << 20


def _token_s(samples: int, pins: Mapping[str, int], request: Request) -> float:
    """Of a device for a token of a prompt or an answer, with the row's degrees; micro-batches and recomputation are those that
    are fastest with them. Optimizer states are swapped in every update where they do not fit.
    """
    length, limits = request.tokens.whole, Limits(pins, pins)
    trained = replace(request.config, batch_size=samples, seq_length=length)
    asked = PlanRequest(
        request.cluster, request.device_num, samples, length, request.limit_B, trained.name, limits=limits
    )
    swapping = {**pins, SWAP: 1}
    try:
        step = joint(request, samples, trained, asked).step
    except InfeasibleError:
        step = joint(request, samples, trained, replace(asked, limits=Limits(swapping, swapping))).step
    return step.time_s * request.device_num / (samples * length)


def timing(row: Row) -> Timing:
    """UnusableRowError for a row without degrees."""
    if not all(row.text(name) for name in ("npus", "train_tp", "train_pp", "infer_tp")):
        raise UnusableRowError("does not say its degrees, or on how many devices")
    cluster, name = cluster_of(row.text("machine").replace("Atlas 900 A3 SuperPoD", "A3")), row.text("model")
    devices, prompt, answer = (row.count(column) for column in ("npus", "max_prompt", "max_response"))
    samples = row.count("global_batch") * row.count("samples_per_prompt")
    expert, served = row.optional_count("train_ep") or 1, row.optional_count("infer_ep") or 1
    if max(devices, prompt, answer, samples) > _MOST:
        raise UnusableRowError("a step that nobody takes")
    config = served_network(name)
    pins = {
        "model_parallel": row.count("train_tp"), "pipeline_stages": row.count("train_pp"), "context_parallel": 1,
        **({"expert_parallel": expert} if config.experts is not None else {}),
    }  # fmt: skip
    fixed = {"tp": row.count("infer_tp"), "ep": served}
    both = {"prefill": fixed, "decode": fixed}
    request = request_of(config, cluster, devices, prompt, answer, free_B(load(cluster)), fixed=both)
    run = Asked(request, partial(_token_s, samples, pins))
    return Timing(row.line, name, cluster, run, 1 / row.positive("tokens_per_s_per_card"), model=name)


FORM = Form("mindspeed_rl", COLUMNS, timing)
