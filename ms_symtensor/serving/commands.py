"""The command line that an engine of vLLM (vllm-ascend) is started with, for every instance.

Of vllm's `EngineArgs`: `--data-parallel-size` of experts is one group of all ranks; `--enable-expert-parallel` lays experts whole
over all ranks of a stage, else every expert is cut over them. What vllm-ascend refuses is said in its words. They and all options
are those of vllm 0.23.0 and vllm-ascend 0.23.0.post1 (`benchmarks/vllm_arguments.py` asks them).
"""

import json
import math
import shlex
from dataclasses import dataclass

from ms_symtensor.serving.deployment import SPLIT, TURNS, Deployment, Instance
from ms_symtensor.serving.memory import BLOCK_TOKENS, slots
from ms_symtensor.serving.request import Request

CONNECTOR = "MooncakeConnectorV1"
KV_PORT = 20001
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
ONLY_EXPERTS = "The finegrained tp sizes can be enabled only for MOE models."
"""FinegrainedTPConfig: no feed-forward of a dense network is cut over ranks of dp."""
NO_TURNS = "vLLM does not change its sizes while it runs"
ONE_STAGE = "decode pp size must be 1"
"""MooncakeConnectorWorker, of both kinds of instances."""
_DECIMALS = 2


@dataclass(frozen=True)
class EngineCommand:
    """How one of `count` equal engines is started; `refused`: why vLLM does not take it, in its words, empty where it does.

    `environment`: what is set for it, NAME=VALUE, or empty.
    """

    phase: str
    count: int
    arguments: tuple[str, ...]
    refused: str
    environment: str = ""

    @property
    def line(self) -> str:
        line = shlex.join(self.arguments).replace("'$MODEL'", '"$MODEL"')
        return f"{self.environment} {line}" if self.environment else line


def engine_commands(request: Request, found: Deployment) -> tuple[EngineCommand, ...]:
    """One for each kind of instance."""
    return tuple(_command(request, found, one) for one in found.instances)


def _command(request: Request, found: Deployment, one: Instance) -> EngineCommand:
    cut = one.strategy
    is_dense = request.config.experts is None
    options = [
        ("--tensor-parallel-size", cut.tp),
        ("--pipeline-parallel-size", cut.pp),
        ("--data-parallel-size", cut.dp),
        ("--max-num-seqs", max(1, one.requests // cut.pp) if one.phase != "prefill" else max(1, one.requests)),
        ("--max-num-batched-tokens", _batched(one)),
        ("--max-model-len", request.tokens.whole),
        ("--block-size", BLOCK_TOKENS),
        ("--gpu-memory-utilization", _share(request)),
    ]
    arguments = ["vllm", "serve", "$MODEL"]
    for name, value in options:
        arguments += [name, str(value)]
    if not is_dense and cut.ep > 1:
        arguments.append("--enable-expert-parallel")
    if request.weights != "bfloat16":
        arguments += ["--quantization", "ascend"]
    if found.mode == SPLIT:
        arguments += ["--kv-transfer-config", json.dumps(_transfer(found, one))]
    additional, environment = _additional(request, one)
    if additional:
        arguments += ["--additional-config", json.dumps(additional)]
    in_stages = any(each.phase == "decode" and each.strategy.pp > 1 for each in found.instances)
    refused = (
        NO_TURNS if found.mode == TURNS else ONLY_EXPERTS if is_dense and cut.dp > 1 else ONE_STAGE if in_stages else ""
    )
    return EngineCommand(one.phase, one.count, tuple(arguments), refused, environment)


def _additional(request: Request, one: Instance) -> tuple[dict[str, object], str]:
    """vllm-ascend's own options, and what is set in the environment for them."""
    cut, experts = one.strategy, request.config.experts
    if experts is None:
        return ({"finegrained_tp_config": {"mlp_tensor_parallel_size": cut.ffn_tp}} if cut.dp > 1 else {}), ""
    copies = slots(request.config, cut) * cut.ep - experts.number if cut.ep > experts.number else 0
    if not copies:
        return {}, ""
    return {"eplb_config": {"dynamic_eplb": True, "num_redundant_experts": copies}}, "DYNAMIC_EPLB=true"


def _batched(one: Instance) -> int:
    """vLLM wants room for a token of every request at least."""
    return max(one.tokens, one.requests, BLOCK_TOKENS)


def _share(request: Request) -> float:
    """The limit as a share of a device's memory, rounded down."""
    whole_B = float(request.cluster.device.hbm_usable_B)
    share: float = math.floor(min(request.limit_B / whole_B, 0.99) * 10**_DECIMALS) / 10**_DECIMALS
    return share


def _transfer(found: Deployment, one: Instance) -> dict[str, object]:
    sizes = {
        each.phase: {"dp_size": each.strategy.dp, "tp_size": each.strategy.tp, "pp_size": each.strategy.pp}
        for each in found.instances
    }
    return {
        "kv_connector": CONNECTOR,
        "kv_role": ROLES[one.phase],
        "kv_port": str(KV_PORT),
        "kv_connector_extra_config": sizes,
    }
