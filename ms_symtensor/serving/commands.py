"""The command line that an engine of vLLM is started with, for every instance: under vllm-ascend, or vllm-mindspore.

Of vllm's `EngineArgs`: `--data-parallel-size` of experts is one group of all ranks; `--enable-expert-parallel` lays experts whole
over all ranks of a stage, else every expert is cut over them. What vllm-ascend refuses is said in its words. They and all options
are those of vllm 0.23.0 and vllm-ascend 0.23.0.post1, and of vllm 0.11.0 and vllm-mindspore 0.5.1
(`benchmarks/vllm_arguments.py` asks them).
"""

import json
import math
import shlex
from dataclasses import dataclass

from ms_symtensor.serving.deployment import SPLIT, TURNS, Deployment, Instance
from ms_symtensor.serving.memory import BLOCK_TOKENS, block_tokens, key_B, slots, state_B
from ms_symtensor.serving.request import Request

ASCEND, MINDSPORE = "vllm-ascend", "vllm-mindspore"
PROGRAMS = {ASCEND: "vllm", MINDSPORE: "vllm-mindspore"}
CONNECTOR = "MooncakeConnectorV1"
MINDSPORE_CONNECTOR = "DLLMDsD2DConnector"
"""From device to device; vllm_mindspore/utils.py registers it, of the package dllm."""
ONLY_CUDA = "Expert parallelism load balancing is only supported on CUDA devices now."
"""vllm 0.11's ParallelConfig, of more devices than experts."""
NO_WIDE = "no option cuts the feed-forward of a dense network over ranks of dp"
KV_PORT = 20001
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
ONLY_EXPERTS = "The finegrained tp sizes can be enabled only for MOE models."
"""FinegrainedTPConfig: no feed-forward of a dense network is cut over ranks of dp."""
NO_TURNS = "vLLM does not change its sizes while it runs"
ONE_STAGE = "decode pp size must be 1"
"""MooncakeConnectorWorker, of both kinds of instances."""
MORE_TENSOR = "Mamba prefill TP size must be >= decode TP size."
"""Its receiving thread, of states of linear attention."""
UNALIGNED = "Cannot align ssm_page_size and attn_page_size."
"""patch_mamba_config.py: keys of a block take what a state does."""
NO_NETWORK = "none of its networks has gated linear attention, or an indexer"
"""vllm-mindspore, and the inference networks of MindFormers that it falls back to."""
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


def engine_commands(request: Request, found: Deployment, engine: str = ASCEND) -> tuple[EngineCommand, ...]:
    """One for each kind of instance."""
    return tuple(_command(request, found, one, engine) for one in found.instances)


def _command(request: Request, found: Deployment, one: Instance, engine: str) -> EngineCommand:
    cut = one.strategy
    is_dense = request.config.experts is None
    options = [
        ("--tensor-parallel-size", cut.tp),
        ("--pipeline-parallel-size", cut.pp),
        ("--data-parallel-size", cut.dp),
        ("--max-num-seqs", max(1, one.requests // cut.pp) if one.phase != "prefill" else max(1, one.requests)),
        ("--max-num-batched-tokens", _batched(one)),
        ("--max-model-len", request.tokens.whole),
        ("--block-size", block_tokens(request, cut)),
        ("--gpu-memory-utilization", _share(request)),
    ]
    arguments = [PROGRAMS[engine], "serve", "$MODEL"]
    for name, value in options:
        arguments += [name, str(value)]
    if not is_dense and cut.ep > 1:
        arguments.append("--enable-expert-parallel")
    if request.weights != "bfloat16":
        arguments += ["--quantization", "ascend"]
    if found.mode == SPLIT:
        arguments += ["--kv-transfer-config", json.dumps(_transfer(found, one, engine))]
    wide, copies = is_dense and cut.dp > 1, _copies(request, one)
    if engine == MINDSPORE:
        if request.cache != "bfloat16":
            arguments += ["--kv-cache-dtype", request.cache]
        if copies:
            arguments += ["--enable-eplb", "--eplb-config", json.dumps({"num_redundant_experts": copies})]
        lacks = request.config.indexer is not None or request.config.delta is not None
        refused = NO_NETWORK if lacks else NO_WIDE if wide else ONLY_CUDA if copies else ""
    else:
        eight_bits = request.config.indexer is not None and request.cache != "bfloat16"
        additional = _additional(cut.ffn_tp if wide else 0, copies, eight_bits)
        if additional:
            arguments += ["--additional-config", json.dumps(additional)]
        in_stages = any(each.phase == "decode" and each.strategy.pp > 1 for each in found.instances)
        refused = ONLY_EXPERTS if wide else ONE_STAGE if in_stages else _refuses_states(request, found, one)
    environment = "DYNAMIC_EPLB=true" if copies and engine == ASCEND else ""
    if found.mode == TURNS:
        refused = NO_TURNS
    return EngineCommand(one.phase, one.count, tuple(arguments), refused, environment)


def _copies(request: Request, one: Instance) -> int:
    """Experts more than the network has, where there are more devices than experts."""
    cut, experts = one.strategy, request.config.experts
    if experts is None or cut.ep <= experts.number:
        return 0
    return slots(request.config, cut) * cut.ep - experts.number


def _refuses_states(request: Request, found: Deployment, one: Instance) -> str:
    """What vllm-ascend says of states of linear attention that it does not lay or move so."""
    if request.config.delta is None:
        return ""
    if block_tokens(request, one.strategy) * key_B(request, one.strategy) != state_B(request, one.strategy)[0]:
        return UNALIGNED
    cuts = {each.phase: each.strategy.tp for each in found.instances}
    return MORE_TENSOR if cuts.get("prefill", 0) < cuts.get("decode", 0) else ""


def _additional(wide: int, copies: int, eight_bits: bool) -> dict[str, object]:
    """vllm-ascend's own options: a feed-forward cut `wide` ways, redundant experts, caches beside an indexer in 8 bits."""
    if wide:
        return {"finegrained_tp_config": {"mlp_tensor_parallel_size": wide}}
    more = {"eplb_config": {"dynamic_eplb": True, "num_redundant_experts": copies}} if copies else {}
    return more | ({"enable_sparse_sfa_c8": True, "enable_sparse_li_c8": True} if eight_bits else {})


def _batched(one: Instance) -> int:
    """vLLM wants room for a token of every request at least."""
    return max(one.tokens, one.requests, BLOCK_TOKENS)


def _share(request: Request) -> float:
    """The limit as a share of a device's memory, rounded down."""
    whole_B = float(request.cluster.device.hbm_usable_B)
    share: float = math.floor(min(request.limit_B / whole_B, 0.99) * 10**_DECIMALS) / 10**_DECIMALS
    return share


def _transfer(found: Deployment, one: Instance, engine: str) -> dict[str, object]:
    if engine == MINDSPORE:
        return {"kv_connector": MINDSPORE_CONNECTOR, "kv_role": ROLES[one.phase]}
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
