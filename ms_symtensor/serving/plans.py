"""The strategies of a deployment as plans: one for every phase and stage of an instance, on the network that MindSpore compiles.

A prefill network takes whole prompts, or as much of one as a pass holds; a decode network a token of every request of a stage.
Both have the cache of the requests that are there at once. Their plans train nothing: `verify` and `prove` take them as they are.
What leaves a stage goes to the next one by the engine.
"""

import math
from dataclasses import dataclass, replace

from model_zoo.builder import build_graph
from model_zoo.config import TransformerConfig
from model_zoo.described import text_of
from model_zoo.dimensions import PUBLISHED, dimensions_of
from model_zoo.megatron import megatron_strategy
from model_zoo.phase import EIGHT_BITS, Phase, why_no_phase
from ms_symtensor.cluster.load import is_known
from ms_symtensor.cost.plan_price import plan_bill, priced
from ms_symtensor.cost.runtime import DEFAULT, runtime_of
from ms_symtensor.ops.placement import OpStrategy
from ms_symtensor.program.partition import partition
from ms_symtensor.program.program import Program
from ms_symtensor.program.settings import Settings, StagePlan
from ms_symtensor.serving.deployment import Deployment, Found, Instance
from ms_symtensor.serving.memory import BLOCK_TOKENS, request_tokens
from ms_symtensor.serving.request import PHASES, Request
from ms_symtensor.serving.strategy import Strategy
from ms_symtensor.strategy.plan import Plan, Prediction, SearchReport
from ms_symtensor.tensor.graph import Graph

METHOD = "every strategy, batch and number of instances priced"


@dataclass(frozen=True)
class PhasePlan:
    """The plan of one phase on one stage of an instance, for the folder `name` beside serve.json."""

    name: str
    plan: Plan
    graph: Graph
    program: Program


def why_no_plans(request: Request, best: Deployment) -> str:
    """Why the deployment has no plans that MindSpore compiles; empty if it has."""
    config = request.config
    if why_not := why_no_phase(config):
        return f"the zoo has no network of the phases of {config.name}: {why_not}"
    if request.weights == "int4":
        return "4 bits are packed in pairs, which MindSpore's Cast does not unpack: networks of the phases have 8 or 16"
    if request.cache != "bfloat16":
        return "networks of the phases have a cache in bfloat16 alone"
    return next((reason for one in best.instances if (reason := _why_not(config, one.strategy))), "")


def _why_not(config: TransformerConfig, one: Strategy) -> str:
    """Why MindSpore does not compile the phases of `config` under `one`."""
    experts = config.experts
    if experts is not None and experts.number % one.ep:
        return f"{one.text()}: {experts.number} experts do not lie evenly on {one.ep} devices; pin another number (--fix ep=…)"
    if config.latent_attention is not None:
        return ""  # the cache has no heads: every device of a stage has all of it
    if config.n_kv_heads % one.tp:
        heads = f"copies {config.n_kv_heads} key-value heads"
        return f"{one.text()} {heads}: MindSpore's ReshapeAndCache cuts heads alone"
    if one.dp > 1 and one.tp > 1:
        return (
            f"{one.text()}: MindSpore lays a cache that tp cuts and dp copies otherwise for ReshapeAndCache than for"
            " PagedAttention"
        )
    return ""


def phase_plans(request: Request, found: Found, search_time_s: float) -> tuple[PhasePlan, ...]:
    """The plans of the best deployment. Errors: those of `partition`."""
    return tuple(
        _plan(request, found, one, phase, stage, search_time_s)
        for one in found.best.instances
        for phase in (PHASES if one.phase == "mixed" else (one.phase,))
        for stage in range(one.strategy.pp)
    )


def _plan(request: Request, found: Found, one: Instance, phase: str, stage: int, search_time_s: float) -> PhasePlan:
    source = _source(request, one, phase, stage)
    config = dimensions_of(
        source["model"],
        num_layers=int(source["num_layers"]),
        seq_length=int(source["seq_length"]),
        batch_size=int(source["batch_size"]),
        dense_layers=int(source["dense_layers"]),
        dimensions=source.get("dimensions", ""),
        phase=source["phase"],
    )
    graph, cut, cluster = build_graph(config), one.strategy, request.cluster
    strategies = _strategies(graph, config, cut)
    plan = StagePlan(strategies, Settings(cut.stage_devices))
    program = partition(graph, plan)
    price = priced(plan_bill(graph, (plan,), programs=[program]), cluster, runtime_of(DEFAULT))
    memory_B = price.fullest_B
    return PhasePlan(
        phase if cut.pp == 1 else f"{phase}_{stage}",
        Plan(
            model=request.config.name,
            graph_hash=graph.hash,
            cluster=cluster.name,
            stages=(plan,),
            global_batch_size=config.batch_size,
            seq_length=config.seq_length,
            data_parallel=cut.dp,
            model_parallel=cut.tp,
            sequence_parallel=False,
            prediction=Prediction(price.time_s, memory_B, sum(memory_B.values()) <= request.limit_B, request.limit_B),
            search=SearchReport(found.candidates, search_time_s, 0.0, METHOD),
            source=source,
            expert_parallel=cut.ep,
            own_cluster=None if is_known(cluster) else cluster,
        ),
        graph,
        program,
    )


def _strategies(graph: Graph, config: TransformerConfig, cut: Strategy) -> dict[str, OpStrategy]:
    given = megatron_strategy(
        graph,
        config,
        cut.dp,
        cut.tp,
        sequence_parallel=False,
        expert_parallel=cut.ep,
        expert_model_parallel=cut.expert_tp,
        feed_forward_parallel=cut.ffn_tp,
    )
    return {name: OpStrategy(*cuts) for name, cuts in given.items()}


def _source(request: Request, one: Instance, phase: str, stage: int) -> dict[str, str]:
    """How the network of a phase is built: its layers on this stage, tokens and requests of all ranks of dp."""
    config, cut = replace(request.config, second_token_weight=0.0), one.strategy
    each = math.ceil(config.num_layers / cut.pp)
    layers = range(stage * each, min(config.num_layers, (stage + 1) * each))
    part = config.with_layers(layers)
    blocks = request_tokens(request, cut) // BLOCK_TOKENS
    chunk = min(one.tokens, request.tokens.most)
    sizes = (1, one.requests // cut.pp) if phase == "decode" else (chunk, max(1, one.tokens // chunk))
    room = min(one.cache_tokens // BLOCK_TOKENS, one.requests * blocks)
    stored = EIGHT_BITS if request.weights == EIGHT_BITS else ""
    cache = Phase(phase, max(blocks, room), BLOCK_TOKENS, blocks, stage == 0, stage == cut.pp - 1, stored)
    source = {
        "model": config.name,
        "num_layers": str(part.num_layers),
        "dense_layers": str(part.dense_layers),
        "seq_length": str(sizes[0]),
        "batch_size": str(max(1, sizes[1]) * cut.dp),
        "phase": cache.text,
    }
    return source if config.name in PUBLISHED and not config.kinds else {**source, "dimensions": text_of(part)}
