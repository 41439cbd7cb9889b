"""The command line that an engine of vLLM (vllm-ascend) is started with, for every instance.

Of vllm's `EngineArgs`: `--data-parallel-size` of a dense network means engines of their own, of experts one group of all ranks;
`--enable-expert-parallel` lays experts whole over all ranks of a stage, else every expert is cut over them. vllm-ascend's
`finegrained_tp_config` cuts a dense feed-forward over ranks of `dp`; it wants decode instances of their own.
"""

import json
import math
import shlex
from dataclasses import dataclass

from ms_symtensor.serving.memory import BLOCK_TOKENS
from ms_symtensor.serving.request import Request
from ms_symtensor.serving.search import Deployment, Instance

CONNECTOR = "MooncakeConnectorV1"
KV_PORT = 20001
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
_DECIMALS = 2


@dataclass(frozen=True)
class EngineCommand:
    """How one of `count` equal engines is started; `refused`: what vLLM cannot say of the plan, empty where it can."""

    phase: str
    count: int
    arguments: tuple[str, ...]
    refused: str

    @property
    def line(self) -> str:
        return shlex.join(self.arguments).replace("'$MODEL'", '"$MODEL"')


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
    if one.phase in ROLES:
        arguments += ["--kv-transfer-config", json.dumps(_transfer(found, one))]
    refused = ""
    if is_dense and cut.dp > 1:
        arguments += [
            "--additional-config",
            json.dumps({"finegrained_tp_config": {"mlp_tensor_parallel_size": cut.ffn_tp}}),
        ]
        if cut.tp > 1 or one.phase != "decode":
            refused = "a dense feed-forward over ranks of dp: finegrained_tp_config wants tp 1 and decode instances of their own"
    return EngineCommand(one.phase, one.count, tuple(arguments), refused)


def _batched(one: Instance) -> int:
    """vLLM wants room for a token of every request at least."""
    return max(one.tokens, one.requests, BLOCK_TOKENS)


def _share(request: Request) -> float:
    """The limit as a share of a device's memory, rounded down."""
    whole_B = float(request.cluster.device.hbm_usable_B)
    share: float = math.floor(min(request.limit_B / whole_B, 0.99) * 10**_DECIMALS) / 10**_DECIMALS
    return share


def _transfer(found: Deployment, one: Instance) -> dict[str, object]:
    sizes = {each.phase: {"dp_size": each.strategy.dp, "tp_size": each.strategy.tp} for each in found.instances}
    return {
        "kv_connector": CONNECTOR,
        "kv_role": ROLES[one.phase],
        "kv_port": str(KV_PORT),
        "kv_connector_extra_config": sizes,
    }
